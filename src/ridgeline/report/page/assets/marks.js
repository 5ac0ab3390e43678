// The marks of a figure: which points a view shows, where, in which colour, and how they are drawn.

const MOST_COLOURS = 7; // colours that people can tell apart
const OTHERS = "others";
const CELL = 32; // pixels of the grid in which the nearest mark is looked up

function buildMarks(state) {
  const view = VIEWS[state.view];
  const keys = Object.keys(FILTERS).filter((key) => state[key] !== ANY);
  const marks = { view, x: [], y: [], high: [], point: [], group: [], noPlace: 0, points: 0 };
  for (let i = 0; i < P.count; i += 1) {
    if (!keys.every((key) => passes(state, key, i))) continue;
    marks.points += 1;
    if (!placeMarks(marks, state, i)) marks.noPlace += 1;
  }
  marks.count = marks.x.length;
  group(marks);
  return marks;
}

function placeMarks(marks, state, i) {
  const before = marks.x.length;
  const add = (x, y, high, name) => {
    if (!(x > 0) || !(y > 0)) return;
    marks.x.push(x);
    marks.y.push(y);
    marks.high.push(high);
    marks.point.push(i);
    marks.group.push(name);
  };
  const name = COLOURS[state.colour]?.of(i) ?? "";
  if (state.view === "time") add(P.floor_s[i], P.time_s[i], NaN, name);
  else if (state.view === "times") add(P.memory_s[i], P.compute_s[i], NaN, name);
  else if (state.view === "hierarchical") {
    for (const level of LEVELS)
      add(
        P.flops[i] / bytesAt(level, i),
        P.rate[i],
        NaN,
        state.colour === "level" ? level.toUpperCase() : name,
      );
  } else add(P.ai[i], P.rate[i], P.provenance[i] === "static" ? P.ai_high[i] : NaN, name);
  return marks.x.length > before;
}

// What the floor takes as moved at a level: counted work may find its data in a cache.
function bytesAt(level, i) {
  const isLeast = level === "dram" && P.provenance[i] === "static";
  return (isLeast ? P.least_bytes[i] : P[`${level}_bytes`][i]) || NaN;
}

// Names of groups become numbers, the group that takes longest first; the last colour is for others.
function group(marks) {
  const time = new Map();
  marks.group.forEach((name, m) =>
    time.set(name, (time.get(name) ?? 0) + (P.time_s[marks.point[m]] || 0)),
  );
  const names = [...time.keys()].sort((a, b) => time.get(b) - time.get(a));
  const places = new Map(names.map((name, place) => [name, Math.min(place, MOST_COLOURS)]));
  marks.names = names.slice(0, MOST_COLOURS);
  if (names.length > MOST_COLOURS) marks.names.push(OTHERS);
  marks.group = marks.group.map((name) => places.get(name));
  marks.maxTime = marks.point.reduce((most, i) => Math.max(most, P.time_s[i] || 0), 0);
}

// The area of a mark grows with its share of the longest time.
function radius(marks, m) {
  const share = marks.maxTime ? (P.time_s[marks.point[m]] || 0) / marks.maxTime : 0;
  return (marks.count > 800 ? 2.2 : 3.4) + 6 * Math.sqrt(share);
}

function tracePath(context, shape, x, y, r) {
  if (shape === 0 || shape > 6) {
    context.moveTo(x + r, y);
    context.arc(x, y, r, 0, 2 * Math.PI);
    return;
  }
  const corners = {
    1: [
      [-1, -1],
      [1, -1],
      [1, 1],
      [-1, 1],
    ],
    2: [
      [0, -1.35],
      [1.35, 0],
      [0, 1.35],
      [-1.35, 0],
    ],
    3: [
      [0, -1.3],
      [1.2, 0.9],
      [-1.2, 0.9],
    ],
    4: [
      [0, 1.3],
      [1.2, -0.9],
      [-1.2, -0.9],
    ],
    5: [
      [-1.3, 0],
      [0.9, -1.2],
      [0.9, 1.2],
    ],
    6: [
      [1.3, 0],
      [-0.9, -1.2],
      [-0.9, 1.2],
    ],
  }[shape];
  corners.forEach(([dx, dy], n) => {
    if (n) context.lineTo(x + 0.9 * r * dx, y + 0.9 * r * dy);
    else context.moveTo(x + 0.9 * r * dx, y + 0.9 * r * dy);
  });
  context.closePath();
}

// Where the marks are in the picture, in pixels.
function placeInPicture(marks, x, y) {
  marks.px = Float64Array.from(marks.x, (value) => x.to(value));
  marks.py = Float64Array.from(marks.y, (value) => y.to(value));
}

function drawMarks(context, frame, x, y, marks) {
  drawJoins(context, frame, marks);
  if (marks.view === VIEWS.times) drawPaths(context, frame, x, y, marks);
  const isSmall = marks.count > 800;
  for (let place = marks.names.length - 1; place >= 0; place -= 1) {
    context.strokeStyle = context.fillStyle = frame.colours.groups[place];
    drawBars(context, frame, x, marks, place);
    for (const isFilled of [false, true]) {
      context.beginPath();
      for (let m = 0; m < marks.count; m += 1) {
        if (marks.group[m] !== place || isFilled !== (P.provenance[marks.point[m]] === "counter"))
          continue;
        tracePath(context, place, marks.px[m], marks.py[m], radius(marks, m));
      }
      context.globalAlpha = isFilled && isSmall ? 0.6 : 1;
      context.lineWidth = isSmall ? 1.1 : 1.7;
      if (isFilled) context.fill();
      else context.stroke();
      context.globalAlpha = 1;
    }
  }
  drawFlags(context, frame, marks);
  drawNames(context, frame, marks);
}

// From the intensity if every operator moves its operands, to that if each tensor moves once.
function drawBars(context, frame, x, marks, place) {
  context.globalAlpha = 0.45;
  context.lineWidth = 1.2;
  context.beginPath();
  for (let m = 0; m < marks.count; m += 1) {
    if (marks.group[m] !== place || !(marks.high[m] > marks.x[m])) continue;
    const end = x.to(marks.high[m]);
    context.moveTo(marks.px[m], marks.py[m]);
    context.lineTo(end, marks.py[m]);
    context.moveTo(end, marks.py[m] - 3);
    context.lineTo(end, marks.py[m] + 3);
  }
  context.stroke();
  context.globalAlpha = 1;
}

function drawJoins(context, frame, marks) {
  if (!marks.view.join) return;
  const paths = Map.groupBy(
    marks.point.map((_, m) => m),
    (m) => marks.view.join(marks.point[m]),
  );
  context.lineWidth = 1.2;
  for (const path of paths.values()) {
    path.sort((a, b) => marks.view.order(marks.point[a]) - marks.view.order(marks.point[b]));
    context.strokeStyle =
      marks.view === VIEWS.training
        ? frame.colours.soft
        : frame.colours.groups[marks.group[path[0]]];
    context.globalAlpha = 0.6;
    context.beginPath();
    path.forEach((m) => context.lineTo(marks.px[m], marks.py[m]));
    context.stroke();
  }
  context.globalAlpha = 1;
}

// From the floor to the measured time, along which both times grow by the same factor.
function drawPaths(context, frame, x, y, marks) {
  context.globalAlpha = 0.5;
  context.lineWidth = 1.2;
  for (let m = 0; m < marks.count; m += 1) {
    const factor = P.time_s[marks.point[m]] / Math.max(marks.x[m], marks.y[m]);
    if (!(factor > 1)) continue;
    const [endX, endY] = [x.to(marks.x[m] * factor), y.to(marks.y[m] * factor)];
    context.strokeStyle = context.fillStyle = frame.colours.groups[marks.group[m]];
    context.beginPath();
    context.moveTo(marks.px[m], marks.py[m]);
    context.lineTo(endX, endY);
    context.stroke();
    context.fillRect(endX - 3, endY - 3, 6, 6);
  }
  context.globalAlpha = 1;
}

function drawFlags(context, frame, marks) {
  context.strokeStyle = frame.colours.warn;
  context.lineWidth = 1.5;
  for (let m = 0; m < marks.count; m += 1) {
    if (!P.flag[marks.point[m]]) continue;
    const r = radius(marks, m) + 4;
    context.beginPath();
    context.arc(marks.px[m], marks.py[m], r, 0, 2 * Math.PI);
    context.stroke();
    drawText(context, frame, "!", marks.px[m] + r + 1, marks.py[m], {
      base: "middle",
      fill: frame.colours.warn,
    });
  }
}

// A grid over the picture: looking up the nearest mark takes as long for 5 marks as for 5,000.
function buildGrid(marks) {
  const cells = new Map();
  for (let m = 0; m < marks.count; m += 1) {
    const key = cellKey(Math.floor(marks.px[m] / CELL), Math.floor(marks.py[m] / CELL));
    if (cells.has(key)) cells.get(key).push(m);
    else cells.set(key, [m]);
  }
  return cells;
}

// Whether any mark is in a box, or touches it.
function hasMark(marks, cells, [left, top, right, bottom]) {
  const cell = (pixel) => Math.floor(pixel / CELL);
  for (let c = cell(left - CELL); c <= cell(right + CELL); c += 1)
    for (let r = cell(top - CELL); r <= cell(bottom + CELL); r += 1)
      for (const m of cells.get(cellKey(c, r)) ?? []) {
        const [x, y] = [marks.px[m], marks.py[m]];
        const away = Math.hypot(
          x - Math.min(Math.max(x, left), right),
          y - Math.min(Math.max(y, top), bottom),
        );
        if (away < radius(marks, m) + 1) return true;
      }
  return false;
}

function cellKey(column, row) {
  return column * 65536 + row;
}

function nearest(marks, cells, x, y, reach) {
  let best = null;
  let bestDistance = reach;
  const around = Math.ceil(reach / CELL);
  const [column, row] = [Math.floor(x / CELL), Math.floor(y / CELL)];
  for (let c = column - around; c <= column + around; c += 1) {
    for (let r = row - around; r <= row + around; r += 1) {
      for (const m of cells.get(cellKey(c, r)) ?? []) {
        const distance = Math.hypot(marks.px[m] - x, marks.py[m] - y);
        if (distance < bestDistance) [best, bestDistance] = [m, distance];
      }
    }
  }
  return best;
}
