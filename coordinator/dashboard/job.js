// The view "#/job/ID": curves, places, checkpoints, events and epochs of one job, from /api/v1/jobs/ID.
"use strict";

const CELLS_MAX = 600; // of one node, of partitions and of replicas
const ROWS_MAX = 200; // of epochs; the newest

// ---- one job ----

const names = (sums) => Object.keys(sums || {}).filter((name) => name !== "examples");

function chartsCard(job) {
  const epochs = job.epochs.filter((e) => e.train && (e.train.examples > 0 || e.seconds > 0));
  const wanted = [...new Set(epochs.flatMap((e) => [...names(e.train), ...names(e.validation)]))];
  const curve = (of, name) => epochs.filter((e) => of(e) && of(e).examples > 0).map((e) => [e.epoch + 1, of(e)[name]]);
  const charts = wanted.map((name) => chart(`job ${job.job_id}`, name, [
    { name: "train", points: curve((e) => e.train, name) },
    { name: "validation", tone: 1, points: curve((e) => e.validation, name) }], "epoch"));
  const steps = job.validations || [];
  for (const name of new Set(steps.flatMap((v) => names(v.sums)))) {
    charts.push(chart(`job ${job.job_id}`, `${name}, by step`, [{ name: "validation", tone: 1, points: steps.map((v) => [v.step, v.sums[name]]) }], "step"));
  }
  const rates = new Set(epochs.map((e) => e.learning_rate));
  if (rates.size > 1) charts.push(chart(`job ${job.job_id}`, "learning rate", [{ name: "rate", points: epochs.map((e) => [e.epoch + 1, e.learning_rate]) }], "epoch"));
  if (epochs.some((e) => e.images_per_second > 0)) {
    charts.push(chart(`job ${job.job_id}`, "images per second", [{ name: "train", points: epochs.map((e) => [e.epoch + 1, e.images_per_second]) }], "epoch"));
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

function jobEventsCard(job) {
  const events = [...(job.events || [])].reverse();
  if (events.length === 0) return null;
  return card("Events", el("span", { class: "quiet" }, "newest first"), eventList(events, () => ""));
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
      el("div", { class: "right" }, jobButtons(job), el("a", { href: `#/joblog/${job.job_id}` }, "log"), el("a", { href: `/api/v1/jobs/${job.job_id}` }, "JSON"))),
    job.reason ? el("p", { class: job.state === "FAILED" ? "error" : "reason" }, job.reason) : "",
    degradedText(job.degraded),
    job.total_steps > 0 ? [el("div", {}, `step ${whole(job.step)} of ${whole(job.total_steps)}, epoch ${Math.min(job.epoch + 1, spec.epochs)} of ${spec.epochs}`,
      job.state === "RUNNING" && job.images_per_second !== undefined ? `, ${whole(job.images_per_second)} images/s, ${timeLeft(job.total_steps - job.step, spec.batch_size, job.images_per_second)}` : ""), bar(job.step, job.total_steps)] : "",
    job.state === "RUNNING" ? now : "");
  const pair = (...cards) => { const there = cards.filter(Boolean); return there.length ? el("div", { class: "columns" }, there) : null; };
  return [head, chartsCard(job), pair(factsCard(job), replicasCard(job)), partitionsCard(job), checkpointsCard(job), jobEventsCard(job), notesCard(job), epochsCard(job)].filter(Boolean);
}
