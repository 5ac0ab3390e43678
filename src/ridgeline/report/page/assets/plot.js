// The figure: its size, what part of it is seen, drawing it, and telling about one point.

const plot = {
  marks: null,
  cells: new Map(),
  lines: [],
  spanX: [0, 1],
  spanY: [0, 1],
  chosen: null,
  roofLabels: [],
  slopeBoxes: [],
  names: [],
  isDue: false,
  draws: 0,
};

const DIAGONALS = {
  time: {
    shares: [1, 0.5, 0.1, 0.01],
    text: (share) => (share === 1 ? "floor: 100 %" : `${100 * share} %`),
  },
  times: { shares: [1], text: () => "both take as long" },
};

function figureColours() {
  const names = ["paper", "ink", "soft", "grid", "roof", "warn"];
  const found = Object.fromEntries(names.map((name) => [name, colour(name)]));
  found.groups = Array.from({ length: MOST_COLOURS + 1 }, (_, n) => colour(`c${n}`));
  return found;
}

function showFigure(state) {
  plot.state = state;
  plot.marks = buildMarks(state);
  plot.cells = new Map(); // nothing can be picked before it is drawn
  plot.lines = roofLines(machinesShown(state, plot.marks), {
    levels: levelsShown(plot.marks),
    isAll: state.isAllRoofs,
    hasSheet: state.hasSheet,
  });
  closePoint();
  fitView();
  drawSoon();
}

// The slopes of the view, and those of the caches that bound a point: it is below that one.
function levelsShown(marks) {
  const { levels } = marks.view;
  if (!levels.length) return levels;
  const bounds = new Set(marks.point.map((i) => P.bound[i]));
  return LEVELS.filter((level) => levels.includes(level) || bounds.has(level));
}

// Machines of the points that are shown, with the roofs that their work belongs under.
function machinesShown(state, marks) {
  const shown = new Map();
  const add = (run) => {
    const number = R.machine[run];
    if (!shown.has(number)) shown.set(number, new Set());
    R.roofs[run].forEach((name) => shown.get(number).add(name));
  };
  if (marks.view.levels.length) new Set(marks.point.map((i) => P.run[i])).forEach(add);
  if (state.view === "machines")
    MACHINES.forEach((_, number) => shown.has(number) || shown.set(number, new Set()));
  return shown;
}

function fitView() {
  const { marks, lines } = plot;
  const ridges = lines.filter((line) => line.isFlat).map((line) => line.ridge);
  const rates = lines.filter((line) => line.isFlat).map((line) => line.rate);
  const ends = marks.view === VIEWS.times ? pathEnds(marks) : { x: [], y: [] };
  plot.spanX = spanOf([...marks.x, ...marks.high, ...ridges, ...ends.x], lines.length ? 0.45 : 0.2);
  plot.spanY = spanOf([...marks.y, ...rates, ...ends.y], 0.35);
}

function pathEnds(marks) {
  const factor = (m) => P.time_s[marks.point[m]] / Math.max(marks.x[m], marks.y[m]);
  return {
    x: marks.x.map((value, m) => value * factor(m)),
    y: marks.y.map((value, m) => value * factor(m)),
  };
}

function drawSoon() {
  if (plot.isDue) return;
  plot.isDue = true;
  requestAnimationFrame(() => {
    plot.isDue = false;
    drawFigure();
  });
}

// The labels of the vertical axis need as much room as the longest of them.
function frameOf(canvas, context) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const font = `${width < 500 ? 11 : 12}px system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif`;
  const [top, bottom] = [30, height - 48];
  context.font = font;
  const labels = ticks(makeScale(plot.spanY, [bottom, top]), 34).map(plot.marks.view.axes.yTick);
  const left = 18 + Math.max(...labels.map((label) => context.measureText(label).width), 20);
  return { left, right: width - 14, top, bottom, width, height, font, colours: figureColours() };
}

function drawFigure() {
  const canvas = byId("canvas");
  if (!canvas.clientWidth || !plot.marks) return;
  const density = Math.max(1, window.devicePixelRatio || 1);
  const context = canvas.getContext("2d");
  const frame = frameOf(canvas, context);
  canvas.width = Math.round(frame.width * density);
  canvas.height = Math.round(frame.height * density);
  context.scale(density, density);
  const x = makeScale(plot.spanX, [frame.left, frame.right]);
  const y = makeScale(plot.spanY, [frame.bottom, frame.top]);
  placeInPicture(plot.marks, x, y);
  Object.assign(plot, { frame, x, y, cells: buildGrid(plot.marks), draws: plot.draws + 1 });
  drawAxes(context, frame, x, y, plot.marks.view.axes);
  context.save();
  context.beginPath();
  context.rect(
    frame.left,
    frame.top - 8,
    frame.right - frame.left + 8,
    frame.bottom - frame.top + 8,
  );
  context.clip();
  Object.assign(plot, { slopeBoxes: [], names: [] });
  if (DIAGONALS[plot.state.view]) drawDiagonals(context, frame, x, y, DIAGONALS[plot.state.view]);
  drawRoofs(context, frame, x, y, plot.lines, roofColour(frame));
  drawMarks(context, frame, x, y, plot.marks); // last: a label must not hide a point
  context.restore();
  sayUnnamedRoofs();
  if (plot.chosen !== null) placeRing();
}

function roofColour(frame) {
  const numbers = [...new Set(plot.lines.map((line) => line.number))];
  if (numbers.length < 2) return () => frame.colours.roof;
  const { names } = plot.marks;
  return (line) => frame.colours.groups[Math.max(0, names.indexOf(line.machine.title))];
}

// ---- one point

function choosePoint(mark) {
  if (mark === plot.chosen) return;
  plot.chosen = mark;
  const details = byId("details");
  details.replaceChildren(...describePoint(plot.marks.point[mark]));
  details.hidden = false;
  placeRing();
}

function closePoint() {
  plot.chosen = null;
  byId("details").hidden = true;
  byId("ring").hidden = true;
}

function placeRing() {
  const [x, y] = [plot.marks.px[plot.chosen], plot.marks.py[plot.chosen]];
  const { frame } = plot;
  const isSeen = x >= frame.left && x <= frame.right && y >= frame.top - 8 && y <= frame.bottom;
  const ring = byId("ring");
  ring.hidden = !isSeen;
  ring.style.left = `${x}px`;
  ring.style.top = `${y}px`;
  const details = byId("details");
  const [width, height] = [details.offsetWidth, details.offsetHeight];
  const isLeft = x + 22 + width > frame.width;
  details.style.left = `${Math.max(4, isLeft ? x - 22 - width : x + 22)}px`;
  details.style.top = `${Math.max(4, Math.min(y - height / 3, frame.height - height - 4))}px`;
}

function describePoint(i) {
  const run = P.run[i];
  const what = [
    P.kind[i],
    P.phase[i] === "all" ? "whole" : P.phase[i],
    P.shapes[i].replaceAll("x", "×"),
  ];
  return [
    make("h3", {}, P.name[i] || P.phase[i]),
    make("p", { class: "shapes" }, what.filter(Boolean).join(", ")),
    make("p", { class: "where" }, R.name[run]),
    make(
      "dl",
      {},
      pointFacts(i).map(([name, text]) =>
        make("div", {}, make("dt", {}, name), make("dd", {}, text)),
      ),
    ),
    P.flag[i] ? make("p", { class: "flag" }, P.flag[i]) : null,
    make("p", { class: "source lines" }, pointSource(i)),
  ].filter(Boolean);
}

// Two columns: what it does, and how long it takes.
function pointFacts(i) {
  const isStatic = P.provenance[i] === "static";
  const counted = [
    ["bytes moved", P.dram_bytes[i]],
    ["bytes, fused", P.fused_bytes[i]],
    ["bytes, least", P.least_bytes[i]],
  ].filter(([, bytes]) => isKnown(bytes));
  const moved = isStatic ? counted : [["DRAM bytes", P.dram_bytes[i]]];
  const high =
    isStatic && P.ai_high[i] > P.ai[i] * 1.005 ? ` … ${formatRatio(P.ai_high[i])}` : "";
  const caches = LEVELS.slice(1).filter((level) => P[`${level}_bytes`][i] > 0);
  const work = [
    ["FLOPs", si(P.flops[i], "FLOP")],
    ...moved.map(([name, bytes]) => [name, si(bytes, "B")]),
    ["intensity", isKnown(P.ai[i]) ? `${formatRatio(P.ai[i])}${high} FLOP/B` : UNKNOWN],
    ["performance", si(P.rate[i], "FLOP/s")],
    ["launches", P.launches[i] > 0 ? si(P.launches[i]) : UNKNOWN],
    ...caches.map((level) => [`${level.toUpperCase()} bytes`, si(P[`${level}_bytes`][i], "B")]),
  ];
  const time = [
    ["time", formatTime(P.time_s[i])],
    ["floor", formatTime(P.floor_s[i])],
    ["bound", BOUND_WORDS[P.bound[i]] ?? P.bound[i]],
    ["efficiency", formatPercent(P.efficiency[i])],
    ["headroom", formatTime(P.headroom_s[i])],
  ];
  return work.flatMap((fact, n) => (time[n] ? [fact, time[n]] : [fact]));
}
