// The payload, unpacked: columns of numbers (NaN where unknown) and of words.

const DATA = JSON.parse(document.getElementById("data").textContent);
const WORDS = DATA.words;
const MACHINES = DATA.machines;
const LEVELS = ["dram", "l3", "l2", "l1"];
const BOUND_WORDS = {
  compute: "arithmetic",
  dram: "DRAM",
  l3: "L3 cache",
  l2: "L2 cache",
  l1: "L1 cache",
  launch: "launches",
  "": "not known",
};

function numberColumn(values, count) {
  const column = new Float64Array(count).fill(NaN);
  if (values)
    values.forEach((value, i) => {
      if (value !== null) column[i] = value;
    });
  return column;
}

function wordColumn(places, count) {
  return places ? places.map((place) => WORDS[place]) : new Array(count).fill("");
}

function unpack(packed, numbers, words) {
  const table = { count: packed.count };
  for (const name of numbers) table[name] = numberColumn(packed[name], packed.count);
  for (const name of words) table[name] = wordColumn(packed[name], packed.count);
  return table;
}

// A row per run, and after the measured ones a row per imported capture.
const R = unpack(
  DATA.runs,
  [
    "batch",
    "samples_per_s",
    "step_s",
    "step_low_s",
    "step_high_s",
    "step_std_s",
    "clock_hz",
    "temperature_c",
    "step_j",
    "sample_j",
    "power_w",
    "idle_w",
    "memory_bytes",
    "flops",
    "iters",
  ],
  [
    "id",
    "model",
    "mode",
    "precision",
    "time",
    "host",
    "limits",
    "meter",
    "count_id",
    "label",
    "status",
    "command",
    "versions",
    "warnings",
    "no_energy",
    "setting",
    "flags",
    "files",
    "device",
  ],
);
R.measured = DATA.runs.measured;
R.machine = DATA.runs.machine ?? [];
R.roofs = (DATA.runs.roofs ?? []).map((places) => places.map((place) => WORDS[place]));
R.name = runNames();

// A row per point: a step, phase, layer, kernel, or a whole capture.
const P = unpack(
  DATA.points,
  [
    "flops",
    "dram_bytes",
    "least_bytes",
    "fused_bytes",
    "l3_bytes",
    "l2_bytes",
    "l1_bytes",
    "launches",
    "time_s",
    "floor_s",
    "compute_s",
    "memory_s",
  ],
  ["grain", "name", "layer", "phase", "kind", "shapes", "provenance", "bound", "flag"],
);
P.run = DATA.points.run ?? [];
derive(P);

function derive(table) {
  const column = (of) => Float64Array.from({ length: table.count }, (_, i) => of(i));
  const ratio = (a, b) => (a > 0 && b > 0 ? a / b : NaN);
  table.ai = column((i) => ratio(table.flops[i], table.dram_bytes[i]));
  table.ai_high = column((i) => ratio(table.flops[i], table.fused_bytes[i]) || table.ai[i]);
  table.rate = column((i) => ratio(table.flops[i], table.time_s[i]));
  table.efficiency = column((i) => ratio(table.floor_s[i], table.time_s[i]));
  const isKnownWork = (i) => isKnown(table.flops[i]) || isKnown(table.dram_bytes[i]);
  table.headroom_s = column((i) =>
    isKnownWork(i) ? table.time_s[i] - (table.floor_s[i] || 0) : NaN,
  );
}

function machineTitle(run) {
  return MACHINES[R.machine[run]]?.title ?? "unknown machine";
}

function modeWord(run) {
  return { train: "training", capture: "capture" }[R.mode[run]] ?? "inference";
}

// What tells a configuration apart, without its batch size.
function configuration(run) {
  const parts = [R.model[run], R.precision[run], modeWord(run), R.setting[run]];
  return parts.filter(Boolean).join(", ");
}

// Names of runs are unique: repeats of a configuration are numbered.
function runNames() {
  const seen = new Map();
  return Array.from({ length: R.count }, (_, run) => {
    const name = [
      R.model[run],
      isKnown(R.batch[run]) ? `batch ${R.batch[run]}` : "",
      `${R.precision[run]} ${modeWord(run)}`.trim(),
      R.setting[run],
      machineTitle(run),
    ]
      .filter(Boolean)
      .join(", ");
    seen.set(name, (seen.get(name) ?? 0) + 1);
    return seen.get(name) > 1 ? `${name} (${seen.get(name)})` : name;
  });
}

// Points by what they are, for those who need all of one kind.
function pointsWhere(test) {
  const found = [];
  for (let i = 0; i < P.count; i += 1) if (test(i)) found.push(i);
  return found;
}

// The step point of each run; counters say more than a count, where there are both.
const STEP_OF_RUN = new Map();
for (const i of pointsWhere((point) => P.grain[point] === "step")) {
  if (!STEP_OF_RUN.has(P.run[i]) || P.provenance[i] === "counter") STEP_OF_RUN.set(P.run[i], i);
}
