// Building the document. Words only ever become text: nothing here parses HTML.

function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== ""));
  return element;
}

function byId(id) {
  return document.getElementById(id);
}

// Colours as the canvas needs them: resolved for the theme that is shown.
function colour(name) {
  const probe = byId("title");
  const before = probe.style.color;
  probe.style.color = `var(--${name})`;
  const found = getComputedStyle(probe).color;
  probe.style.color = before;
  return found;
}

const THEME_LISTENERS = [];

function onTheme(listener) {
  THEME_LISTENERS.push(listener);
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  themeChanged();
}

function themeChanged() {
  byId("theme").textContent = isDark() ? "Light" : "Dark";
  byId("theme").setAttribute("aria-label", `Change to ${isDark() ? "light" : "dark"} colours`);
  for (const listener of THEME_LISTENERS) listener();
}

function startTheme() {
  byId("theme").removeAttribute("aria-pressed");
  byId("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeChanged);
  themeChanged();
}

// A canvas is a picture: it must be drawn again in light colours before it is printed.
function startPrinting(growTables) {
  let chosen = null;
  const printing = (isPrinting) => {
    if (isPrinting) {
      chosen = document.documentElement.dataset.theme ?? "";
      growTables(true);
      setTheme("light");
      document.querySelectorAll("details").forEach((one) => {
        one.open = true;
      });
    } else if (chosen !== null) {
      growTables(false);
      setTheme(chosen);
      chosen = null;
    }
  };
  matchMedia("print").addEventListener("change", (event) => printing(event.matches));
}
