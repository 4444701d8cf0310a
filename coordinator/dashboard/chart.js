// Curves that can be zoomed: drag over a part to see it alone; with the keyboard + and - zoom, arrows move, Escape
// shows all again, as a double click does.
"use strict";

const POINTS_MAX = 600; // of a curve
const TONES = 8; // colours of lines, .t0 to .t7 in dashboard.css
const PICTURE = { width: 360, height: 190, left: 52, right: 10, top: 10, bottom: 24 };
const DRAG_MIN = 6; // pixels; less is a click

// By "place/title": [from, to] on the x axis. Kept while the page draws itself anew.
const zooms = new Map();
const drag = { key: "" }; // the chart on which a pointer is down

// Every n-th point, and the last one.
function thin(points) {
  const stride = Math.ceil(points.length / POINTS_MAX);
  return points.filter((_, i) => i % stride === 0 || i === points.length - 1);
}

// The points within [from, to], and the next one on each side, so that the line goes on to the edge.
function within(points, [from, to]) {
  return points.filter(([x], i) => (x >= from || (points[i + 1] && points[i + 1][0] >= from)) && (x <= to || (points[i - 1] && points[i - 1][0] <= to)));
}

function rangeOf(values) {
  let [low, high] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  if (low === high) low -= Math.abs(low) / 10 || 0.5, high += Math.abs(high) / 10 || 0.5;
  return [low, high];
}

const tick = (y) => (Math.abs(y) >= 1e5 || (y !== 0 && Math.abs(y) < 1e-3) ? y.toExponential(1) : Number(y.toPrecision(3)));

function axes(picture, view, unit) {
  const { width, height, left, right, bottom } = PICTURE;
  for (let i = 0; i <= 4; ++i) {
    const y = view.y0 + ((view.y1 - view.y0) * i) / 4;
    picture.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: view.py(y), y2: view.py(y) }));
    picture.append(svg("text", { x: left - 6, y: view.py(y) + 4, "text-anchor": "end" }, tick(y)));
  }
  const first = Math.ceil(view.x0), last = Math.floor(view.x1);
  for (const [x, anchor] of [[first, "start"], [last, "end"]]) {
    picture.append(svg("text", { x: view.px(x), y: height - 8, "text-anchor": first === last ? "middle" : anchor }, `${anchor === "end" || first >= last ? unit + " " : ""}${whole(x)}`));
    if (first >= last) break;
  }
}

function drawLine(picture, line, view, unit, clip) {
  const cls = `t${line.tone || 0}`;
  picture.append(svg("path", { class: cls, "clip-path": `url(#${clip})`, d: line.points.map(([x, y], k) => `${k ? "L" : "M"}${view.px(x).toFixed(1)} ${view.py(y).toFixed(1)}`).join("") }));
  const shown = line.points.filter(([x]) => x >= view.x0 && x <= view.x1);
  for (const [x, y] of shown.length <= 40 ? shown : shown.slice(-1)) {
    const dot = svg("circle", { class: cls, cx: view.px(x), cy: view.py(y), r: 3 });
    dot.append(svg("title", {}, `${unit} ${whole(x)}: ${line.name} ${figure(y)}`));
    picture.append(dot);
  }
}

// Where on the x axis a pointer is; the picture may be drawn at any size.
function placeOf(picture, event, view) {
  const box = picture.getBoundingClientRect();
  const x = ((event.clientX - box.left) / box.width) * PICTURE.width;
  return view.x0 + ((Math.min(PICTURE.width - PICTURE.right, Math.max(PICTURE.left, x)) - PICTURE.left) / (PICTURE.width - PICTURE.left - PICTURE.right)) * (view.x1 - view.x0);
}

function zoomBy(key, view, whole, event) {
  const size = view.x1 - view.x0, middle = (view.x0 + view.x1) / 2;
  const to = { "+": [middle - size / 4, middle + size / 4], "-": [middle - size, middle + size], ArrowLeft: [view.x0 - size / 4, view.x1 - size / 4], ArrowRight: [view.x0 + size / 4, view.x1 + size / 4], Escape: whole }[event.key === "=" ? "+" : event.key];
  if (!to) return false;
  let [from, end] = to;
  if (end - from >= whole[1] - whole[0] || event.key === "Escape") return zooms.delete(key), true;
  if (from < whole[0]) [from, end] = [whole[0], whole[0] + end - from];
  if (end > whole[1]) [from, end] = [whole[1] - (end - from), whole[1]];
  zooms.set(key, [from, end]);
  return true;
}

// redraw: draws the chart anew, with the zoom as it is now.
function followPointer(picture, key, view, whole, redraw) {
  let from = 0, at = 0, shade = null;
  const left = (x) => Math.min(view.px(from), view.px(x));
  picture.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    from = at = placeOf(picture, event, view);
    drag.key = key;
    picture.setPointerCapture(event.pointerId);
    shade = svg("rect", { class: "shade", y: PICTURE.top, height: PICTURE.height - PICTURE.top - PICTURE.bottom, x: view.px(from), width: 0 });
    picture.append(shade);
    event.preventDefault();
    picture.focus();
  });
  picture.addEventListener("pointermove", (event) => {
    if (!shade) return;
    at = placeOf(picture, event, view);
    shade.setAttribute("x", left(at));
    shade.setAttribute("width", Math.abs(view.px(at) - view.px(from)));
  });
  const end = (zoom) => {
    if (!shade) return;
    shade.remove();
    shade = null;
    drag.key = "";
    if (!zoom || Math.abs(view.px(at) - view.px(from)) < DRAG_MIN) return;
    zooms.set(key, [Math.min(from, at), Math.max(from, at)]);
    redraw();
  };
  picture.addEventListener("pointerup", () => end(true));
  picture.addEventListener("pointercancel", () => end(false));
  picture.addEventListener("dblclick", () => { if (zooms.delete(key)) redraw(); });
  picture.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !zoomBy(key, view, whole, event)) return;
    event.preventDefault();
    redraw();
  });
}

let charts = 0; // for ids

// place: the page, in which titles are unique. lines: [{name, points: [[x, y]...], tone: 0 to 7}]; x grows. Null where
// there is nothing to draw.
function chart(place, title, lines, unit) {
  lines = lines.map((l) => ({ ...l, points: thin(l.points.filter(([, y]) => Number.isFinite(y))) })).filter((l) => l.points.length > 0);
  if (lines.length === 0) return null;
  const key = `${place}/${title}`, total = rangeOf(lines.flatMap((l) => l.points.map(([x]) => x)));
  const box = el("div", { class: "chart" });
  const draw = (focus) => {
    const [x0, x1] = zooms.get(key) || total;
    const seen = lines.map((l) => ({ ...l, points: within(l.points, [x0, x1]) }));
    const inside = seen.flatMap((l) => l.points.filter(([x]) => x >= x0 && x <= x1).map(([, y]) => y));
    const [y0, y1] = rangeOf(inside.length ? inside : lines.flatMap((l) => l.points.map(([, y]) => y)));
    const { width, height, left, right, top, bottom } = PICTURE;
    const view = { x0, x1, y0, y1, px: (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right), py: (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - top - bottom) };
    const clip = `clip${++charts}`, zoomed = zooms.has(key);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": `${title}: ${lines.map((l) => `${l.name} ${figure(l.points.at(-1)[1])}`).join(", ")}${zoomed ? `; ${unit} ${whole(x0)} to ${whole(x1)}` : ""}. Plus and minus zoom, arrows move, Escape shows all.` });
    const path = svg("clipPath", { id: clip });
    path.append(svg("rect", { x: left, y: 0, width: width - left - right, height }));
    picture.append(path);
    axes(picture, view, unit);
    for (const line of seen) drawLine(picture, line, view, unit, clip);
    followPointer(picture, key, view, total, () => draw(true));
    const keys = lines.map((l) => el("span", { class: `key t${l.tone || 0}` }, el("i", {}), `${l.name} ${figure(l.points.at(-1)[1])}`));
    const all = zoomed ? el("button", { onclick: () => { zooms.delete(key); draw(true); } }, "all") : "";
    box.replaceChildren(el("div", { class: "title" }, el("span", {}, title), keys, all), picture);
    if (focus) picture.focus();
  };
  draw(false);
  return box;
}
