// The sections about whole runs: throughput, energy.

const ALL_RUNS = Array.from({ length: R.measured }, (_, run) => run);
const NO_RUN = R.count ? "No run was timed here." : "There is no run.";

function runWord(key, label, of, more = {}) {
  return { key, label, value: ({ run }) => of(run), text: ({ run }) => of(run), ...more };
}

function runNumber(key, label, of, format, source = ["measured", ({ run }) => runSource(run)]) {
  return {
    key,
    label,
    n: true,
    value: ({ run }) => of(run),
    text: ({ run }) => format(of(run)),
    source,
  };
}

function configurationColumns() {
  return [
    runWord("configuration", "Configuration", configuration, { wide: true }),
    runWord("machine", "Machine", machineTitle),
    { ...runNumber("batch", "Batch", (run) => R.batch[run], String), source: undefined },
  ];
}

// ---- throughput

function startThroughput() {
  const host = byId("throughput-body");
  if (!R.measured) return host.append(make("p", { class: "empty" }, NO_RUN));
  drawCharts(host, ALL_RUNS, {
    label: "samples per second",
    unit: "samples/s",
    value: (run) => R.samples_per_s[run],
    tick: (value) => shortly(si(value)),
    low: (run) => (R.samples_per_s[run] * R.step_s[run]) / R.step_high_s[run],
    high: (run) => (R.samples_per_s[run] * R.step_s[run]) / R.step_low_s[run],
    text: (run) => `${si(R.samples_per_s[run])} samples/s`,
  });
  const smallest = smallestBatches();
  const floor = (run) => P.floor_s[STEP_OF_RUN.get(run)] ?? NaN;
  const derived = [
    "derived",
    ({ run }) => (STEP_OF_RUN.has(run) ? floorSource(STEP_OF_RUN.get(run)) : runSource(run)),
  ];
  makeTable(host, {
    caption: "Throughput of every run",
    rows: ALL_RUNS.map((run) => ({ run, label: R.name[run] })),
    search: "model, machine, setting",
    columns: [
      ...configurationColumns(),
      runNumber(
        "rate",
        "Samples/s",
        (run) => R.samples_per_s[run],
        (value) => si(value),
      ),
      runNumber("step", "Step", (run) => R.step_s[run], formatTime),
      runNumber(
        "spread",
        "95 % interval",
        (run) => (R.step_high_s[run] - R.step_low_s[run]) / R.step_s[run] / 2,
        (value) => (isKnown(value) ? `± ${formatPercent(value)}` : UNKNOWN),
      ),
      runNumber("floor", "Floor", floor, formatTime, derived),
      runNumber(
        "efficiency",
        "Efficiency",
        (run) => floor(run) / R.step_s[run],
        formatPercent,
        derived,
      ),
      runWord("bound", "Bound", (run) =>
        STEP_OF_RUN.has(run) ? BOUND_WORDS[P.bound[STEP_OF_RUN.get(run)]] : "",
      ),
      runNumber(
        "scaling",
        "Scaling",
        (run) => R.samples_per_s[run] / R.samples_per_s[smallest.get(run)],
        (value) => (isKnown(value) ? `${formatRatio(value)} ×` : UNKNOWN),
      ),
      runNumber(
        "memory",
        "Peak memory",
        (run) => R.memory_bytes[run],
        (value) => si(value, "B"),
      ),
    ],
  });
  return undefined;
}

// For each run with a larger batch, the run of its configuration with the smallest.
function smallestBatches() {
  const found = new Map();
  for (const members of Map.groupBy(
    ALL_RUNS,
    (run) => `${machineTitle(run)} ${configuration(run)}`,
  ).values()) {
    const least = members.reduce((a, b) => (R.batch[b] < R.batch[a] ? b : a));
    members.filter((run) => R.batch[run] > R.batch[least]).forEach((run) => found.set(run, least));
  }
  return found;
}

// ---- energy

function startEnergy() {
  const host = byId("energy-body");
  if (!R.measured) {
    const why = R.count ? " A capture does not tell the joules of its kernels." : "";
    return host.append(make("p", { class: "empty" }, NO_RUN + why));
  }
  const metered = ALL_RUNS.filter((run) => isKnown(R.step_j[run]));
  if (metered.length) {
    drawCharts(host, metered, {
      label: "joules per sample",
      unit: "J/sample",
      value: (run) => R.sample_j[run],
      tick: (value) => shortly(si(value, "J")),
      text: (run) => `${si(R.sample_j[run], "J")} per sample`,
    });
    const joules = (value) => si(value, "J");
    const watts = (value) => si(value, "W");
    makeTable(host, {
      caption: "Energy of every run with a meter",
      rows: metered.map((run) => ({ run, label: R.name[run] })),
      search: "model, machine, meter",
      columns: [
        ...configurationColumns(),
        runNumber("sample", "J/sample", (run) => R.sample_j[run], joules),
        runNumber("stepj", "J/step", (run) => R.step_j[run], joules),
        runNumber("power", "Mean power", (run) => R.power_w[run], watts),
        runNumber("idle", "Idle", (run) => R.idle_w[run], watts),
        runNumber(
          "perjoule",
          "Model FLOPs per joule",
          (run) => R.flops[run] / R.step_j[run],
          (value) => si(value, "FLOP/J"),
        ),
        runWord("meter", "Meter", (run) => R.meter[run]),
      ],
    });
  }
  sayWhyNoEnergy(
    host,
    ALL_RUNS.filter((run) => !isKnown(R.step_j[run])),
  );
  return undefined;
}

function sayWhyNoEnergy(host, runs) {
  if (!runs.length) return;
  const reasons = Map.groupBy(runs, (run) => R.no_energy[run] || "energy was not asked for");
  const items = [...reasons].map(([reason, members]) =>
    make(
      "li",
      { class: "lines" },
      `${reason} (${members.length} ${members.length === 1 ? "run" : "runs"} on ${[...new Set(members.map(machineTitle))].join(", ")})`,
    ),
  );
  host.append(
    make(
      "p",
      { class: "note" },
      `${runs.length} of ${R.measured} runs have no energy. None is made up from load or a power limit.`,
    ),
    make("ul", { class: "note" }, items),
  );
}
