// The kinds of figure. A view says where a point stands, what is joined, and what to begin with.

const AXES = {
  intensity: {
    xLabel: "arithmetic intensity (FLOP per byte)",
    yLabel: "performance",
    xTick: (value) => formatRatio(value),
    yTick: (value) => shortly(si(value, "FLOP/s")),
  },
  time: {
    xLabel: "floor: the least time it can take",
    yLabel: "measured time",
    xTick: (value) => shortly(formatTime(value)),
    yTick: (value) => shortly(formatTime(value)),
  },
};
AXES.parts = {
  ...AXES.time,
  xLabel: "memory time at its roof",
  yLabel: "compute time at its roof",
};
const PHASES = ["forward", "backward", "input-grad", "weight-grad", "recompute", "optimizer", "all"];
const ANY = "";

const VIEWS = {
  classic: {
    label: "Classic",
    about:
      "How fast each work item computes, against the FLOPs it does for each byte it moves." +
      " Nothing can be above the roof of what bounds it; the distance to it is what is lost." +
      " The least bytes, which set the DRAM floor, may be below the fused bytes, because a cache" +
      " may keep a tensor between two uses.",
    axes: AXES.intensity,
    levels: ["dram"],
    starts: { grain: "layer", colour: "bound" },
  },
  hierarchical: {
    label: "By memory level",
    about:
      "Each work item once for every memory level whose bytes are known, against that level's slope." +
      " What is near the slope of a level is held back by it. From Hopper on, the counters of L1" +
      " leave out bulk tensor copies: such a mark lies too far to the right.",
    axes: AXES.intensity,
    levels: LEVELS,
    starts: { grain: "layer", colour: "level" },
  },
  time: {
    label: "Time: measured, floor",
    about:
      "Measured time against the least possible time. The diagonal is the roof: what is far" +
      " above it and far to the right is worth most.",
    axes: AXES.time,
    levels: [],
    starts: { grain: "layer", colour: "bound" },
  },
  times: {
    label: "Time: compute, memory",
    about:
      "The least time of the arithmetic against the least time of the data. Above the diagonal" +
      " the arithmetic sets the floor, below it the memory. A line leads to the measured time.",
    axes: AXES.parts,
    levels: [],
    starts: { grain: "step", colour: "configuration", run: ANY, model: ANY },
    name: (i) => `${R.model[P.run[i]]} ${R.batch[P.run[i]]}`,
  },
  training: {
    label: "Phases of a step",
    about: "Forward, backward and optimizer of each step, in this order, with the whole step last.",
    axes: AXES.intensity,
    levels: ["dram"],
    starts: { grain: "phase and step", colour: "phase" },
    join: (i) => `${P.run[i]} ${P.provenance[i]}`,
    order: (i) => PHASES.indexOf(P.phase[i]),
    name: (i) => (P.grain[i] === "step" ? "step" : P.phase[i]),
  },
  batches: {
    label: "Batch sizes",
    about: "Whole steps of one configuration, joined from the smallest batch to the largest.",
    axes: AXES.intensity,
    levels: ["dram"],
    starts: { grain: "step", colour: "configuration", run: ANY, model: ANY },
    join: (i) => `${machineTitle(P.run[i])} ${configuration(P.run[i])} ${P.provenance[i]}`,
    order: (i) => R.batch[P.run[i]],
    name: (i) => String(R.batch[P.run[i]]),
  },
  machines: {
    label: "Several machines",
    about: "Whole steps under the roofs of every machine.",
    axes: AXES.intensity,
    levels: ["dram"],
    starts: {
      grain: "step",
      colour: "machine",
      run: ANY,
      model: ANY,
      machine: ANY,
      hasSheet: false,
    },
    name: (i) => R.model[P.run[i]],
  },
};

// A capture has none of its own.
function precisionOf(i) {
  return R.precision[P.run[i]] || "unknown";
}

// What can be chosen, and the value that a point has; of some, all values are always offered.
const FILTERS = {
  machine: { label: "Machine", isWhole: true, of: (i) => machineTitle(P.run[i]) },
  model: { label: "Model", of: (i) => R.model[P.run[i]] },
  run: { label: "Run", of: (i) => R.name[P.run[i]] },
  precision: { label: "Precision", isWhole: true, of: precisionOf },
  grain: { label: "Scope", isWhole: true, of: (i) => P.grain[i] },
  phase: {
    label: "Phase",
    of: (i) => P.phase[i] || "unknown",
    word: (v) => (v === "all" ? "whole" : v),
  },
  kind: { label: "Kind", of: (i) => P.kind[i] || "unknown" },
  work: {
    label: "Work from",
    of: (i) => P.provenance[i],
    word: (v) => (v === "static" ? "the graph" : "counters"),
  },
};

const COLOURS = {
  bound: { label: "bound", of: (i) => BOUND_WORDS[P.bound[i]] ?? P.bound[i] },
  kind: { label: "kind", of: (i) => P.kind[i] || "unknown" },
  phase: { label: "phase", of: (i) => (P.phase[i] === "all" ? "whole" : P.phase[i] || "unknown") },
  model: { label: "model", of: (i) => R.model[P.run[i]] },
  configuration: { label: "configuration", of: (i) => configuration(P.run[i]) },
  machine: { label: "machine", of: (i) => machineTitle(P.run[i]) },
  precision: { label: "precision", of: precisionOf },
  batch: { label: "batch size", of: (i) => (isKnown(R.batch[P.run[i]]) ? `batch ${R.batch[P.run[i]]}` : "capture") },
};

// What is chosen anew when something before it is: another machine has other runs.
const DEPENDENT = {
  machine: ["model", "run", "precision", "kind"],
  model: ["run", "precision", "kind"],
  run: ["precision", "kind"],
  grain: ["phase", "kind"],
};

function passes(state, key, i) {
  const wanted = state[key];
  if (wanted === ANY) return true;
  if (key === "grain" && wanted === "phase and step") return ["phase", "step"].includes(P.grain[i]);
  return FILTERS[key].of(i) === wanted;
}

// What a view begins with: the run with the largest headroom, so that there is something to see.
function startOf(viewName) {
  const first = DATA.first_run;
  const state = {
    view: viewName,
    isAllRoofs: false,
    hasSheet: true,
    phase: ANY,
    kind: ANY,
    precision: ANY,
    work: ANY,
  };
  state.machine = first === null ? ANY : machineTitle(first);
  state.model = first === null ? ANY : R.model[first];
  state.run = first === null ? ANY : R.name[first];
  Object.assign(state, VIEWS[viewName].starts);
  state.phase = state.grain === "layer" ? "all" : ANY; // else each layer would be there three times
  const tries = [
    {},
    { grain: "step", phase: ANY },
    { run: ANY, model: ANY },
    { machine: ANY },
    { grain: ANY, phase: ANY },
  ];
  for (const relaxed of tries) {
    Object.assign(state, relaxed);
    if (buildMarks(state).count) break;
  }
  return state;
}
