// The roofs: slopes of memory levels up to their ridges, flat roofs of precisions beyond them.

const MOST_ROOF_NAMES = 3; // on one line
const LABEL_STEP = 18; // pixels by which a label is moved until nothing is in its way

// What to draw for the machines in `shown`: Map of machine number → Set of roof names in use.
function roofLines(shown, { levels, isAll, hasSheet }) {
  const lines = [];
  for (const [number, used] of shown) {
    const machine = MACHINES[number];
    if (!machine) continue;
    const wanted = (name) => isAll || used.has(name);
    lines.push(...linesOf(machine, machine, machine.source, { number, levels, wanted }));
    if (hasSheet && machine.datasheet) {
      lines.push(...linesOf(machine, machine.datasheet, "datasheet", { number, levels, wanted }));
    }
  }
  return lines;
}

function linesOf(machine, roofs, source, { number, levels, wanted }) {
  const compute = Object.entries(roofs.compute).filter(([name]) => wanted(name));
  const memory = levels.filter((level) => roofs.bandwidth[level]);
  const common = { machine, number, source };
  const top = Math.max(0, ...compute.map(([, rate]) => rate));
  const fastest = Math.max(0, ...memory.map((level) => roofs.bandwidth[level]));
  const flats = compute.map(([name, rate]) => ({
    ...common,
    isFlat: true,
    name,
    rate,
    from: fastest ? rate / fastest : 0,
    ridge: roofs.bandwidth.dram && source !== "datasheet" ? rate / roofs.bandwidth.dram : NaN,
  }));
  const slopes = memory.map((level) => ({
    ...common,
    isFlat: false,
    name: level.toUpperCase(),
    rate: roofs.bandwidth[level],
    to: top ? top / roofs.bandwidth[level] : Infinity,
  }));
  return [...slopes, ...flats];
}

// Roofs in the same place share a label: `fp16, bf16 matrix 989 TFLOP/s`.
function roofLabel(lines, isNamed) {
  const [{ rate, source }] = lines;
  const unit = ({ isFlat, name }) => (isFlat ? `${workUnit(name)}/s` : "B/s");
  const told = [...Map.groupBy(lines, unit)].map(
    ([of, same]) => `${roofNames(same)} ${si(rate, of)}`,
  );
  const machines = [...new Set(lines.map(({ machine }) => machine.title))];
  const whose = isNamed && machines.length === 1 ? `${machines[0]}: ` : "";
  const from = source === "measured" ? "" : `, ${source}`;
  return `${whose}${told.join(", ")}${from}`;
}

function roofNames(lines) {
  const names = [...new Set(lines.map(({ name }) => name))];
  if (names.length > MOST_ROOF_NAMES) return `${names[0]} and ${names.length - 1} more`;
  const paths = Map.groupBy(names, (name) => name.split(" ")[1] ?? "");
  const precisions = (of) => of.map((name) => name.split(" ")[0]).join(", ");
  return [...paths].map(([path, of]) => `${precisions(of)} ${path}`.trimEnd()).join(", ");
}

// Labels of lines that lie on each other as one; of machines, where the user gave them one roof.
function sharedLabels(labels) {
  const place = ({ line }) => {
    const whose = line.source === "given" ? "" : line.number;
    return [line.isFlat, si(line.rate), line.source, whose].join(" ");
  };
  return [...Map.groupBy(labels, place).values()].map((same) => ({
    ...same[0],
    lines: same.map(({ line }) => line),
  }));
}

function drawRoofs(context, frame, x, y, lines, colourOf) {
  const isWide = frame.width > 600; // else colours and the legend say whose roofs they are
  const isNamed = isWide && new Set(lines.map((line) => line.number)).size > 1;
  const labels = [];
  for (const line of lines) {
    context.strokeStyle = colourOf(line);
    context.globalAlpha = line.source === "datasheet" ? 0.7 : 1;
    context.lineWidth = line.source === "datasheet" ? 1.1 : 1.7;
    context.setLineDash(line.source === "datasheet" ? [6, 4] : []);
    context.beginPath();
    if (line.isFlat) labels.push(traceFlat(context, frame, x, y, line));
    else labels.push(traceSlope(context, frame, x, y, line));
    context.stroke();
  }
  context.setLineDash([]);
  context.globalAlpha = 1;
  drawRidges(context, frame, x, y, lines, colourOf);
  drawRoofLabels(context, frame, labels.filter(Boolean), { isNamed, colourOf });
}

function traceFlat(context, frame, x, y, line) {
  const start = Math.max(frame.left, line.from > 0 ? x.to(line.from) : frame.left);
  const height = y.to(line.rate);
  context.moveTo(start, height);
  context.lineTo(Math.max(start, frame.right), height);
  const isSeen = height > frame.top - 2 && height < frame.bottom && start < frame.right;
  return isSeen ? { line, y: height, from: start } : null;
}

// On logarithmic axes a slope is straight; the ridge is its end, never a point beyond it.
function traceSlope(context, frame, x, y, line) {
  const low = 10 ** Math.min(x.span[0], Math.log10(line.to) - 1);
  const high = Math.min(line.to, 10 ** x.span[1]);
  context.moveTo(x.to(low), y.to(line.rate * low));
  context.lineTo(x.to(high), y.to(line.rate * high));
  // the label goes where the slope enters the frame
  const enters = Math.max(10 ** x.span[0], 10 ** y.span[0] / line.rate);
  const from = enters * 10 ** (26 / x.perDecade);
  const isSeen = from < high && x.to(from) < frame.right - 60 && y.to(line.rate * from) > frame.top;
  const angle = -Math.atan2(y.perDecade, x.perDecade);
  const end = x.to(high);
  return isSeen ? { line, x: x.to(from), y: y.to(line.rate * from), angle, end } : null;
}

function drawRidges(context, frame, x, y, lines, colourOf) {
  let last = -Infinity;
  const labels = [];
  const ridges = lines.filter((line) => line.isFlat && line.ridge > 0);
  for (const line of ridges.sort((a, b) => a.ridge - b.ridge)) {
    const at = x.to(line.ridge);
    const height = y.to(line.rate);
    if (at < frame.left || at > frame.right || height > frame.bottom) continue;
    context.strokeStyle = context.fillStyle = colourOf(line);
    context.beginPath();
    context.arc(at, height, 3.5, 0, 2 * Math.PI);
    context.fill();
    context.setLineDash([1, 4]);
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(at, height);
    context.lineTo(at, frame.bottom);
    context.stroke();
    context.setLineDash([]);
    if (at - last < 74) continue; // two numbers in one place can be read by nobody
    const box = [at - 34, frame.bottom - 18, at + 34, frame.bottom - 3];
    if (hasMark(plot.marks, plot.cells, box)) continue;
    labels.push([`ridge ${formatRatio(line.ridge)}`, at]);
    last = at;
  }
  for (const [text, at] of labels) {
    drawText(context, frame, text, at, frame.bottom - 6, {
      align: "center",
      fill: frame.colours.soft,
    });
  }
}

// The first place along a slope where no point and no other label is in the way.
function freeAlong({ x, y, angle, end }, width, taken) {
  const length = (end - x) / Math.cos(angle);
  for (let far = 0; far === 0 || far + width < length; far += LABEL_STEP) {
    const [left, base] = [x + far * Math.cos(angle), y + far * Math.sin(angle) - 5];
    const boxes = boxesAlong(left, base, angle, width);
    const isFree = (box) =>
      !taken.some((other) => doOverlap(box, other)) && !hasMark(plot.marks, plot.cells, box);
    if (boxes.every(isFree)) return { left, base, boxes };
  }
  return null;
}

function drawRoofLabels(context, frame, labels, { isNamed, colourOf }) {
  const shared = sharedLabels(labels.sort((a, b) => a.y - b.y));
  const slopes = shared.filter(({ line }) => !line.isFlat);
  const taken = [];
  plot.roofLabels = [];
  for (const label of slopes) {
    const text = roofLabel(label.lines, isNamed);
    const place = freeAlong(label, context.measureText(text).width, taken);
    if (!place) plot.roofLabels.push({ text, box: null });
    if (!place) continue;
    taken.push(...place.boxes);
    const looks = { fill: colourOf(label.line), angle: label.angle };
    drawText(context, frame, text, place.left, place.base, looks);
  }
  plot.slopeBoxes = [...taken];
  for (const label of shared.filter(({ line }) => line.isFlat)) {
    const text = roofLabel(label.lines, isNamed);
    const box = freeBox(frame, label, context.measureText(text).width, taken);
    plot.roofLabels.push({ text, box });
    if (!box) continue;
    taken.push(box);
    const looks = { align: "right", fill: colourOf(label.line) };
    drawText(context, frame, text, box[2], box[3] - 3, looks);
  }
}

// Small boxes that cover a slanted text.
function boxesAlong(x, y, angle, length) {
  const steps = Array.from({ length: Math.ceil(length / 10) }, (_, n) => 10 * n);
  return steps.map((far) => {
    const [left, base] = [x + far * Math.cos(angle), y + far * Math.sin(angle)];
    return [left - 4, base - 14, left + 12, base + 4];
  });
}

// Where no point and no other label is in the way: above or below the line, as far to the right as
// can be, or before its ridge, where no work can be.
function freeBox(frame, { y, from }, width, taken) {
  const spots = [];
  for (let right = frame.right - 8; right - width >= from; right -= LABEL_STEP)
    spots.push([right, y - 5], [right, y + 14]);
  spots.push([from - 10, y + 4]);
  const boxes = spots.map(([right, base]) => [right - width, base - 11, right, base + 3]);
  return boxes.find((box) => {
    const isInside = box[0] > frame.left && box[1] > frame.top - 8 && box[3] < frame.bottom;
    const isTaken = taken.some((other) => doOverlap(box, other));
    return isInside && !isTaken && !hasMark(plot.marks, plot.cells, box);
  });
}

function doOverlap(a, b) {
  return a[0] < b[2] && a[2] > b[0] && a[1] < b[3] && a[3] > b[1];
}

// The names of roofs that found no room in the figure stand below it.
function sayUnnamedRoofs() {
  const names = plot.roofLabels.filter(({ box }) => !box);
  const text = names.map((label) => label.text).join("; ");
  byId("roof-note").textContent = text && `Roofs without room for their names: ${text}.`;
}

// Time against floor: the diagonal is the roof, its parallels are shares of it.
function drawDiagonals(context, frame, x, y, { shares, text }) {
  for (const share of shares) {
    const [low, high] = [10 ** (x.span[0] - 1), 10 ** (x.span[1] + 1)];
    context.strokeStyle = share === 1 ? frame.colours.roof : frame.colours.soft;
    context.lineWidth = share === 1 ? 1.8 : 0.8;
    context.setLineDash(share === 1 ? [] : [4, 4]);
    context.beginPath();
    context.moveTo(x.to(low), y.to(low / share));
    context.lineTo(x.to(high), y.to(high / share));
    context.stroke();
    const at = Math.min(10 ** x.span[1], 10 ** y.span[1] * share) * 10 ** (-90 / x.perDecade);
    const angle = -Math.atan2(y.perDecade, x.perDecade);
    if (x.to(at) > frame.left)
      drawText(context, frame, text(share), x.to(at), y.to(at / share) - 5, {
        angle,
        fill: frame.colours.soft,
      });
  }
  context.setLineDash([]);
}
