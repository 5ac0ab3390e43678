// Small figures against a setting, as SVG: few points, so each can carry its own provenance.
// Options: value, text, low and high of a run; at: its place on the axis, which is of a quantity
// (axis, or in short word); name of a line of runs;
// lost: cases without a run, as { at, place, level, text }.

const MOST_CHARTS = 12;
const AGAINST_BATCH = {
  axis: "batch size",
  word: "batch",
  at: (run) => R.batch[run],
  name: (_, [run]) => [R.precision[run], R.setting[run]].filter(Boolean).join(", "),
};
const MOST_SERIES = 2 * MOST_COLOURS;
const CHART = { width: 340, height: 190, left: 52, right: 10, top: 20, bottom: 30 };

// Runs by machine, model and mode; inside, by configuration. Single dots say nothing about scaling.
function chartGroups(runs, value) {
  const known = runs.filter((run) => isKnown(value(run)));
  const groups = Map.groupBy(
    known,
    (run) => `${R.model[run]} ${modeWord(run)}, ${machineTitle(run)}`,
  );
  const found = [];
  for (const [title, members] of groups) {
    const series = [...Map.groupBy(members, configuration)];
    const batches = ([, of]) => new Set(of.map((run) => R.batch[run])).size;
    if (series.some((one) => batches(one) > 1)) found.push({ title, series });
  }
  return found;
}

function drawCharts(host, runs, options) {
  const groups = chartGroups(runs, options.value);
  const box = make(
    "div",
    { class: "charts" },
    groups.slice(0, MOST_CHARTS).map((group) => chart(group, { ...AGAINST_BATCH, ...options })),
  );
  host.append(
    groups.length
      ? box
      : make(
          "p",
          { class: "note" },
          "No configuration was run at several batch sizes, so there is no curve to draw.",
        ),
  );
  if (groups.length > MOST_CHARTS) {
    host.append(
      make(
        "p",
        { class: "note" },
        `The first ${MOST_CHARTS} of ${groups.length} are drawn; the table has all.`,
      ),
    );
  }
}

function chart({ title, series }, options) {
  const runs = series.flatMap(([, members]) => members);
  const lost = options.lost ?? [];
  const batches = [...new Set([...runs.map(options.at), ...lost.map(({ at }) => at)])].sort(
    (a, b) => a - b,
  );
  const top = 1.08 * Math.max(...runs.map((run) => options.high?.(run) || options.value(run)));
  const span = Math.log(batches.at(-1) / batches[0]) || 1;
  const width = CHART.width - CHART.left - CHART.right;
  const height = CHART.height - CHART.top - CHART.bottom;
  const x = (batch) => CHART.left + 8 + ((width - 16) * Math.log(batch / batches[0])) / span;
  const y = (value) => CHART.top + height * (1 - value / top);
  const parts = series
    .slice(0, MOST_SERIES)
    .map(([, members], place) => curve(members, place, x, y, options));
  const svg = makeSvg(
    "svg",
    {
      class: "draw",
      viewBox: `0 0 ${CHART.width} ${CHART.height}`,
      role: "group",
      "aria-label": `${options.label} against ${options.axis}, ${title}`,
    },
    chartAxes(batches, top, x, y, options),
    parts,
    lost.filter(({ place }) => place < MOST_SERIES).map((one) => lostMark(one, x(one.at))),
  );
  const names = series
    .slice(0, MOST_SERIES)
    .map(([label, members], place) =>
      make("li", {}, lineSwatch(place), options.name(label, members)),
    );
  return make(
    "figure",
    { class: "chart" },
    make("figcaption", {}, title),
    svg,
    make("ul", { class: "legend" }, names),
  );
}

// Colours once more with dashes, where there are more lines than colours.
function seriesClass(place) {
  return `k${place % MOST_COLOURS}${place >= MOST_COLOURS ? " again" : ""}`;
}

function lineSwatch(place) {
  const line = makeSvg("path", { class: "line", d: "M0 7h20" });
  const dot = makeSvg("circle", { class: "dot", cx: 10, cy: 7, r: 3.5 });
  const box = { class: `${seriesClass(place)} sample`, viewBox: "0 0 20 14", "aria-hidden": "true" };
  return makeSvg("svg", box, line, dot);
}

function chartAxes(batches, top, x, y, options) {
  const parts = [];
  for (const value of niceSteps(top)) {
    parts.push(
      makeSvg("line", {
        class: "axis",
        x1: CHART.left,
        x2: CHART.width - CHART.right,
        y1: y(value),
        y2: y(value),
      }),
    );
    parts.push(
      makeSvg(
        "text",
        { x: CHART.left - 6, y: y(value) + 4, "text-anchor": "end" },
        options.tick(value),
      ),
    );
  }
  let last = -Infinity;
  for (const batch of batches) {
    if (x(batch) - last < 26) continue;
    last = x(batch);
    parts.push(
      makeSvg("text", { x: last, y: CHART.height - 14, "text-anchor": "middle" }, String(batch)),
    );
  }
  parts.push(
    makeSvg(
      "text",
      { x: CHART.width - CHART.right, y: CHART.height - 2, "text-anchor": "end" },
      options.axis,
    ),
    makeSvg("text", { x: 0, y: 10 }, options.unit),
  );
  return parts;
}

// A cross on the axis, where a case has no run; above others at the same place.
function lostMark({ place, level, text }, x) {
  const y = CHART.height - CHART.bottom - 9 * level;
  const mark = makeSvg("path", {
    class: "lost",
    d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8`,
    tabindex: "0",
    role: "img",
    "aria-label": text,
  });
  return makeSvg("g", { class: seriesClass(place) }, withSource(mark, "measured", () => text));
}

function niceSteps(top) {
  const raw = top / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const stride = [1, 2, 2.5, 5, 10].map((digit) => digit * power).find((size) => size >= raw);
  return Array.from({ length: Math.floor(top / stride) + 1 }, (_, n) => n * stride);
}

function curve(members, place, x, y, options) {
  const runs = [...members].sort((a, b) => options.at(a) - options.at(b));
  const points = runs.map((run) => `${x(options.at(run))},${y(options.value(run))}`);
  const shapes = [makeSvg("polyline", { class: "line", points: points.join(" ") })];
  for (const run of runs) {
    const [at, low, high] = [x(options.at(run)), options.low?.(run), options.high?.(run)];
    if (low > 0 && high > 0)
      shapes.push(
        makeSvg("path", { class: "spread", d: `M${at - 4} ${y(low)}h8m-4 0V${y(high)}m-4 0h8` }),
      );
    const dot = makeSvg("circle", {
      class: "dot",
      cx: at,
      cy: y(options.value(run)),
      r: 4,
      tabindex: "0",
      role: "img",
      "aria-label": `${options.word} ${options.at(run)}: ${options.text(run)}`,
    });
    shapes.push(
      withSource(
        dot,
        "measured",
        () => `${options.word} ${options.at(run)}: ${options.text(run)}\n${runSource(run)}`,
      ),
    );
  }
  return makeSvg("g", { class: seriesClass(place) }, shapes);
}
