// Mouse, fingers and keys on the figure.

const REACH = { mouse: 26, pen: 26, touch: 44 }; // pixels within which a point is meant
const pointers = new Map();
const hand = { isDragging: false, distance: 0, pickTime: 0 };

function zoomBy(factor, at = null) {
  const { frame } = plot;
  const [px, py] = at ?? [(frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2];
  const [fx, fy] = [Math.log10(plot.x.from(px)), Math.log10(plot.y.from(py))];
  const around = ([low, high], fixed) => [
    fixed - (fixed - low) * factor,
    fixed + (high - fixed) * factor,
  ];
  const spanX = around(plot.spanX, fx);
  if (spanX[1] - spanX[0] < 0.05 || spanX[1] - spanX[0] > 40) return;
  plot.spanX = spanX;
  plot.spanY = around(plot.spanY, fy);
  drawSoon();
}

function moveBy(dx, dy) {
  const shiftX = dx / plot.x.perDecade;
  const shiftY = dy / plot.y.perDecade;
  plot.spanX = plot.spanX.map((edge) => edge - shiftX);
  plot.spanY = plot.spanY.map((edge) => edge + shiftY);
  drawSoon();
}

function resetView() {
  fitView();
  drawSoon();
}

function place(event) {
  const box = byId("plot").getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function pick(event) {
  const started = performance.now();
  const mark = nearest(plot.marks, plot.cells, ...place(event), REACH[event.pointerType] ?? 26);
  if (mark === null) closePoint();
  else choosePoint(mark);
  hand.pickTime = performance.now() - started;
}

function pressed(event) {
  pointers.set(event.pointerId, place(event));
  hand.isDragging = false;
  hand.distance = 0;
}

function moved(event) {
  const before = pointers.get(event.pointerId);
  if (!before) {
    pick(event);
    return;
  }
  const now = place(event);
  if (pointers.size === 2) pinch(event.pointerId, before, now);
  else drag(event, before, now);
  pointers.set(event.pointerId, now);
}

function drag(event, before, now) {
  const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
  hand.distance += Math.hypot(dx, dy);
  if (hand.distance < 5) return; // a click, not yet a move
  if (!hand.isDragging) byId("plot").setPointerCapture(event.pointerId);
  hand.isDragging = true;
  byId("plot").classList.add("moving");
  closePoint();
  moveBy(dx, dy);
}

function pinch(id, before, now) {
  const other = [...pointers].find(([one]) => one !== id)[1];
  const distance = (at) => Math.hypot(at[0] - other[0], at[1] - other[1]);
  const middle = [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2];
  hand.isDragging = true;
  zoomBy(distance(before) / Math.max(1, distance(now)), middle);
}

function released(event) {
  const wasHere = pointers.delete(event.pointerId);
  byId("plot").classList.remove("moving");
  if (wasHere && !hand.isDragging && event.type === "pointerup") pick(event);
}

// Scrolling belongs to the page until the figure was clicked or Ctrl is held.
function wheeled(event) {
  const isMeant = event.ctrlKey || event.metaKey || document.activeElement === byId("plot");
  if (!isMeant) return;
  event.preventDefault();
  zoomBy(1.0015 ** event.deltaY, place(event));
}

function left(event) {
  if (event.pointerType === "mouse" && !pointers.size) closePoint();
}

// The next mark in the order of a coordinate, from the one that is chosen.
function step(coordinate, by) {
  const { marks } = plot;
  if (!marks.count) return;
  const order = Array.from(marks[coordinate], (_, m) => m).sort(
    (a, b) => marks[coordinate][a] - marks[coordinate][b],
  );
  const here = plot.chosen === null ? -1 : order.indexOf(plot.chosen);
  const next = here < 0 ? longest() : order[Math.min(order.length - 1, Math.max(0, here + by))];
  choosePoint(next);
}

function longest() {
  const times = plot.marks.point.map((i) => P.time_s[i] || 0);
  return times.indexOf(Math.max(...times));
}

const KEYS = {
  ArrowRight: () => step("x", 1),
  ArrowLeft: () => step("x", -1),
  ArrowUp: () => step("y", 1),
  ArrowDown: () => step("y", -1),
  Home: () => plot.marks.count && choosePoint(longest()),
  Escape: closePoint,
  "+": () => zoomBy(0.7),
  "=": () => zoomBy(0.7),
  "-": () => zoomBy(1 / 0.7),
  0: resetView,
};

function startPointer() {
  const area = byId("plot");
  area.addEventListener("pointerdown", pressed);
  area.addEventListener("pointermove", moved);
  for (const name of ["pointerup", "pointercancel"]) area.addEventListener(name, released);
  area.addEventListener("pointerleave", left);
  area.addEventListener("wheel", wheeled, { passive: false });
  area.addEventListener("dblclick", resetView);
  area.addEventListener("blur", closePoint);
  area.addEventListener("keydown", (event) => {
    if (!KEYS[event.key] || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  byId("zoom-in").addEventListener("click", () => zoomBy(0.7));
  byId("zoom-out").addEventListener("click", () => zoomBy(1 / 0.7));
  byId("zoom-reset").addEventListener("click", resetView);
  new ResizeObserver(drawSoon).observe(area);
}
