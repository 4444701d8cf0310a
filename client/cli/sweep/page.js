// The page of a sweep. All that comes from its data becomes text nodes and attributes, never HTML: values and reasons are users' words.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const marked = new Map(); // trial -> the elements that show it

// ---- making elements ----

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  for (const child of children.flat(Infinity)) node.append(child instanceof Node ? child : String(child));
  return node;
}

function svg(tag, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function card(title, ...children) {
  return el("section", { class: "card" }, el("h2", {}, title), ...children);
}

// Elements of one trial are marked together while the pointer is on one of them.
function shows(node, trial) {
  if (!marked.has(trial.trial)) marked.set(trial.trial, []);
  marked.get(trial.trial).push(node);
  const mark = (on) => () => marked.get(trial.trial).forEach((n) => n.classList.toggle("on", on));
  node.addEventListener("mouseenter", mark(true));
  node.addEventListener("mouseleave", mark(false));
  return node;
}

// ---- text ----

function figure(value) {
  if (typeof value !== "number") return value === null || value === undefined ? "" : String(value);
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7) return String(value);
  return size !== 0 && (size < 1e-3 || size >= 1e7) ? value.toExponential(2) : String(Number(value.toPrecision(5)));
}

// The last name of a path where that is unique.
function shortName(path) {
  const last = (p) => p.slice(p.lastIndexOf(".") + 1);
  return data.parameters.filter((p) => last(p) === last(path)).length === 1 ? last(path) : path;
}

const describe = (trial) => `trial ${trial.trial}: ${data.parameters.map((p) => `${shortName(p)}=${figure(trial.parameters[p])}`).join(" ")}` +
  ` - ${trial.score === null ? trial.state : `${data.by}: ${figure(trial.score)}`}`;

// ---- an axis: where a value is, from 0 (bottom) to 1 ----

function axisOf(name, values) {
  const known = values.filter((v) => v !== null && v !== undefined);
  if (known.length && known.every((v) => typeof v === "number")) {
    const low = Math.min(...known), high = Math.max(...known);
    const log = low > 0 && high / low >= 50;
    const scale = (v) => (log ? Math.log(v) : v);
    const at = (v) => (high === low ? 0.5 : (scale(v) - scale(low)) / (scale(high) - scale(low)));
    const ticks = high === low ? [low] : [0, 0.25, 0.5, 0.75, 1].map((t) => (log ? Math.exp(scale(low) + t * (scale(high) - scale(low))) : low + t * (high - low)));
    return { name: log ? `${name} (log)` : name, at, ticks: ticks.map((v) => [at(v), figure(v)]) };
  }
  const words = [...new Set(known.map(String))];
  const at = (v) => (words.length < 2 ? 0.5 : words.indexOf(String(v)) / (words.length - 1));
  return { name, at, ticks: words.map((w) => [at(w), w.length > 18 ? `${w.slice(0, 17)}\u2026` : w]) };
}

// ---- the pictures ----

function coordinates() {
  const scored = data.trials.filter((t) => t.score !== null);
  if (!scored.length) return el("p", { class: "quiet" }, "No trial has a figure yet.");
  const axes = data.parameters.map((p) => ({ of: (t) => t.parameters[p], ...axisOf(shortName(p), scored.map((t) => t.parameters[p])) }));
  const score = { of: (t) => t.score, ...axisOf(data.by, scored.map((t) => t.score)) };
  axes.push(score);
  const width = 1200, height = 340, top = 34, bottom = 16, left = 70, right = 90;
  const x = (i) => left + (axes.length < 2 ? 0 : (i * (width - left - right)) / (axes.length - 1));
  const y = (t) => height - bottom - t * (height - top - bottom);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Parallel coordinates of the trials" });
  axes.forEach((axis, i) => {
    picture.append(svg("line", { class: "axis", x1: x(i), x2: x(i), y1: top, y2: height - bottom }));
    picture.append(svg("text", { class: "name", x: x(i), y: 16, "text-anchor": "middle" }, axis.name));
    for (const [t, label] of axis.ticks) picture.append(svg("text", { x: x(i) + 6, y: y(t) + 4 }, label));
  });
  // The better ones on top, and clearer.
  [...scored].reverse().forEach((trial, place) => {
    const path = axes.map((axis, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(axis.at(axis.of(trial))).toFixed(1)}`).join("");
    const line = svg("path", { class: place === scored.length - 1 ? "trial best" : "trial", d: path, opacity: (0.2 + (0.7 * (place + 1)) / scored.length).toFixed(2) });
    line.append(svg("title", {}, describe(trial)));
    picture.append(shows(line, trial));
  });
  return picture;
}

function curves() {
  const drawn = data.trials.filter((t) => t.curve.some(([, v]) => v !== null));
  if (!drawn.length) return el("p", { class: "quiet" }, "The first epoch has not ended yet.");
  const points = drawn.flatMap((t) => t.curve.filter(([, v]) => v !== null));
  const last = Math.max(2, ...points.map(([e]) => e));
  const axis = axisOf(data.by, points.map(([, v]) => v));
  const width = 1200, height = 340, top = 14, bottom = 30, left = 70, right = 20;
  const x = (e) => left + ((e - 1) * (width - left - right)) / (last - 1);
  const y = (t) => height - bottom - t * (height - top - bottom);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${data.by} by epoch` });
  for (const [t, label] of axis.ticks) {
    picture.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: y(t), y2: y(t) }));
    picture.append(svg("text", { x: left - 8, y: y(t) + 4, "text-anchor": "end" }, label));
  }
  for (const e of [...new Set([1, ...data.rungs, last])]) picture.append(svg("text", { x: x(e), y: height - 8, "text-anchor": "middle" }, `epoch ${e}`));
  for (const e of data.rungs) picture.append(svg("line", { class: "axis", x1: x(e), x2: x(e), y1: top, y2: height - bottom, "stroke-dasharray": "4 4" }));
  [...drawn].reverse().forEach((trial, place) => {
    const known = trial.curve.filter(([, v]) => v !== null);
    const path = known.map(([e, v], i) => `${i ? "L" : "M"}${x(e).toFixed(1)} ${y(axis.at(v)).toFixed(1)}`).join("");
    const line = svg("path", { class: place === drawn.length - 1 ? "trial best" : "trial", d: path, opacity: (0.2 + (0.7 * (place + 1)) / drawn.length).toFixed(2) });
    line.append(svg("title", {}, describe(trial)));
    picture.append(shows(line, trial));
    if (known.length === 1) picture.append(svg("circle", { cx: x(known[0][0]), cy: y(axis.at(known[0][1])), r: 3 }));
  });
  return picture;
}

function table() {
  const columns = [
    ["", (t, i) => i + 1, "number"], ["trial", (t) => t.trial, "number"], ["job", (t) => t.job || "", "number"], ["state", (t) => t.state, "state"],
    ["epochs", (t) => t.epochs, "number"], ...data.parameters.map((p) => [shortName(p), (t) => figure(t.parameters[p]), "number"]),
    [data.by, (t) => figure(t.score), "number"], ["", (t) => t.reason, "quiet"],
  ];
  const cls = (kind, t) => (kind === "state" ? { succeeded: "succeeded", failed: "failed" }[t.state] || "" : kind);
  return el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, columns.map(([name, , kind]) => el("th", { class: kind === "number" ? kind : "", scope: "col" }, name)))),
    el("tbody", {}, data.trials.map((t, i) => shows(el("tr", {}, columns.map(([, of, kind]) => el("td", { class: cls(kind, t) }, of(t, i)))), t)))));
}

const ended = data.trials.filter((t) => ["succeeded", "stopped", "ended with errors", "failed", "cancelled"].includes(t.state)).length;
document.title = `Sweep of ${data.job}`;
document.getElementById("title").textContent = `Sweep of ${data.job}`;
document.getElementById("about").textContent = `${ended} of ${data.trials.length} trials have ended; the best has the ${data.more_is_better ? "largest" : "smallest"} ${data.by}`;
document.getElementById("main").append(card("Parameters and result", coordinates()), card(`${data.by} by epoch`, curves()), card("Trials", table()));
