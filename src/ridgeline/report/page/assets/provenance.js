// Where a number comes from: shown when the mouse is on it, or when the keyboard has reached it.

const SOURCES = new WeakMap(); // element → function that says where its number comes from
const WORK = {
  static: "static: counted from the graph of the model",
  counter: "counter: what the hardware's counters said",
};

function withSource(element, kind, say) {
  element.dataset.prov = kind;
  SOURCES.set(element, say);
  return element;
}

function runSource(run) {
  const isRun = run < R.measured;
  const what = isRun ? `measured: run ${R.id[run]}` : `capture: ${R.files[run]}, ${R.id[run]}`;
  return `${what}\n${R.command[run]}`;
}

function workSource(point) {
  const run = P.run[point];
  const counted = R.count_id[run] && P.provenance[point] === "static" ? `, ${R.count_id[run]}` : "";
  return (WORK[P.provenance[point]] ?? P.provenance[point]) + counted;
}

function floorSource(point) {
  const machine = MACHINES[R.machine[P.run[point]]];
  const at = machine?.measured_at ? ` ${machine.measured_at}` : "";
  return (
    `derived: the work over the roofs (${machine?.source ?? "unknown"}${at})\nwork: ` +
    workSource(point)
  );
}

function pointSource(point) {
  return (
    `time: ${runSource(P.run[point])}\nwork: ${workSource(point)}\n` +
    `floor: ${floorSource(point).split("\n")[0]}`
  );
}

function sourceText(element) {
  const say = SOURCES.get(element);
  return say ? say() : element.dataset.prov;
}

function showTip(element) {
  const tip = byId("tip");
  tip.textContent = sourceText(element);
  tip.hidden = false;
  element.setAttribute("aria-describedby", "tip");
  const box = element.getBoundingClientRect();
  const left = Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
  const isBelow = box.top < tip.offsetHeight + 60; // the bar on top must stay readable
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${isBelow ? box.bottom + 6 : box.top - tip.offsetHeight - 6}px`;
}

function hideTip() {
  byId("tip").hidden = true;
  document.querySelector('[aria-describedby="tip"]')?.removeAttribute("aria-describedby");
}

// A table is one stop of the tab key; inside it the arrow keys go from cell to cell.
function moveInTable(event) {
  const cell = event.target.closest("td, th");
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[
    event.key
  ];
  if (!cell || !step || event.target !== cell || !cell.closest("table.data tbody")) return;
  const rows = [...cell.closest("tbody").rows];
  const row = rows[rows.indexOf(cell.parentElement) + step[0]];
  const next = row?.cells[cell.cellIndex + step[1]];
  if (!next) return;
  event.preventDefault();
  cell.removeAttribute("tabindex");
  next.tabIndex = 0;
  next.focus();
}

function makeReachable(table) {
  const first = table.tBodies[0]?.rows[0]?.cells[0];
  if (first && !table.tBodies[0].querySelector("[tabindex]")) first.tabIndex = 0;
}

function startProvenance() {
  const shown = (event) => {
    const element = event.target.closest?.("[data-prov]");
    if (element) showTip(element);
    else hideTip();
  };
  document.addEventListener("mouseover", shown);
  document.addEventListener("focusin", shown);
  document.addEventListener("scroll", hideTip, { passive: true });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideTip();
    moveInTable(event);
  });
  document.querySelectorAll("table.data").forEach(makeReachable);
}
