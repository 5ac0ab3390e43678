// Logarithmic axes on a canvas. A span is a pair of exponents of ten.

function makeScale([low, high], [start, end]) {
  const factor = (end - start) / (high - low);
  return {
    span: [low, high],
    to: (value) => start + (Math.log10(value) - low) * factor,
    from: (pixel) => 10 ** (low + (pixel - start) / factor),
    perDecade: Math.abs(factor),
  };
}

// The exponents that hold all values, with some room; a single value gets a decade around it.
function spanOf(values, room = 0.25) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!(value > 0) || !Number.isFinite(value)) continue;
    const exponent = Math.log10(value);
    low = Math.min(low, exponent);
    high = Math.max(high, exponent);
  }
  if (low > high) return [-1, 3];
  const missing = Math.max(0, 1 - (high - low)) / 2;
  return [low - missing - room, high + missing + room];
}

// Powers of ten, and 2 and 5 between them where there is room for their labels.
function ticks(scale, gap) {
  const [low, high] = scale.span;
  const stride = Math.max(1, Math.ceil(gap / scale.perDecade));
  const between = scale.perDecade > 3.2 * gap ? [1, 2, 5] : [1];
  const found = [];
  for (let e = Math.floor(low / stride) * stride; e <= Math.ceil(high); e += stride) {
    for (const digit of between) {
      const value = Number(`${digit}e${e}`);
      const at = Math.log10(value);
      if (at >= low && at <= high) found.push(value);
    }
  }
  return found;
}

function drawAxes(context, frame, x, y, axes) {
  context.lineWidth = 1;
  context.font = frame.font;
  context.textBaseline = "top";
  context.textAlign = "center";
  for (const value of ticks(x, 62)) {
    drawTick(context, frame, [x.to(value), frame.top, x.to(value), frame.bottom]);
    context.fillText(axes.xTick(value), x.to(value), frame.bottom + 7);
  }
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of ticks(y, 34)) {
    drawTick(context, frame, [frame.left, y.to(value), frame.right, y.to(value)]);
    context.fillText(axes.yTick(value), frame.left - 7, y.to(value));
  }
  context.textAlign = "right";
  context.textBaseline = "alphabetic";
  context.fillText(axes.xLabel, frame.right, frame.bottom + 36);
  context.textAlign = "left";
  context.fillText(axes.yLabel, 10, 16);
}

function drawTick(context, frame, [x0, y0, x1, y1]) {
  context.strokeStyle = frame.colours.grid;
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
  context.fillStyle = frame.colours.soft;
}

// Text with the background's colour around it, so that it can be read on lines and points.
function drawText(
  context,
  frame,
  text,
  x,
  y,
  { align = "left", base = "alphabetic", fill, angle = 0 } = {},
) {
  context.save();
  context.translate(x, y);
  context.rotate(angle);
  context.textAlign = align;
  context.textBaseline = base;
  context.lineWidth = 4;
  context.lineJoin = "round";
  context.strokeStyle = frame.colours.paper;
  context.strokeText(text, 0, 0);
  context.fillStyle = fill ?? frame.colours.ink;
  context.fillText(text, 0, 0);
  context.restore();
}
