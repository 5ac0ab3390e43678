// What the hardware did, of one run or capture: totals, phases, layers, kernels.

const EXECUTED = DATA.executed;
const E = unpack(
  EXECUTED.reconciled,
  [
    "launches",
    "time_s",
    "model_flops",
    "executed_flops",
    "model_products",
    "executed_products",
    "model_bytes",
    "dram_bytes",
  ],
  ["grain", "name", "kind", "cause", "where", "bytes_cause", "bytes_where"],
);
E.run = EXECUTED.reconciled.run ?? [];
const K = unpack(
  EXECUTED.kernels,
  ["launches", "time_s", "share", "flops", "dram_bytes", "l2_bytes", "l1_bytes"],
  ["kernel", "short", "family"],
);
K.run = EXECUTED.kernels.run ?? [];
const PROFILES = new Map(EXECUTED.profiles.map((profile) => [profile.run, profile]));
const ofRun = (table, run) =>
  Array.from({ length: table.count }, (_, i) => i).filter((i) => table.run[i] === run);

function startExecuted() {
  const host = byId("executed-body");
  const runs = [...new Set(K.run)];
  if (!runs.length) return sayNoCounters(host);
  const body = make("div");
  const choose = make(
    "select",
    { id: "executed-run" },
    runs.map((run) => make("option", { value: run }, R.name[run])),
  );
  const show = () => {
    forgetTables(body);
    body.replaceChildren();
    showExecuted(body, Number(choose.value));
  };
  choose.value = String(runs.includes(DATA.first_run) ? DATA.first_run : runs[0]);
  choose.addEventListener("change", show);
  if (runs.length > 1)
    host.append(make("div", { class: "controls" }, labelled("Run or capture", choose)));
  host.append(body);
  show();
  return undefined;
}

function sayNoCounters(host) {
  host.append(
    make(
      "p",
      { class: "empty" },
      "No hardware counters were read in these runs, so what was executed is not known: all FLOPs and bytes on this page are counted from the graph of the model. ",
      make("code", {}, "ridgeline profile MODEL"),
      " reads them, ",
      make("code", {}, "ridgeline doctor"),
      " says whether this machine lets them be read, and ",
      make("code", {}, "ridgeline import FILE"),
      " takes captures made elsewhere.",
    ),
  );
}

function showExecuted(host, run) {
  const profile = PROFILES.get(run);
  if (profile) showProfile(host, profile);
  const rows = ofRun(E, run);
  if (rows.length && profile?.has_counters) showReconciled(host, rows);
  showKernels(host, run);
}

function showProfile(host, profile) {
  host.append(...profile.notes.map((text) => make("p", { class: "about" }, text)));
  if (profile.warnings.length)
    host.append(make("ul", { class: "note" }, profile.warnings.map((text) => make("li", {}, text))));
  const isRun = profile.run < R.measured;
  const source = isRun ? `counter: profile ${profile.id || "of this run"}` : runSource(profile.run);
  const facts = [
    ...profile.flops.map(([roof, flops]) => [roof, si(flops, workUnit(roof)), source]),
    ...profile.bytes.map(([level, bytes]) => [level, si(bytes, "B"), source]),
    ["launches", String(profile.launches ?? ""), source],
    ["kernel time", formatTime(profile.kernel_s), source],
    ["step", formatTime(profile.step_s), runSource(profile.run)], // of a capture it is not known
    ["idle", formatTime(profile.gap_s), "derived: step less the time of kernels and copies"],
  ].filter(([, text]) => text && text !== UNKNOWN);
  host.append(
    make(
      "dl",
      { class: "facts" },
      facts.map(([name, text, from]) =>
        make(
          "div",
          {},
          make("dt", {}, name),
          withSource(make("dd", {}, text), "counter", () => from),
        ),
      ),
    ),
  );
}

function showReconciled(host, rows) {
  const coarse = rows.filter((i) => E.grain[i] !== "layer");
  const layers = rows.filter((i) => E.grain[i] === "layer");
  host.append(
    make("h3", {}, "Model against executed"),
    make(
      "p",
      { class: "about" },
      "Model work is what the mathematics needs, executed work what the counters saw. Products (convolutions, matrix products, attention) are also compared alone: no counter sees comparisons and divisions, and conventions differ for the rest. Bytes are those that the operators touch, beside those of DRAM. Point at a cause for what it means.",
    ),
  );
  makeTable(host, {
    caption: "Model against executed work, by phase",
    rows: coarse,
    columns: [...reconcileColumns("Phase").filter(({ key }) => key !== "kind"), whereColumn()],
  });
  if (!layers.length) return;
  makeTable(host, {
    caption: "Model against executed work, by layer",
    rows: layers,
    search: "layer, kind or cause",
    sort: { key: "apart", isDown: true },
    columns: reconcileColumns("Layer"),
  });
}

function reconcileColumns(label) {
  const quantity = (name, key, unit, kind) => ({
    key,
    label: name,
    n: true,
    value: (i) => E[key][i],
    text: (i) => si(E[key][i], unit),
    source: [kind, () => WORK[kind]],
  });
  const over = (name, key, above, below) => ({
    key,
    label: name,
    n: true,
    value: (i) => E[above][i] / (E[below][i] || NaN),
    text: (i) => formatRatio(E[above][i] / (E[below][i] || NaN)),
    source: ["counter", () => "derived: counters over the count"],
  });
  const cause = (key) => ({
    key,
    label: "Cause",
    value: (i) => E[key][i],
    text: (i) => E[key][i],
    source: ["derived", (i) => EXECUTED.causes[E[key][i]] ?? ""],
  });
  return [
    { key: "name", label, value: (i) => E.name[i], text: (i) => E.name[i] },
    { key: "kind", label: "Kind", value: (i) => E.kind[i], text: (i) => E.kind[i] },
    quantity("Model", "model_flops", "FLOP", "static"),
    quantity("Executed", "executed_flops", "FLOP", "counter"),
    over("Ratio", "ratio", "executed_flops", "model_flops"),
    over("Products", "products", "executed_products", "model_products"),
    {
      key: "apart",
      label: "Difference",
      n: true,
      value: (i) => Math.abs((E.executed_flops[i] || 0) - E.model_flops[i]),
      text: (i) => si(E.executed_flops[i] - E.model_flops[i], "FLOP"),
    },
    cause("cause"),
    quantity("Operators", "model_bytes", "B", "static"),
    quantity("DRAM", "dram_bytes", "B", "counter"),
    over("Ratio", "bytes", "dram_bytes", "model_bytes"),
    cause("bytes_cause"),
    quantity("Launches", "launches", "", "counter"),
    {
      ...quantity("Kernel time", "time_s", "s", "counter"),
      text: (i) => formatTime(E.time_s[i]),
    },
  ];
}

function whereColumn() {
  const text = (i) => E.where[i];
  return { key: "where", label: "Mostly in", value: text, text };
}

function showKernels(host, run) {
  const rows = ofRun(K, run);
  const all = EXECUTED.kernels.all[run];
  const number = (key, label, format) => ({
    key,
    label,
    n: true,
    value: (i) => K[key][i],
    text: (i) => format(K[key][i]),
    source: ["counter", (i) => K.kernel[i]],
  });
  const bytes = (value) => si(value, "B");
  const levels = ["l2_bytes", "l1_bytes"].filter((key) => rows.some((i) => isKnown(K[key][i])));
  host.append(make("h3", {}, "Kernels that take longest"));
  const some = all > rows.length ? ` ${rows.length} of ${all} are here.` : "";
  host.append(
    make(
      "p",
      { class: "note" },
      `A kernel is a name here: all its launches are added up, whatever their grids and blocks, which the figure tells apart.${some}`,
    ),
  );
  makeTable(host, {
    caption: "Kernels that take longest",
    rows,
    search: "kernel or family",
    sort: { key: "time_s", isDown: true },
    pageRows: 15,
    columns: [
      {
        key: "kernel",
        label: "Kernel",
        wide: true,
        value: (i) => K.kernel[i],
        text: (i) => K.short[i],
      },
      { key: "family", label: "Family", value: (i) => K.family[i], text: (i) => K.family[i] },
      number("launches", "Launches", (value) => si(value)),
      number("time_s", "Time", formatTime),
      number("share", "Of all kernels", formatPercent),
      number("flops", "FLOPs", (value) => si(value, "FLOP")),
      number("dram_bytes", "DRAM", bytes),
      ...levels.map((key) => number(key, key.slice(0, 2).toUpperCase(), bytes)),
    ],
  });
}
