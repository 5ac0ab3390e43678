// The layers of one run, as a tree of modules or as a plain list.

function startLayers() {
  const host = byId("layers-body");
  const points = pointsWhere((i) => P.grain[i] === "layer" && P.phase[i] === "all");
  const runs = [...new Set(points.map((i) => P.run[i]))];
  if (!runs.length) {
    host.append(
      make(
        "p",
        { class: "empty" },
        "No layer was timed. ",
        make("code", {}, "ridgeline run MODEL --layers"),
        " times those of a model.",
      ),
    );
    return null;
  }
  const first = runs.includes(DATA.first_run) ? DATA.first_run : runs[0];
  const choose = make(
    "select",
    { id: "layers-run" },
    runs.map((run) => make("option", { value: run }, R.name[run])),
  );
  const group = make("input", { type: "checkbox", id: "layers-grouped", checked: true });
  choose.value = String(first);
  const fold = (paths) => () => {
    table.folded = new Set(paths(table.tree));
    table.render();
  };
  const buttons = [
    make("button", { type: "button", onclick: fold(() => []) }, "Open all"),
    make("button", { type: "button", onclick: fold((tree) => modulePaths(tree, 0)) }, "Close all"),
  ];
  const warnings = make("p", { class: "note lines" });
  const table = makeTable(host, {
    caption: "Layers",
    columns: layerColumns(),
    search: "layer or kind",
    sort: { key: "time", isDown: true },
    pageRows: 60,
    controls: [
      labelled("Run", choose),
      make("label", { class: "tick" }, group, "by module"),
      ...buttons,
    ],
    folded: new Set(),
    arrange: (self) => (group.checked ? treeRows(self) : listRows(self)),
  });
  const show = () => {
    table.rows = layerRows(points, Number(choose.value));
    table.tree = moduleTree(table.rows);
    table.folded = new Set(foldedAtFirst(table.tree));
    table.element.classList.toggle("plain", !table.rows.some((row) => row.flag)); // nothing is marked
    warnings.textContent = R.warnings[Number(choose.value)];
    table.render();
  };
  host.append(warnings);
  choose.addEventListener("change", show);
  group.addEventListener("change", table.render);
  show();
  return table;
}

// One row for each layer; counters say what was done, a count what had to be.
function layerRows(points, run) {
  const rows = new Map();
  for (const i of points) {
    if (P.run[i] !== run) continue;
    if (!rows.has(P.layer[i]) || P.provenance[i] === "counter") rows.set(P.layer[i], layerRow(i));
  }
  const step = R.step_s[run];
  return [...rows.values()].map((row) => ({ ...row, step }));
}

function layerRow(i) {
  return {
    point: i,
    path: P.layer[i],
    label: P.layer[i],
    kind: P.kind[i],
    shapes: P.shapes[i],
    bound: P.bound[i],
    flag: P.flag[i],
    time: P.time_s[i],
    floor: P.floor_s[i],
    flops: P.flops[i],
    bytes: P.dram_bytes[i],
    headroom: P.headroom_s[i],
  };
}

// Modules by the dots of their names: a.b.c is inside a.b, which is inside a.
function moduleTree(rows) {
  const root = { path: "", children: new Map() };
  for (const row of rows) {
    let node = root;
    const parts = row.path.startsWith("(") ? [row.path] : row.path.split(".");
    parts.forEach((part, n) => {
      const path = parts.slice(0, n + 1).join(".");
      if (!node.children.has(part))
        node.children.set(part, { path, label: part, children: new Map() });
      node = node.children.get(part);
    });
    node.own = row;
  }
  const sum = (node) => {
    const inside = [...node.children.values()].map(sum);
    return total(node, node.own ? [node.own, ...inside] : inside);
  };
  sum(root);
  return root;
}

// A module takes what its parts take together; efficiency follows from the sums.
function total(node, parts) {
  if (!node.children.size)
    return Object.assign(node, node.own, { label: node.label, children: node.children });
  const add = (name) => {
    const known = parts.map((part) => part[name]).filter(isKnown);
    return known.length ? known.reduce((a, b) => a + b, 0) : NaN;
  };
  const sums = Object.fromEntries(
    ["time", "floor", "flops", "bytes", "headroom"].map((name) => [name, add(name)]),
  );
  return Object.assign(node, sums, {
    kind: node.own?.kind ?? "",
    shapes: node.own?.shapes ?? "",
    bound: "",
    flag: node.own?.flag ?? "",
    point: parts.find((part) => part.point !== undefined)?.point,
    step: parts[0].step,
    isSum: true,
  });
}

// The paths of modules from a depth on.
function modulePaths(node, from, depth = 0) {
  return [...node.children.values()]
    .filter((child) => child.children.size)
    .flatMap((child) => [
      ...(depth >= from ? [child.path] : []),
      ...modulePaths(child, from, depth + 1),
    ]);
}

// A small network is shown whole; of a large one the outer modules.
function foldedAtFirst(tree) {
  const from = [0, 1, 2].find((depth) => countRows(tree, depth + 1) > 12) ?? Infinity;
  return from === Infinity ? [] : modulePaths(tree, from);
}

function countRows(node, depth) {
  if (!depth) return 0;
  return [...node.children.values()].reduce(
    (count, child) => count + 1 + countRows(child, depth - 1),
    0,
  );
}

function treeRows(table) {
  const compare = compareBy(table);
  const rows = [];
  const isWanted = (node) =>
    matches(table, { ...node, label: node.path }) || [...node.children.values()].some(isWanted);
  const walk = (node, depth) => {
    for (const child of [...node.children.values()].filter(isWanted).sort(compare)) {
      const isModule = child.children.size > 0;
      const isOpen =
        isModule && (table.isPrinting || Boolean(table.query) || !table.folded.has(child.path));
      rows.push({ row: child, depth, isModule, isOpen });
      if (isOpen) walk(child, depth + 1);
    }
  };
  if (table.tree) walk(table.tree, 0);
  return rows;
}

function listRows(table) {
  return table.rows
    .filter((row) => matches(table, row))
    .sort(compareBy(table))
    .map((row) => ({ row }));
}

function layerColumns() {
  const number = (key, label, format, source) => ({
    key,
    label,
    n: true,
    value: (row) => row[key],
    text: (row) => format(row[key]),
    source: [source, (row) => layerSource(row, source)],
  });
  const bytes = (value) => si(value, "B");
  return [
    { key: "label", label: "Layer", value: (row) => row.label ?? "", text: (row) => row.label },
    { key: "kind", label: "Kind", value: (row) => row.kind ?? "", text: (row) => row.kind },
    number("time", "Time", formatTime, "measured"),
    {
      key: "share",
      label: "Of step",
      n: true,
      value: (row) => row.time / row.step,
      node: (row) => [formatPercent(row.time / row.step), shareBar(row.time / row.step)],
      source: ["measured", (row) => layerSource(row, "measured")],
    },
    number("floor", "Floor", formatTime, "derived"),
    number("headroom", "Headroom", formatTime, "derived"),
    {
      key: "efficiency",
      label: "Efficiency",
      n: true,
      value: (row) => row.floor / row.time,
      text: (row) => formatPercent(row.floor / row.time),
      source: ["derived", (row) => layerSource(row, "derived")],
    },
    {
      key: "bound",
      label: "Bound",
      value: (row) => row.bound ?? "",
      text: (row) => (row.bound ? BOUND_WORDS[row.bound] : ""),
    },
    number("flops", "FLOPs", (value) => si(value, "FLOP"), "static"),
    number("bytes", "Bytes moved", bytes, "static"),
    {
      key: "shapes",
      label: "Shapes",
      wide: true,
      value: (row) => row.shapes ?? "",
      text: (row) => (row.shapes ?? "").replaceAll("x", "×"),
    },
    {
      key: "flag",
      label: "Marked",
      wide: true,
      value: (row) => row.flag ?? "",
      node: (row) => (row.flag ? make("span", { class: "flag" }, row.flag) : ""),
    },
  ];
}

function layerSource(row, kind) {
  const sum = row.isSum ? "sum of what is inside\n" : "";
  if (kind === "measured") return sum + runSource(P.run[row.point]);
  return (
    sum +
    (kind === "derived"
      ? `${floorSource(row.point)}\ntime: ${runSource(P.run[row.point])}`
      : workSource(row.point))
  );
}
