// A table that sorts, searches and grows. Columns say how a row becomes text:
//   { key, label, value(row), text(row), n: is a number, node(row): instead of text,
//     wide: may break lines, source: [kind, say(row)] }

const PAGE_ROWS = 40;
const MOST_PRINTED = 400;
const TABLES = [];

function makeTable(host, options) {
  const table = {
    rows: [],
    columns: [],
    isOpen: new Set(),
    limit: options.pageRows ?? PAGE_ROWS,
    query: "",
    ...options,
  };
  table.sort = { key: null, isDown: true, ...options.sort };
  table.body = make("tbody");
  table.head = make(
    "tr",
    {},
    table.columns.map((column) => headCell(table, column)),
  );
  table.element = make(
    "table",
    { class: "data" },
    make("caption", { class: "unseen" }, table.caption),
    make("thead", {}, table.head),
    table.body,
  );
  table.more = make("div", { class: "more" });
  const around = make(
    "div",
    { class: "scroll", role: "region", tabindex: "0", "aria-label": table.caption },
    table.element,
  );
  host.append(...(table.search ? [searchBox(table)] : []), around, table.more);
  table.render = () => renderTable(table);
  table.render();
  TABLES.push(table);
  return table;
}

function headCell(table, column) {
  const button = make(
    "button",
    { type: "button", onclick: () => sortBy(table, column) },
    column.label,
  );
  const title = DATA.headings[column.label] ?? "a setting of the sweep";
  const attributes = { scope: "col", class: column.n ? "n" : null, "data-key": column.key, title };
  return make("th", attributes, button);
}

function searchBox(table) {
  const input = make("input", { type: "search", placeholder: table.search });
  input.addEventListener("input", () => {
    table.query = input.value.trim().toLowerCase();
    table.render();
  });
  return make(
    "div",
    { class: "controls" },
    ...(table.controls ?? []),
    make("label", {}, "Search", input),
  );
}

// Numbers start with the largest, words with the first.
function sortBy(table, column) {
  const isSame = table.sort.key === column.key;
  table.sort = { key: column.key, isDown: isSame ? !table.sort.isDown : Boolean(column.n) };
  table.render();
}

function compareBy(table) {
  const column = table.columns.find(({ key }) => key === table.sort.key);
  if (!column) return () => 0;
  const sign = table.sort.isDown ? -1 : 1;
  return (a, b) => {
    const [left, right] = [column.value(a), column.value(b)];
    if (!isKnown(left) || !isKnown(right)) return isKnown(right) - isKnown(left); // unknown last
    return (
      sign *
      (typeof left === "string" ? left.localeCompare(right, "en", { numeric: true }) : left - right)
    );
  };
}

function matches(table, row) {
  return (
    !table.query ||
    table.columns.some(
      (column) => !column.n && String(column.value(row)).toLowerCase().includes(table.query),
    )
  );
}

// Rows in the order they are shown; a tree gives its own.
function rowsOf(table) {
  if (table.arrange) return table.arrange(table);
  return table.rows
    .filter((row) => matches(table, row))
    .sort(compareBy(table))
    .map((row) => ({ row }));
}

function renderTable(table) {
  const all = rowsOf(table);
  const rows = all.slice(0, table.isPrinting ? Math.max(table.limit, MOST_PRINTED) : table.limit);
  table.body.replaceChildren(...rows.flatMap((entry) => bodyRows(table, entry)));
  for (const cell of table.head.cells) {
    const isSorted = cell.dataset.key === table.sort.key;
    cell.setAttribute(
      "aria-sort",
      isSorted ? (table.sort.isDown ? "descending" : "ascending") : "none",
    );
  }
  const left = all.length - rows.length;
  table.more.replaceChildren(
    make("span", {}, all.length ? `${rows.length} of ${all.length} rows` : "Nothing matches."),
    left
      ? make("button", { type: "button", onclick: () => grow(table, table.limit * 4) }, "Show more")
      : "",
  );
  makeReachable(table.element);
}

function grow(table, limit) {
  table.limit = limit;
  table.render();
}

function bodyRows(table, entry) {
  const cells = table.columns.map((column, place) => bodyCell(table, column, entry, place));
  const row = make("tr", { class: entry.isModule ? "module" : null }, cells);
  if (!table.inside || !table.isOpen.has(entry.row)) return [row];
  return [
    row,
    make(
      "tr",
      {},
      make("td", { class: "inside", colspan: table.columns.length }, table.inside(entry.row)),
    ),
  ];
}

function bodyCell(table, column, entry, place) {
  const { row } = entry;
  const content = column.node ? column.node(row, entry) : column.text(row);
  const classes = [column.n ? "n" : "", column.wide ? "wide" : ""].filter(Boolean).join(" ");
  if (place === 0)
    return make(
      "th",
      { scope: "row", class: table.inside ? `${classes} opens` : classes || null },
      foldButton(table, entry),
      content,
    );
  const cell = make("td", { class: classes || null }, content);
  return column.source && isKnown(column.value(row))
    ? withSource(cell, column.source[0], () => column.source[1](row))
    : cell;
}

// Opens what belongs to a row: its details, or what is inside a module.
function foldButton(table, entry) {
  if (!table.inside && !table.arrange) return "";
  const indent = make("span", { class: entry.depth ? `d${Math.min(entry.depth, 4)}` : null });
  if (!table.inside && !entry.isModule) return [indent, make("span", { class: "leaf" })];
  const isOpen = table.inside ? table.isOpen.has(entry.row) : entry.isOpen;
  const toggle = () => {
    const key = table.inside ? entry.row : entry.row.path;
    const set = table.inside ? table.isOpen : table.folded;
    if (!set.delete(key)) set.add(key);
    const at = [...table.body.querySelectorAll(".fold")].indexOf(button);
    table.render();
    table.body.querySelectorAll(".fold")[at]?.focus(); // the button was made anew
  };
  const button = make(
    "button",
    {
      type: "button",
      class: "fold",
      "aria-expanded": String(isOpen),
      "aria-label": `${isOpen ? "Close" : "Open"} ${entry.row.label}`,
      onclick: toggle,
    },
    isOpen ? "▾" : "▸",
  );
  return [indent, button];
}

// Tables that are replaced need not be printed.
function forgetTables(host) {
  for (const table of TABLES.filter(({ element }) => host.contains(element)))
    TABLES.splice(TABLES.indexOf(table), 1);
}

// Paper cannot be opened or scrolled: all of a table is printed, within reason.
function growForPrint(isPrinting) {
  for (const table of TABLES) {
    table.isPrinting = isPrinting;
    table.render();
  }
}

function shareBar(share) {
  const bar = make("i");
  bar.style.width = `${Math.round(100 * Math.min(1, Math.max(0, share || 0)))}%`;
  return make("span", { class: "share", "aria-hidden": "true" }, bar);
}
