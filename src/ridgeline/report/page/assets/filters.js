// Choosing what the figure shows, and saying what is shown and what is not.

const MOST_LISTED = 100; // points in the list for screen readers; the layer table has all
const MOST_FLAGS = 60;
let shown = null;

function startFilters() {
  shown = startOf("classic");
  const form = byId("filters");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.append(
    labelled(
      "Figure",
      select(
        "view",
        Object.entries(VIEWS)
          .filter(isOffered)
          .map(([key, view]) => [key, view.label]),
      ),
    ),
    ...Object.entries(FILTERS).map(([key, { label }]) => labelled(label, select(key, []))),
    labelled("Colour by", select("colour", [])),
    tick("isAllRoofs", "all roofs"),
    ...(MACHINES.some((machine) => machine.datasheet) ? [tick("hasSheet", "datasheet")] : []),
  );
  form.addEventListener("change", chooseShown);
  applyShown();
}

// A view that could show nothing more than another is not offered.
function isOffered([key]) {
  if (key === "machines") return MACHINES.length > 1;
  if (key === "training") return R.mode.includes("train");
  return true;
}

function select(name, options) {
  return make(
    "select",
    { name, id: `choose-${name}` },
    options.map(([value, text]) => make("option", { value }, text)),
  );
}

function labelled(text, control) {
  return make("label", {}, text, control);
}

function tick(name, text) {
  return make(
    "label",
    { class: "tick" },
    make("input", { type: "checkbox", name, id: `choose-${name}` }),
    text,
  );
}

function chooseShown({ target }) {
  if (target.name === "view") shown = startOf(target.value);
  else
    shown = { ...shown, [target.name]: target.type === "checkbox" ? target.checked : target.value };
  for (const later of DEPENDENT[target.name] ?? []) shown[later] = ANY;
  if (target.name === "grain" && target.value === "layer") shown.phase = "all";
  releaseOthers(target.name);
  applyShown();
}

// A choice that fits nothing else that was chosen wins: the others are given up one by one.
function releaseOthers(chosen) {
  for (const key of ["kind", "phase", "precision", "work", "run", "model", "grain", "machine"]) {
    if (buildMarks(shown).points) return;
    if (key !== chosen) shown[key] = ANY;
  }
}

function applyShown() {
  for (const key of Object.keys(FILTERS)) fillOptions(key);
  const colours = Object.entries(COLOURS).map(([key, { label }]) => [key, label]);
  if (shown.view === "hierarchical") colours.unshift(["level", "memory level"]);
  setOptions("colour", colours, shown.colour);
  byId("choose-view").value = shown.view;
  for (const name of ["isAllRoofs", "hasSheet"])
    if (byId(`choose-${name}`)) byId(`choose-${name}`).checked = shown[name];
  byId("view-about").textContent = VIEWS[shown.view].about;
  showFigure(shown);
  sayShown();
}

// The values that are left by the other choices, each with how many points it has.
function fillOptions(key) {
  const later = [key, ...(DEPENDENT[key] ?? [])];
  const others = Object.keys(FILTERS).filter(
    (other) => !later.includes(other) && shown[other] !== ANY,
  );
  const counts = new Map();
  for (let i = 0; i < P.count; i += 1) {
    const value = FILTERS[key].of(i);
    if (others.every((other) => passes(shown, other, i)))
      counts.set(value, (counts.get(value) ?? 0) + 1);
    else if (FILTERS[key].isWhole && !counts.has(value)) counts.set(value, 0);
  }
  if (key === "grain" && counts.has("phase"))
    counts.set("phase and step", counts.get("phase") + (counts.get("step") ?? 0));
  if (shown[key] !== ANY && !counts.has(shown[key])) counts.set(shown[key], 0);
  const word = FILTERS[key].word ?? ((value) => value);
  setOptions(
    key,
    [[ANY, "all"], ...[...counts].map(([value, count]) => [value, `${word(value)} (${count})`])],
    shown[key],
  );
}

function setOptions(name, options, chosen) {
  const control = byId(`choose-${name}`);
  control.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
  control.value = chosen;
}

function sayShown() {
  const { marks } = plot;
  showLegend(marks);
  const without = marks.noPlace
    ? ` ${marks.noPlace} of the work items chosen cannot be drawn: their FLOPs, bytes or time are not known or are zero.`
    : "";
  const points = `${marks.count} ${marks.count === 1 ? "point" : "points"}.${without}`;
  const reading = !marks.view.levels.length
    ? ""
    : " The bar of a hollow mark leads from bytes moved to fused bytes. Solid roofs were measured, dashed ones are published; dots are ridges.";
  byId("plot-note").textContent =
    `${points} Larger marks take longer. Hollow: work counted from the graph. Filled: work by counters.` +
    `${reading} A ring with ! marks what needs a look: point at it.`;
  setTimeout(() => {
    listPoints(marks);
    listFlags(marks);
  });
}

function showLegend(marks) {
  byId("legend").replaceChildren(
    ...marks.names.map((name, place) => make("li", {}, swatch(place), name)),
  );
}

function swatch(place) {
  const path = [];
  const recorder = {
    moveTo: (x, y) => path.push(`M${x} ${y}`),
    lineTo: (x, y) => path.push(`L${x} ${y}`),
    closePath: () => path.push("Z"),
    arc: (x, y, r) =>
      path.push(`M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`),
  };
  tracePath(recorder, place, 7, 7, 5);
  return makeSvg(
    "svg",
    { class: `k${place}`, viewBox: "0 0 14 14", "aria-hidden": "true" },
    makeSvg("path", {
      d: path.join(""),
      fill: "currentColor",
      "fill-opacity": 0.25,
      stroke: "currentColor",
      "stroke-width": 1.6,
    }),
  );
}

function byTime(marks) {
  const points = [...new Set(marks.point)];
  return points.sort((a, b) => (P.time_s[b] || 0) - (P.time_s[a] || 0));
}

function listPoints(marks) {
  const points = byTime(marks);
  const cells = (i) => [
    P.name[i],
    formatTime(P.time_s[i]),
    formatTime(P.floor_s[i]),
    BOUND_WORDS[P.bound[i]],
    formatPercent(P.efficiency[i]),
  ];
  const head = ["name", "time", "floor", "bound", "efficiency"].map((name) =>
    make("th", { scope: "col" }, name),
  );
  const rows = points.slice(0, MOST_LISTED).map((i) =>
    make(
      "tr",
      {},
      cells(i).map((text) => make("td", {}, text ?? "")),
    ),
  );
  const caption = `Points of the figure, the longest first: ${rows.length} of ${points.length}`;
  byId("points-list").replaceChildren(
    make(
      "table",
      {},
      make("caption", {}, caption),
      make("thead", {}, make("tr", {}, head)),
      make("tbody", {}, rows),
    ),
  );
}

function listFlags(marks) {
  const flagged = byTime(marks).filter((i) => P.flag[i]);
  const box = byId("flagged");
  box.hidden = !flagged.length;
  box.querySelector("summary").textContent =
    `${flagged.length} of these ${flagged.length === 1 ? "is" : "are"} marked: they do not fit what is physically possible, or their neighbours`;
  box
    .querySelector("ul")
    .replaceChildren(
      ...flagged
        .slice(0, MOST_FLAGS)
        .map((i) =>
          make("li", {}, make("strong", {}, P.name[i]), ` (${R.name[P.run[i]]}): ${P.flag[i]}`),
        ),
    );
}
