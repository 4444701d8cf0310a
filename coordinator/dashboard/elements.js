// What both views of the dashboard are made of: elements, texts, bars.
//
// All that comes from the cluster becomes text nodes and attributes of elements made here, never HTML: names, paths and reasons are users' words.
"use strict";

// ---- making elements ----

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "onclick") node.addEventListener("click", value);
    else if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== "") node.append(child instanceof Node ? child : String(child));
  }
}

function svg(tag, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function card(title, right, ...children) {
  return el("section", { class: "card" }, el("div", { class: "head" }, el("h2", {}, title), el("div", { class: "right" }, right)), ...children);
}

function table(columns, rows) {
  const cls = (c) => c.cls || "";
  return el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, columns.map((c) => el("th", { class: cls(c), scope: "col" }, c.name)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, columns.map((c) => el("td", { class: cls(c) }, c.of(row))))))));
}

function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined)
    .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

// ---- text ----

const whole = (n) => Math.round(n).toLocaleString("en-US");
const plural = (n, thing) => `${whole(n)} ${thing}${n === 1 ? "" : "s"}`;

function figure(value) {
  if (value === null || value === undefined) return "nan";
  const size = Math.abs(value);
  if (size >= 1e3 && size < 1e6) return value.toLocaleString("en-US", { maximumFractionDigits: 1 });
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(3) : value.toFixed(4);
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit + 1 < units.length) n /= 1024, ++unit;
  return `${unit === 0 ? n : n.toFixed(1)} ${units[unit]}`;
}

function duration(seconds) {
  seconds = Math.max(0, seconds);
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds) % 60} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds / 3600) % 24} h`;
}

const time = (unixMs) => (unixMs ? new Date(unixMs).toLocaleString() : "");
const lower = (name) => String(name).toLowerCase().replaceAll("_", " ");

const JOB_TONE = { RUNNING: "", STARTING: "", FINALIZING: "", SUCCEEDED: "good", ENDED_WITH_ERRORS: "warn", FAILED: "bad", CANCELLED: "plain", QUEUED: "warn" };
const NODE_TONE = { unknown: "plain", alive: "good", "not ready": "warn", draining: "warn", failed: "bad", dead: "bad" };

const pill = (text, tone) => el("span", { class: `pill ${tone || ""}` }, text);
const statePill = (state) => pill(lower(state), JOB_TONE[state]);
const degradedPill = (degraded) => (degraded ? [" ", pill("degraded", "warn")] : "");
const degradedText = (degraded) => (degraded ? el("div", { class: "reason" }, `degraded since ${time(degraded.since_unix_ms)}: ${degraded.text}`) : "");

// Of a running job whose speed is known; images_per_second: of all its replicas.
function timeLeft(stepsLeft, batch, imagesPerSecond) {
  return imagesPerSecond > 0 ? `about ${duration((stepsLeft * batch) / imagesPerSecond)} left` : "";
}

function bar(done, total) {
  const inside = el("i", {});
  inside.style.width = `${total > 0 ? Math.min(100, (100 * done) / total) : 0}%`;
  return el("div", { class: "bar" }, inside);
}

function figures(list) {
  return el("div", { class: "figures" }, list.map(([name, value]) => el("span", {}, el("b", {}, name), figure(value))));
}

// Newest first. subject: of an event, what stands before its text.
function eventList(events, subject) {
  return el("ul", { class: "notes" }, events.map((e) => el("li", {}, el("b", {}, `${time(e.unix_ms)} `),
    e.warning ? [pill("warning", "warn"), " "] : "", subject(e), e.text)));
}
