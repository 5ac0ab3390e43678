// Names beside the marks of a figure.

const FEW = 40; // marks that can have their names beside them
const MOST_NAMED = 8; // of the longest, where a view names no other marks
const MOST_LETTERS = 28; // of a name in a figure

// Names beside the marks that take longest; one that would cover a mark or a text is left out.
function drawNames(context, frame, marks) {
  const isAll = marks.view.name && marks.count <= FEW;
  const byTime = marks.point
    .map((_, m) => m)
    .filter((m) => isInFrame(frame, marks.px[m], marks.py[m]))
    .sort((a, b) => P.time_s[marks.point[b]] - P.time_s[marks.point[a]]);
  const named = new Set();
  plot.names = [];
  for (const m of byTime) {
    const i = marks.point[m];
    const text = (marks.view.name ?? pointName)(i);
    if (named.has(i) || !text) continue; // by memory level a point has several marks
    const box = freeNameBox(frame, marks, m, context.measureText(text).width);
    if (!box) continue;
    named.add(i);
    plot.names.push({ text, box });
    drawText(context, frame, text, box[0], box[1], { base: "top" });
    if (!isAll && named.size === MOST_NAMED) return;
  }
}

// A step by its model and batch, a part of it by its name; of a long name the end.
function pointName(i) {
  const run = P.run[i];
  const isWhole = P.grain[i] === "step" || P.grain[i] === "capture";
  const batch = isKnown(R.batch[run]) ? `, ${R.batch[run]}` : "";
  const name = isWhole ? `${R.model[run]}${batch}` : P.name[i] || P.phase[i];
  return name.length > MOST_LETTERS ? `…${name.slice(1 - MOST_LETTERS)}` : name;
}

function isInFrame(frame, x, y) {
  return x >= frame.left && x <= frame.right && y >= frame.top && y <= frame.bottom;
}

// Beside a mark, where nothing else is; first above its bar, which leads to the right.
function freeNameBox(frame, marks, m, width) {
  const [x, y, away] = [marks.px[m], marks.py[m], radius(marks, m) + 5];
  const spots = [
    [x + away, y - 18],
    [x - away - width, y - 7],
    [x + away, y - 7],
    [x - width / 2, y - away - 13],
    [x - width / 2, y + away],
    [x - away - width, y - 18],
    [x + away, y + 5],
  ];
  const texts = [...plot.roofLabels, ...plot.names].map(({ box }) => box);
  const taken = [...plot.slopeBoxes, ...texts];
  return spots
    .map(([left, top]) => [left, top, left + width, top + 13])
    .find(
      (box) =>
        isInFrame(frame, box[0], box[1]) &&
        isInFrame(frame, box[2], box[3]) &&
        !taken.some((other) => other && doOverlap(box, other)) &&
        !hasMark(marks, plot.cells, box),
    );
}
