// A part for each sweep: curves against what was swept, and a table of all its cases.

const SWEPT = [
  { label: "time of a step", unit: "per step", value: (run) => R.step_s[run], form: formatTime },
  {
    label: "throughput",
    unit: "samples/s",
    value: (run) => R.samples_per_s[run],
    form: (value) => si(value),
  },
  {
    label: "energy",
    unit: "J/sample",
    value: (run) => R.sample_j[run],
    form: (value) => si(value, "J"),
  },
];

function startSweeps() {
  const host = byId("sweeps-body");
  if (host) DATA.sweeps.forEach((sweep) => host.append(sweepPart(sweep)));
}

function sweepPart(sweep) {
  const part = make("article", { class: "sweep" }, make("h3", {}, sweep.name));
  part.append(
    make("p", { class: "where" }, sweep.stages.map(describeStage).join(" ")),
    make("p", { class: "note" }, sweep.devices.map(describeDevice).join("; ")),
    ...sweep.notes.map((note) => make("p", { class: "note flag" }, note)),
  );
  const known = SWEPT.filter(({ value }) => sweep.run.some((run) => run >= 0 && value(run) > 0));
  drawSweep(part, sweep, known);
  sweepTable(part, sweep, known);
  return part;
}

function describeStage({ stage, cases, done, failed, not_run }) {
  const rest = [failed ? `${failed} failed` : "", not_run ? `${not_run} not run yet` : ""];
  return [`Stage ${stage}: ${done} of ${cases} done`, ...rest].filter(Boolean).join(", ") + ".";
}

function describeDevice({ node, device, uuid, cases }) {
  const where = [device || "a device without a name", uuid].filter(Boolean).join(" ");
  return `${cases} ${cases === 1 ? "result" : "results"} of ${where}${node ? ` on ${node}` : ""}`;
}

function drawSweep(part, sweep, known) {
  const charts = sweep.charts.slice(0, MOST_CHARTS);
  if (!charts.length || !known.length) {
    const why = "No setting was swept over several numbers, so there is no curve to draw.";
    part.append(make("p", { class: "note" }, why));
    return;
  }
  const drawn = charts.flatMap((one) => known.map((quantity) => sweepChart(sweep, one, quantity)));
  part.append(make("div", { class: "charts" }, drawn));
  if (sweep.charts.length > MOST_CHARTS) {
    const text = `The first ${MOST_CHARTS} of ${sweep.charts.length} are drawn; the table has all.`;
    part.append(make("p", { class: "note" }, text));
  }
}

function sweepChart(sweep, { title, curves }, quantity) {
  const places = new Map();
  const lost = [];
  const series = curves.map(({ name, cases }, place) => {
    for (const [at, one] of cases) {
      const level = lost.filter((other) => other.at === at).length;
      if (sweep.run[one] >= 0) places.set(sweep.run[one], at);
      else lost.push({ at, place, level, text: describeCase(sweep, one) });
    }
    const runs = cases.map(([, one]) => sweep.run[one]);
    return [name, runs.filter((run) => run >= 0 && quantity.value(run) > 0)];
  });
  return chart(
    { title: [title, quantity.label].filter(Boolean).join(": "), series },
    {
      label: quantity.label,
      unit: quantity.unit,
      axis: sweep.swept,
      word: sweep.swept,
      value: quantity.value,
      at: (run) => places.get(run),
      tick: (value) => shortly(quantity.form(value)),
      text: (run) => quantity.form(quantity.value(run)),
      name: (label) => label,
      lost,
    },
  );
}

function describeCase(sweep, one) {
  const [name, status, reason] = ["title", "status", "reason"].map((key) => WORDS[sweep[key][one]]);
  return `${name}\n${status}${reason ? `: ${reason}` : ""}`;
}

function sweepTable(part, sweep, known) {
  const word = (key) => (row) => WORDS[sweep[key][row.one]];
  const column = (key, label, of, more = {}) => ({ key, label, value: of, text: of, ...more });
  const hasReason = sweep.reason.some((place) => WORDS[place]);
  const measured = known.map(({ label, unit, value, form }) => {
    const of = ({ one }) => (sweep.run[one] >= 0 ? value(sweep.run[one]) : NaN);
    const source = ["measured", ({ one }) => runSource(sweep.run[one])];
    const heading = unit === "per step" ? "Step" : unit[0].toUpperCase() + unit.slice(1);
    return { key: label, label: heading, n: true, value: of, text: (row) => form(of(row)), source };
  });
  const settings = sweep.settings.map(({ name, text }) => {
    const of = ({ one }) => WORDS[text[one]];
    const isNumber = text.every((place) => Number.isFinite(Number(WORDS[place])));
    const value = isNumber ? (row) => Number(of(row)) : of;
    const heading = name[0].toUpperCase() + name.slice(1);
    return { ...column(name, heading, of), value, n: isNumber };
  });
  makeTable(part, {
    caption: `Cases of the sweep ${sweep.name}`,
    rows: Array.from({ length: sweep.count }, (_, one) => ({ one })),
    search: "model, status, reason, node",
    columns: [
      ...(settings.length ? settings : [column("title", "Case", word("title"))]),
      column("status", "Status", word("status"), {
        node: ({ one }) =>
          make("span", { class: sweep.run[one] >= 0 ? null : "flag" }, WORDS[sweep.status[one]]),
      }),
      ...measured,
      ...(sweep.stages.length > 1 ? [column("stages", "Stage", word("of_stages"))] : []),
      column("node", "Node", word("node")),
      {
        ...column("device", "Device", word("device")),
        source: ["measured", ({ one }) => WORDS[sweep.device_uuid[one]] || "no UUID is known"],
      },
      ...(hasReason ? [column("reason", "Reason", word("reason"), { wide: true })] : []),
    ],
  });
}
