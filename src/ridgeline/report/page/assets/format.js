// Numbers to text, by the rules of ridgeline's units.py: three digits, SI prefixes.

const PREFIXES = [
  ["E", 1e18],
  ["P", 1e15],
  ["T", 1e12],
  ["G", 1e9],
  ["M", 1e6],
  ["k", 1e3],
  ["", 1],
  ["m", 1e-3],
  ["µ", 1e-6],
  ["n", 1e-9],
  ["p", 1e-12],
];
const UNKNOWN = "–";

function isKnown(value) {
  return value !== null && value !== undefined && !Number.isNaN(value);
}

function joined(number, unit) {
  return `${number} ${unit}`.trimEnd();
}

function si(value, unit = "") {
  if (!isKnown(value)) return UNKNOWN;
  if (!Number.isFinite(value) || value === 0) return joined(String(value), unit);
  const rounded = Number(value.toExponential(2)); // first, so that 999.9e6 becomes 1.00 G
  const [prefix, factor] = PREFIXES.find(([, f]) => Math.abs(rounded) >= f) ?? PREFIXES.at(-1);
  const isCount = prefix === "" && Number.isInteger(value); // a small count is exact
  return joined(isCount ? String(value) : threeDigits(rounded / factor), prefix + unit);
}

// What is counted under a roof: `int8 matrix` has no floating point.
function workUnit(roof) {
  return roof.startsWith("int") ? "OP" : "FLOP";
}

function threeDigits(number) {
  const size = Math.abs(number);
  if (size >= 1000) return number.toPrecision(3);
  const decimals = 2 - Math.floor(Math.log10(size) + 1e-12);
  return number.toFixed(Math.min(2, Math.max(0, decimals)));
}

function formatTime(seconds) {
  const size = Math.abs(seconds);
  if (!isKnown(seconds) || size < 120 || size === Infinity) return si(seconds, "s");
  const sign = seconds < 0 ? "-" : "";
  const whole = Math.round(size);
  if (whole < 3600) return `${sign}${Math.floor(whole / 60)} min ${twoDigits(whole % 60)} s`;
  const minutes = Math.round(size / 60);
  return `${sign}${Math.floor(minutes / 60)} h ${twoDigits(minutes % 60)} min`;
}

function twoDigits(number) {
  return String(number).padStart(2, "0");
}

// For the labels of axes: `10 ms`, where a measured number would be `10.0 ms`.
function shortly(text) {
  return text.replace(/\.0+(?= )/, "");
}

// All and nothing are only claimed when they are exact.
function formatPercent(fraction) {
  if (!isKnown(fraction)) return UNKNOWN;
  const text = `${(100 * fraction).toFixed(1)} %`;
  if (text === "100.0 %" && fraction < 1) return ">99.9 %";
  if (text === "0.0 %" && fraction > 0) return "<0.1 %";
  return text;
}

// A ratio is read against others, so it has no prefix.
function formatRatio(ratio, unit = "") {
  if (!isKnown(ratio)) return UNKNOWN;
  const size = Math.abs(ratio);
  if (!Number.isFinite(ratio) || size >= 1000) return joined(String(Math.round(ratio)), unit);
  const short = Number(ratio.toPrecision(3));
  const isTiny = size > 0 && size < 1e-4;
  return joined(isTiny ? short.toExponential().replace(/e-(\d)$/, "e-0$1") : String(short), unit);
}
