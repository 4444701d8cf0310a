// What the pages change: jobs and nodes, by POST below /api/v1 (actions.h). The header and the type are what no other site can send. Before what
// cannot be taken back there is a question (#ask); what came of it is said in #said, for eyes and for readers of screens.
"use strict";

const RIGHTS_MS = 30000;
const ACTION_TIMEOUT_MS = 20000; // the coordinator answers within 12 s
const SAID_MS = 1000;

const acting = { rights: null, at: -Infinity, saidAt: -Infinity, busy: new Set() };

const ENDED = new Set(["SUCCEEDED", "ENDED_WITH_ERRORS", "FAILED", "CANCELLED"]);

// ---- rights ----

// What this caller may do; asked for now and then. If that fails, what the page shows fails too, and says why.
async function readRights() {
  if (performance.now() - acting.at < RIGHTS_MS) return;
  const rights = await get("/api/v1/rights").catch(() => null);
  if (rights === null) return;
  acting.rights = rights;
  acting.at = performance.now();
}

const may = (what) => acting.rights !== null && acting.rights[what] === true;

// ---- asking and saying ----

const asking = () => document.getElementById("ask").open;

// Resolves to whether the answer is yes. Escape is no.
function ask(title, text, verb) {
  const dialog = document.getElementById("ask");
  document.getElementById("ask-title").textContent = title;
  document.getElementById("ask-text").textContent = text;
  document.getElementById("ask-yes").textContent = verb;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

for (const answer of ["yes", "no"]) document.getElementById(`ask-${answer}`).addEventListener("click", () => document.getElementById("ask").close(answer));

function say(text, bad) {
  const said = document.getElementById("said");
  said.textContent = text;
  said.className = text === "" ? "" : bad ? "error" : "done";
  acting.saidAt = performance.now();
}

// It stands until the reader goes to another view; not when the change itself goes there.
window.addEventListener("hashchange", () => { if (performance.now() - acting.saidAt > SAID_MS) say(""); });

// ---- changing ----

// Errors have the status of HTTP, if there is one.
async function post(path, body) {
  const headers = { "content-type": "application/json", "x-cairn-action": "1" };
  // Its own referrer policy: with that of the pages some browsers send "Origin: null", which is refused.
  const options = { method: "POST", headers, body: JSON.stringify(body), referrerPolicy: "same-origin" };
  const answer = await reach(path, ACTION_TIMEOUT_MS, options).catch((error) => {
    error.message += "; the change may still be made: look before you repeat it";
    throw error;
  });
  if (answer.type === "opaqueredirect") {
    const standby = await leaderElsewhere();
    throw Object.assign(new Error(`nothing was changed: ${standby.message}`), { pages: standby.pages });
  }
  const text = await answer.text();
  let read = {};
  try {
    read = JSON.parse(text);
  } catch { /* not JSON: shown as it is */ }
  if (!answer.ok) throw Object.assign(new Error(read.error || text.trim() || `HTTP ${answer.status}`), { status: answer.status });
  return read;
}

// One change at a time of each key. done: what is said when it was made. Returns whether it was.
async function act(key, path, body, done) {
  if (acting.busy.has(key)) return false;
  acting.busy.add(key);
  say("…");
  try {
    say(done(await post(path, body)));
    return true;
  } catch (error) {
    say(error.message, true);
    return false;
  } finally {
    acting.busy.delete(key);
    refresh();
  }
}

async function cancelJob(job) {
  const id = job.job_id, name = (job.spec || {}).name;
  if (!(await ask(`Cancel job ${id}?`, `“${name}” ends where it is. The weights that it has now are kept and can be exported.`, "Cancel the job"))) return;
  await act(`cancel ${id}`, `/api/v1/jobs/${id}/cancel`, {}, (now) => `job ${id} “${name}”: ${lower(now.state)}`);
}

async function deleteJob(job) {
  const id = job.job_id, name = (job.spec || {}).name;
  if (!(await ask(`Delete job ${id}?`, `“${name}”, its figures and its weights are deleted for ever. Checkpoints and files that it wrote stay.`, "Delete the job"))) return;
  if (await act(`delete ${id}`, `/api/v1/jobs/${id}/delete`, {}, () => `job ${id} “${name}” is deleted`)) location.hash = "#/";
}

async function drainNode(name, undo) {
  if (!undo && !(await ask(`Drain ${name}?`, `All work is moved off ${name}, and it gets none until it is undrained. Training goes on elsewhere.`, "Drain the node"))) return;
  await act(`drain ${name}`, `/api/v1/nodes/${encodeURIComponent(name)}/drain`, { undo }, () => (undo ? `${name} gets work again` : `${name} is drained: its work moves to others`));
}

// ---- buttons: only for who may ----

function jobButtons(job) {
  const button = (verb, change) => el("button", { class: "danger", "aria-label": `${verb} job ${job.job_id}`, onclick: () => change(job) }, verb);
  if (ENDED.has(job.state)) return may("delete") ? button("delete", deleteJob) : "";
  return may("cancel") ? button("cancel", cancelJob) : "";
}

// node: a row of /api/v1/overview.
function drainButton(node) {
  if (!node.may_drain || node.state === "dead" || node.state === "unknown") return "";
  const verb = node.draining ? "undrain" : "drain";
  return el("button", { "aria-label": `work of ${node.name}: ${verb}`, onclick: () => drainNode(node.name, node.draining) }, verb);
}
