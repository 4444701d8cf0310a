// The coordinator's dashboard. Two views: "#/" (nodes and jobs, from /api/v1/overview) and "#/job/ID" (from /api/v1/jobs/ID).
//
// All that comes from the cluster becomes text nodes and attributes of elements made here, never HTML: names, paths and reasons are users' words.
"use strict";

const REFRESH_MS = 2000;
const TIMEOUT_MS = 8000;
const JOBS_A_PAGE = 50;
const NODES_A_PAGE = 50;
const CELLS_MAX = 600; // of one node, of partitions and of replicas
const POINTS_MAX = 600; // of a curve
const ROWS_MAX = 200; // of epochs; the newest

const view = { jobs: "all", offset: 0, nodes: 0, hash: "", serial: 0 };

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

function bar(done, total) {
  const inside = el("i", {});
  inside.style.width = `${total > 0 ? Math.min(100, (100 * done) / total) : 0}%`;
  return el("div", { class: "bar" }, inside);
}

function figures(list) {
  return el("div", { class: "figures" }, list.map(([name, value]) => el("span", {}, el("b", {}, name), figure(value))));
}

// ---- the overview ----

function tile(value, label, note, bad) {
  return el("div", { class: "tile" }, el("div", { class: "value" }, value), el("div", { class: "label" }, label),
    el("div", { class: `note${bad ? " bad" : ""}` }, note || ""));
}

function tiles(o) {
  const unknown = o.nodes.filter((n) => n.state === "unknown").length;
  const alive = o.nodes.filter((n) => n.state !== "dead" && n.state !== "unknown");
  const of = (role) => alive.filter((n) => n.role === role);
  const sum = (list, field) => list.reduce((all, n) => all + n[field], 0);
  const dead = o.nodes.length - alive.length - unknown, failed = o.nodes.filter((n) => n.state === "failed").length;
  const trouble = [unknown && `${unknown} not heard of yet`, dead && `${dead} dead`, failed && `${failed} failed`].filter(Boolean).join(", ");
  const workers = of("worker"), states = o.jobs_in_state;
  const running = (states.RUNNING || 0) + (states.STARTING || 0) + (states.FINALIZING || 0);
  return el("div", { class: "tiles" },
    tile(whole(alive.length), "nodes alive", trouble || `${of("ps").length} ps, ${workers.length} workers`, dead + failed > 0),
    tile(`${sum(workers, "slots_used")} / ${sum(workers, "slots")}`, "worker slots in use", of("evaluator").length ? plural(of("evaluator").length, "evaluator") : ""),
    tile(whole(running), "jobs running", states.QUEUED ? `${states.QUEUED} queued` : ""),
    tile(o.images_per_second === null ? "–" : whole(o.images_per_second), "images/s, all jobs", ""),
    tile(whole(sum(of("ps"), "primaries")), "partitions served", `${whole(sum(of("ps"), "backups"))} backups`),
    tile(whole(states.SUCCEEDED || 0), "jobs succeeded", states.FAILED ? `${states.FAILED} failed` : "", states.FAILED > 0));
}

function pager(first, shown, total, size, go) {
  if (total <= size && first === 0) return [];
  return [el("span", { class: "quiet" }, `${first + 1}–${first + shown} of ${whole(total)}`),
    el("button", { disabled: first === 0, onclick: () => go(Math.max(0, first - size)), "aria-label": "previous" }, "‹"),
    el("button", { disabled: first + shown >= total, onclick: () => go(first + size), "aria-label": "next" }, "›")];
}

function jobsCard(o) {
  const choose = (name) => el("button", { class: view.jobs === name ? "on" : "", onclick: () => { view.jobs = name; view.offset = 0; refresh(); } }, name);
  const right = [...pager(o.jobs_offset, o.jobs.length, o.jobs_total, JOBS_A_PAGE, (offset) => { view.offset = offset; refresh(); }),
    choose("all"), choose("active"), choose("ended")];
  if (o.jobs.length === 0) {
    return card("Jobs", right, el("p", { class: "quiet" }, view.jobs === "all" ? ["No jobs yet. Submit one: ", el("code", {}, "cairn submit FILE")] : "None."));
  }
  return card("Jobs", right, table([
    { name: "ID", of: (j) => el("a", { href: `#/job/${j.id}` }, j.id) },
    { name: "Name", cls: "name", of: (j) => el("a", { href: `#/job/${j.id}` }, j.name) },
    { name: "State", of: (j) => [statePill(j.state), degradedPill(j.degraded), j.not_finite ? pill("loss not finite", "bad") : ""] },
    { name: "Step", cls: "whole", of: (j) => (j.total_steps > 0 ? [`${whole(j.step)} / ${whole(j.total_steps)}`, bar(j.step, j.total_steps)] : "") },
    { name: "Epoch", cls: "number", of: (j) => (j.total_steps > 0 ? `${Math.min(j.epoch + 1, j.epochs)} / ${j.epochs}` : "") },
    { name: "Images/s", cls: "number", of: (j) => (j.state === "RUNNING" && j.images_per_second !== null ? whole(j.images_per_second) : "") },
    { name: "Figures", cls: "wide", of: (j) => [j.figures.length ? figures(j.figures) : "", j.reason ? el("div", { class: "reason" }, j.reason) : "", degradedText(j.degraded)] },
  ], o.jobs));
}

function work(n) {
  if (n.role === "worker") return [`${n.slots_used} of ${plural(n.slots, "slot")}`, bar(n.slots_used, n.slots)];
  if (n.role !== "ps") return "";
  return `${plural(n.primaries, "partition")}${n.backups > 0 ? ` + ${plural(n.backups, "backup")}` : ""}`;
}

function nodesCard(o) {
  view.nodes = Math.min(view.nodes, Math.max(0, o.nodes.length - 1));
  const page = o.nodes.slice(view.nodes, view.nodes + NODES_A_PAGE);
  const right = pager(view.nodes, page.length, o.nodes.length, NODES_A_PAGE, (first) => { view.nodes = first; refresh(); });
  if (page.length === 0) {
    return card("Nodes", right, el("p", { class: "quiet" }, "No nodes yet. Start ", el("code", {}, "cairn-ps"), " and ", el("code", {}, "cairn-worker"), " with --coordinator."));
  }
  const seen = (n) => duration((o.now_unix_ms - n.last_heartbeat_unix_ms) / 1000);
  return card("Nodes", right, table([
    { name: "Name", cls: "name", of: (n) => n.name },
    { name: "Role", of: (n) => n.role },
    { name: "State", of: (n) => [pill(n.state === "dead" ? `dead for ${seen(n)}` : n.state === "unknown" ? "not heard of yet" : n.state, NODE_TONE[n.state]), el("div", { class: "reason" }, n.fault || n.not_ready)] },
    { name: "Work", cls: "whole", of: work },
    { name: "Memory", cls: "number", of: (n) => (n.memory_bytes === null ? "" : bytes(n.memory_bytes)) },
    { name: "Device", cls: "wide", of: (n) => n.device },
    { name: "Host", cls: "whole", of: (n) => n.host },
    { name: "Address", cls: "whole", of: (n) => n.address },
    { name: "Joined", cls: "number", of: (n) => `${duration((o.now_unix_ms - n.joined_unix_ms) / 1000)} ago` },
  ], page));
}

function showOverview(o) {
  document.title = "Cairn";
  return [tiles(o), jobsCard(o), nodesCard(o)];
}

// ---- one job ----

// Every n-th point, and the last one.
function thin(points) {
  const stride = Math.ceil(points.length / POINTS_MAX);
  return points.filter((_, i) => i % stride === 0 || i === points.length - 1);
}

// lines: [{name, points: [[x, y]...]}, at most two]. Null where there is nothing to draw.
function chart(title, lines, unit) {
  lines = lines.map((l) => ({ ...l, points: thin(l.points.filter(([, y]) => Number.isFinite(y))) })).filter((l) => l.points.length > 0);
  if (lines.length === 0) return null;
  const all = lines.flatMap((l) => l.points), xs = all.map((p) => p[0]), ys = all.map((p) => p[1]);
  let [x0, x1] = [Math.min(...xs), Math.max(...xs)], [y0, y1] = [Math.min(...ys), Math.max(...ys)];
  if (x0 === x1) x0 -= 0.5, x1 += 0.5;
  if (y0 === y1) y0 -= Math.abs(y0) / 10 || 0.5, y1 += Math.abs(y1) / 10 || 0.5;
  const W = 360, H = 190, left = 52, right = 10, top = 10, bottom = 24;
  const px = (x) => left + ((x - x0) / (x1 - x0)) * (W - left - right), py = (y) => H - bottom - ((y - y0) / (y1 - y0)) * (H - top - bottom);
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title });
  for (let i = 0; i <= 4; ++i) {
    const y = y0 + ((y1 - y0) * i) / 4;
    picture.append(svg("line", { class: "grid", x1: left, x2: W - right, y1: py(y), y2: py(y) }));
    picture.append(svg("text", { x: left - 6, y: py(y) + 4, "text-anchor": "end" }, Math.abs(y) >= 1e5 || (y !== 0 && Math.abs(y) < 1e-3) ? y.toExponential(1) : Number(y.toPrecision(3))));
  }
  for (const [x, anchor] of [[Math.ceil(x0), "start"], [Math.floor(x1), "end"]]) {
    picture.append(svg("text", { x: px(x), y: H - 8, "text-anchor": xs.length === 1 ? "middle" : anchor }, `${anchor === "end" ? unit + " " : ""}${whole(x)}`));
    if (Math.ceil(x0) >= Math.floor(x1)) break;
  }
  lines.forEach((line, i) => {
    const cls = line.second ? "second" : "";
    picture.append(svg("path", { class: cls, d: line.points.map(([x, y], k) => `${k ? "L" : "M"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`).join("") }));
    for (const [x, y] of line.points.length <= 40 ? line.points : line.points.slice(-1)) {
      const dot = svg("circle", { class: cls, cx: px(x), cy: py(y), r: 3 });
      dot.append(svg("title", {}, `${unit} ${whole(x)}: ${line.name} ${figure(y)}`));
      picture.append(dot);
    }
  });
  const keys = lines.map((l) => el("span", { class: `key ${l.second ? "second" : ""}` }, el("i", {}), `${l.name} ${figure(l.points.at(-1)[1])}`));
  return el("div", { class: "chart" }, el("div", { class: "title" }, title, keys), picture);
}

const names = (sums) => Object.keys(sums || {}).filter((name) => name !== "examples");

function chartsCard(job) {
  const epochs = job.epochs.filter((e) => e.train && (e.train.examples > 0 || e.seconds > 0));
  const wanted = [...new Set(epochs.flatMap((e) => [...names(e.train), ...names(e.validation)]))];
  const curve = (of, name) => epochs.filter((e) => of(e) && of(e).examples > 0).map((e) => [e.epoch + 1, of(e)[name]]);
  const charts = wanted.map((name) => chart(name, [
    { name: "train", points: curve((e) => e.train, name) },
    { name: "validation", second: true, points: curve((e) => e.validation, name) }], "epoch"));
  const steps = job.validations || [];
  for (const name of new Set(steps.flatMap((v) => names(v.sums)))) {
    charts.push(chart(`${name}, by step`, [{ name: "validation", second: true, points: steps.map((v) => [v.step, v.sums[name]]) }], "step"));
  }
  const rates = new Set(epochs.map((e) => e.learning_rate));
  if (rates.size > 1) charts.push(chart("learning rate", [{ name: "rate", points: epochs.map((e) => [e.epoch + 1, e.learning_rate]) }], "epoch"));
  if (epochs.some((e) => e.images_per_second > 0)) {
    charts.push(chart("images per second", [{ name: "train", points: epochs.map((e) => [e.epoch + 1, e.images_per_second]) }], "epoch"));
  }
  const drawn = charts.filter(Boolean);
  return card("Curves", [], drawn.length ? el("div", { class: "charts" }, drawn) : el("p", { class: "quiet" }, "The first epoch has not ended yet."));
}

function cells(list) {
  return el("div", { class: "cells" }, list.slice(0, CELLS_MAX), list.length > CELLS_MAX ? el("span", { class: "quiet" }, `and ${whole(list.length - CELLS_MAX)} more`) : "");
}

function partitionsCard(job) {
  const parts = job.partitions || [];
  if (parts.length === 0) return null;
  const by = new Map();
  const put = (node, cls, title) => {
    const key = node || "(waiting)";
    if (!by.has(key)) by.set(key, []);
    by.get(key).push({ cls, title });
  };
  let behind = 0, backups = 0;
  for (const p of parts) {
    const range = `partition ${p.partition}: ${whole(p.end - p.begin)} numbers`;
    put(p.primary, p.primary ? "cell" : "cell none", `${range}, ${p.primary ? "primary" : "no ps serves it"}`);
    for (const b of p.backups || []) {
      ++backups;
      const how = b.in_sync ? "backup" : b.former ? "former" : "behind";
      behind += how === "behind";
      put(b.node, `cell ${how}`, `${range}, backup ${b.in_sync ? "in sync" : b.former ? "of a ps that was lost: in sync until then" : "not in sync yet"}`);
    }
  }
  const rows = [...by].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true })).map(([node, list]) => [
    el("div", { class: "node" }, node), cells(list.map((c) => el("div", { class: c.cls, title: c.title })))]);
  const key = (cls, text) => el("span", {}, el("div", { class: `cell ${cls}` }), text);
  const right = el("span", { class: "quiet" }, plural(parts.length, "partition"), backups ? `, ${plural(backups, "backup")}` : "", behind ? `, ${behind} not in sync` : "");
  return card("Partitions by ps", right, el("div", { class: "place" }, rows), el("div", { class: "legend" }, key("", "primary"), backups
    ? [key("backup", "backup in sync"), key("behind", "backup not in sync"), key("former", "of a lost ps")] : []));
}

function replicasCard(job) {
  const replicas = job.replicas || [];
  if (replicas.length === 0) return null;
  const by = new Map();
  for (const r of replicas) by.set(r.worker || "(waiting)", [...(by.get(r.worker || "(waiting)") || []), r.replica]);
  const rows = [...by].map(([worker, list]) => [
    el("div", { class: "node" }, worker, worker === job.chief ? [" ", pill("chief", "plain")] : ""),
    cells(list.map((r) => el("span", { class: "chip" }, r)))]);
  return card("Replicas by worker", el("span", { class: "quiet" }, plural(replicas.length, "replica")), el("div", { class: "place" }, rows));
}

function optimizerText(optimizer) {
  if (!optimizer) return "";
  const kinds = ["sgd", "adagrad", "rmsprop", "adam", "adamw", "adadelta", "adamax", "nadam", "ftrl", "lion",
    "lamb", "adafactor", "muon", "schedule_free_adamw"];
  const kind = kinds.find((k) => optimizer[k] !== undefined) || "";
  return `${kind}, learning rate ${optimizer.learning_rate ?? 0}`;
}

function factsCard(job) {
  const spec = job.spec || {}, data = job.data || {}, model = spec.model || {}, layers = (model.layers || []).length;
  return card("Job", [], facts([
    ["model", `${model.name ? model.name + ": " : ""}${plural(layers, "layer")}, ${whole(job.parameters)} parameters (${whole(job.trainable_parameters)} trainable)`],
    ["data", `${(spec.data || {}).path || ""}${data.train_examples ? ` (${whole(data.train_examples)} train, ${whole(data.validation_examples || 0)} validation, ${whole(data.test_examples || 0)} test)` : ""}`],
    ["optimizer", optimizerText(spec.optimizer)],
    ["strategy", lower(spec.strategy || "")],
    ["training", `batch ${spec.batch_size}, ${plural(spec.epochs || 0, "epoch")}, ${plural(spec.replicas || 0, "replica")}, ${plural(spec.backups || 0, "backup")}, seed ${spec.seed || 0}`],
    ["learning rate", job.learning_rate ? String(Number(job.learning_rate.toPrecision(6))) : ""],
    ["loss", job.not_finite_step === undefined ? "" : pill(`not finite since step ${whole(job.not_finite_step)}`, "bad")],
    ["loss scale", job.loss_scale ? whole(job.loss_scale) : ""],
    ["staleness", job.staleness_max ? `${job.staleness_mean.toFixed(2)} in the mean, at most ${job.staleness_max}` : ""],
    ["device", (job.devices || []).map(lower).join(", then ")],
    ["generation", job.generation],
    ["submitted", time(job.submitted_unix_ms)],
    ["started", time(job.started_unix_ms)],
    ["finished", time(job.finished_unix_ms)],
    ["restored", job.restored_from ? `from ${job.restored_from}, step ${job.restored_step}` : ""],
    ["digest", job.digest ? el("code", {}, job.digest) : ""],
  ]));
}

function checkpointsCard(job) {
  const list = [...(job.checkpoints || [])].reverse();
  if (list.length === 0 && !job.checkpoint_error) return null;
  return card("Checkpoints", el("span", { class: "quiet" }, plural(list.length, "checkpoint")),
    job.checkpoint_error ? el("div", { class: "error" }, "not written: ", job.checkpoint_error) : "",
    list.length === 0 ? "" : table([
      { name: "Step", cls: "number", of: (c) => whole(c.step) },
      { name: "Written", of: (c) => time(c.written_unix_ms) },
      { name: "", of: (c) => (c.best ? pill(`best ${figure(c.monitored)}`, "good") : "") },
      { name: "Path", cls: "wide", of: (c) => el("code", {}, c.path) }], list.slice(0, ROWS_MAX)));
}

function notesCard(job) {
  const notes = [...(job.notes || [])].reverse();
  if (notes.length === 0) return null;
  return card("Notes of callbacks", [], el("ul", { class: "notes" }, notes.map((n) => el("li", {}, el("b", {}, `epoch ${n.epoch + 1}, ${n.callback}: `), n.text))));
}

function eventsCard(job) {
  const events = [...(job.events || [])].reverse();
  if (events.length === 0) return null;
  return card("Events", el("span", { class: "quiet" }, "newest first"), el("ul", { class: "notes" }, events.map((e) =>
    el("li", {}, el("b", {}, `${time(e.unix_ms)} `), e.warning ? pill("warning", "warn") : "", e.warning ? " " : "", e.text))));
}

function epochsCard(job) {
  const epochs = job.epochs.filter((e) => e.train && (e.train.examples > 0 || e.seconds > 0)).reverse();
  if (epochs.length === 0) return null;
  const columns = [{ name: "Epoch", cls: "number", of: (e) => e.epoch + 1 }, { name: "Seconds", cls: "number", of: (e) => e.seconds.toFixed(1) }];
  for (const name of new Set(epochs.flatMap((e) => names(e.train)))) columns.push({ name, cls: "number", of: (e) => (e.train.examples > 0 ? figure(e.train[name]) : "") });
  for (const name of new Set(epochs.flatMap((e) => names(e.validation)))) {
    columns.push({ name: `val_${name}`, cls: "number", of: (e) => (e.validation && e.validation.examples > 0 ? figure(e.validation[name]) : "") });
  }
  const more = epochs.length > ROWS_MAX ? el("span", { class: "quiet" }, `the newest ${ROWS_MAX} of ${whole(epochs.length)}`) : [];
  return card("Epochs", more, table(columns, epochs.slice(0, ROWS_MAX)));
}

function showJob(job) {
  const spec = job.spec || {};
  document.title = `${spec.name} · Cairn`;
  const now = figures(names(job.epoch_sums).map((name) => [name, job.epoch_sums[name]]));
  const head = el("section", { class: "card" },
    el("div", { class: "head" }, el("a", { href: "#/" }, "← all jobs"), el("h1", {}, `Job ${job.job_id}: ${spec.name}`), statePill(job.state), degradedPill(job.degraded),
      el("div", { class: "right" }, el("a", { href: `/api/v1/jobs/${job.job_id}` }, "JSON"))),
    job.reason ? el("p", { class: job.state === "FAILED" ? "error" : "reason" }, job.reason) : "",
    degradedText(job.degraded),
    job.total_steps > 0 ? [el("div", {}, `step ${whole(job.step)} of ${whole(job.total_steps)}, epoch ${Math.min(job.epoch + 1, spec.epochs)} of ${spec.epochs}`,
      job.state === "RUNNING" && job.images_per_second !== undefined ? `, ${whole(job.images_per_second)} images/s` : ""), bar(job.step, job.total_steps)] : "",
    job.state === "RUNNING" ? now : "");
  const pair = (...cards) => { const there = cards.filter(Boolean); return there.length ? el("div", { class: "columns" }, there) : null; };
  return [head, chartsCard(job), pair(factsCard(job), replicasCard(job)), partitionsCard(job), checkpointsCard(job), eventsCard(job), notesCard(job), epochsCard(job)].filter(Boolean);
}

// ---- fetching ----

async function get(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store", redirect: "manual" });
  if (answer.type === "opaqueredirect") { // this coordinator stands by now; a page may go to the leader where a script may not
    setTimeout(() => location.reload(), REFRESH_MS);
    return new Promise(() => {});
  }
  const text = await answer.text();
  if (!answer.ok) throw new Error(text.trim() || `HTTP ${answer.status}`);
  return JSON.parse(text);
}

let timer = 0;

async function refresh() {
  clearTimeout(timer);
  const serial = ++view.serial, hash = location.hash;
  const job = /^#\/job\/(\d+)$/.exec(hash);
  const main = document.getElementById("main"), fresh = document.getElementById("fresh");
  try {
    const path = job ? `/api/v1/jobs/${job[1]}` : `/api/v1/overview?jobs=${view.jobs}&offset=${view.offset}&limit=${JOBS_A_PAGE}`;
    const answer = await get(path);
    if (serial !== view.serial) return; // another view was opened meanwhile
    if (!job && answer.jobs.length === 0 && view.offset > 0) { view.offset = 0; return refresh(); }
    const moved = view.hash !== hash;
    view.hash = hash;
    if (moved || !window.getSelection().toString()) main.replaceChildren(...(job ? showJob(answer) : showOverview(answer))); // a selection is not torn away
    if (moved) window.scrollTo(0, 0);
    if (!job) document.getElementById("who").textContent = `coordinator ${answer.coordinator} · version ${answer.version} · up ${duration(answer.up_seconds)}`;
    fresh.textContent = `as of ${new Date().toLocaleTimeString()}`;
    fresh.className = "";
  } catch (error) {
    if (serial !== view.serial) return;
    if (view.hash !== hash) main.replaceChildren(el("p", {}, el("a", { href: "#/" }, "← all jobs")), el("div", { class: "error" }, error.message));
    fresh.textContent = `not refreshed: ${error.message}`;
    fresh.className = "stale";
  }
  if (serial === view.serial) timer = setTimeout(refresh, document.hidden ? 5 * REFRESH_MS : REFRESH_MS);
}

window.addEventListener("hashchange", refresh);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
refresh();
