// The view "#/compare/ID,ID...": curves of several jobs in one picture each, and where their specs differ.
"use strict";

const COMPARED_MAX = TONES;
const DIFFERENCES_MAX = 200;

// {path of a field: its text}, of all fields of a value.
function flat(value, path = "", out = {}) {
  if (value === null || typeof value !== "object") out[path] = String(value);
  else for (const [name, inner] of Object.entries(value)) flat(inner, Array.isArray(value) ? `${path}[${name}]` : path ? `${path}.${name}` : name, out);
  return out;
}

function comparedCurves(jobs) {
  const trained = (job) => (job.epochs || []).filter((e) => e.train && e.train.examples > 0);
  const curves = new Map(); // title: lines
  const put = (title, job, tone, points) => {
    if (points.length === 0) return;
    if (!curves.has(title)) curves.set(title, []);
    curves.get(title).push({ name: `job ${job.job_id}`, tone, points });
  };
  jobs.forEach((job, tone) => {
    const epochs = trained(job);
    for (const name of new Set(epochs.flatMap((e) => names(e.train)))) put(name, job, tone, epochs.map((e) => [e.epoch + 1, e.train[name]]));
    const validated = epochs.filter((e) => e.validation && e.validation.examples > 0);
    for (const name of new Set(validated.flatMap((e) => names(e.validation)))) put(`val_${name}`, job, tone, validated.map((e) => [e.epoch + 1, e.validation[name]]));
    put("learning rate", job, tone, epochs.map((e) => [e.epoch + 1, e.learning_rate]));
    put("images per second", job, tone, epochs.filter((e) => e.images_per_second > 0).map((e) => [e.epoch + 1, e.images_per_second]));
  });
  return [...curves].map(([title, lines]) => chart("compare", title, lines, "epoch")).filter(Boolean);
}

function differences(jobs) {
  const fields = jobs.map((job) => flat(job.spec || {}));
  const paths = [...new Set(fields.flatMap(Object.keys))].filter((path) => new Set(fields.map((f) => f[path])).size > 1);
  if (paths.length === 0) return el("p", { class: "quiet" }, "Their specs are the same.");
  const more = paths.length > DIFFERENCES_MAX ? el("p", { class: "quiet" }, `The first ${DIFFERENCES_MAX} of ${whole(paths.length)} fields.`) : "";
  return [table([{ name: "Field", cls: "wide", of: (path) => el("code", {}, path) },
    ...jobs.map((job, i) => ({ name: `Job ${job.job_id}`, cls: "wide", of: (path) => fields[i][path] ?? "" }))], paths.slice(0, DIFFERENCES_MAX)), more];
}

function lastFigures(job) {
  const last = (job.epochs || []).filter((e) => e.train && e.train.examples > 0).at(-1);
  if (!last) return "";
  const validation = last.validation && last.validation.examples > 0 ? names(last.validation).map((name) => [`val_${name}`, last.validation[name]]) : [];
  return figures([...names(last.train).map((name) => [name, last.train[name]]), ...validation]);
}

// jobs: JobStatus as JSON, or {job_id, error}.
function showCompare(jobs) {
  document.title = "Compare · Cairn";
  const there = jobs.filter((job) => !job.error), drawn = comparedCurves(there);
  const tone = (job) => there.indexOf(job);
  const head = el("section", { class: "card" },
    el("div", { class: "head" }, el("a", { href: "#/" }, "← all jobs"), el("h1", {}, "Compare jobs")),
    jobs.filter((job) => job.error).map((job) => el("div", { class: "error" }, `job ${job.job_id}: ${job.error}`)),
    there.length === 0 ? "" : table([
      { name: "Job", of: (job) => el("span", { class: `key t${tone(job)}` }, el("i", {}), el("a", { href: `#/job/${job.job_id}` }, `${job.job_id}`)) },
      { name: "Name", cls: "name", of: (job) => (job.spec || {}).name },
      { name: "State", of: (job) => statePill(job.state) },
      { name: "Epochs", cls: "number", of: (job) => `${(job.epochs || []).length} / ${(job.spec || {}).epochs}` },
      { name: "Newest epoch", cls: "wide", of: lastFigures }], there));
  const curves = card("Curves", [], drawn.length ? el("div", { class: "charts" }, drawn) : el("p", { class: "quiet" }, "No epoch has ended yet."));
  return there.length === 0 ? [head] : [head, curves, card("What differs", [], differences(there))];
}
