// The coordinator's dashboard. Its views: "#/" (nodes, jobs and events, from /api/v1/overview), "#/job/ID" (job.js), "#/compare/ID,ID" (compare.js), logs (log.js)
// and "#/submit" (submit.js). Elements are made in elements.js, curves in chart.js; actions.js changes jobs and nodes.
"use strict";

const REFRESH_MS = 2000;
const TIMEOUT_MS = 8000;
const TYPING_MS = 250;
const JOBS_A_PAGE = 50;
const NODES_A_PAGE = 50;
const EVENTS_SHOWN = 40;

const view = { jobs: "all", name: "", offset: 0, nodes: 0, warnings: false, hash: "", serial: 0, compared: new Set() };

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

function eventsCard(o) {
  const choose = (text, warnings) => el("button", { class: view.warnings === warnings ? "on" : "", onclick: () => { view.warnings = warnings; refresh(); } }, text);
  const right = [choose("all", false), choose("warnings", true)];
  const gone = o.events_dropped > 0 ? `; ${whole(o.events_dropped)} older ones are no longer kept` : "";
  const since = el("p", { class: "quiet" }, `Since ${time(o.events_since_unix_ms)}, when this coordinator began to lead${gone}.`);
  const subject = (e) => (e.job_id ? [el("a", { href: `#/job/${e.job_id}` }, `job ${e.job_id}${e.job_name ? ` “${e.job_name}”` : ""}`), ": "] : e.node ? `${e.role} ${e.node} ` : "");
  return card("Events", right, o.events.length ? eventList(o.events, subject) : el("p", { class: "quiet" }, "None."), since);
}

// A box that puts the job among those to compare.
function compareBox(job) {
  const box = el("input", { type: "checkbox", "aria-label": `compare job ${job.id}`, checked: view.compared.has(job.id), disabled: !view.compared.has(job.id) && view.compared.size >= COMPARED_MAX });
  box.addEventListener("change", () => { if (box.checked) view.compared.add(job.id); else view.compared.delete(job.id); refresh(); });
  return box;
}

function compareLink() {
  if (view.compared.size === 0) return "";
  return [view.compared.size < 2 ? el("span", { class: "quiet" }, "choose another one to compare") : el("a", { href: `#/compare/${[...view.compared].join(",")}` }, `compare ${view.compared.size} jobs`),
    el("button", { onclick: () => { view.compared.clear(); refresh(); } }, "clear")];
}

function jobsCard(o) {
  const choose = (name) => el("button", { class: view.jobs === name ? "on" : "", onclick: () => { view.jobs = name; view.offset = 0; refresh(); } }, name);
  const right = [may("submit") ? el("a", { href: "#/submit" }, "submit a job") : "", compareLink(), ...pager(o.jobs_offset, o.jobs.length, o.jobs_total, JOBS_A_PAGE, (offset) => { view.offset = offset; refresh(); }),
    choose("all"), choose("active"), choose("ended")];
  if (o.jobs.length === 0) {
    return card("Jobs", right, el("p", { class: "quiet" }, view.name ? `No job's name contains “${view.name}”.` : view.jobs === "all" ? ["No jobs yet. Submit one: ", may("submit") ? [el("a", { href: "#/submit" }, "here"), ", or "] : "", el("code", {}, "cairn submit FILE")] : "None."));
  }
  return card("Jobs", right, table([
    { name: "", of: compareBox },
    { name: "ID", of: (j) => el("a", { href: `#/job/${j.id}` }, j.id) },
    { name: "Name", cls: "name", of: (j) => el("a", { href: `#/job/${j.id}` }, j.name) },
    { name: "State", of: (j) => [statePill(j.state), degradedPill(j.degraded), j.not_finite ? pill("loss not finite", "bad") : ""] },
    { name: "Step", cls: "whole", of: (j) => (j.total_steps > 0 ? [`${whole(j.step)} / ${whole(j.total_steps)}`, bar(j.step, j.total_steps), j.state === "RUNNING" ? el("div", { class: "reason" }, timeLeft(j.total_steps - j.step, j.batch_size, j.images_per_second)) : ""] : "") },
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
    { name: "Drain", of: drainButton },
    { name: "Log", of: (n) => (n.state === "dead" || n.state === "unknown" ? "" : el("a", { href: `#/log/${encodeURIComponent(n.name)}`, "aria-label": `log of ${n.name}` }, "log")) },
    { name: "Joined", cls: "number", of: (n) => `${duration((o.now_unix_ms - n.joined_unix_ms) / 1000)} ago` },
  ], page));
}

function showOverview(o) {
  document.title = "Cairn";
  return [tiles(o), jobsCard(o), nodesCard(o), eventsCard(o)];
}

// ---- fetching ----

// The error of a request that this coordinator, which stands by now, sends to the leader: with that one's pages, where a page may go and a script may not.
async function leaderElsewhere() {
  const leader = await get("/api/v1/leader").catch(() => ({}));
  return Object.assign(new Error(leader.text || "this coordinator stands by"), { pages: /^https?:/.test(leader.pages) ? leader.pages : "" });
}

// As fetch; an error says what it means here, and keeps its name.
async function reach(path, timeoutMs, options) {
  try {
    return await fetch(path, { signal: AbortSignal.timeout(timeoutMs), cache: "no-store", redirect: "manual", ...options });
  } catch (error) {
    throw Object.assign(new Error("this coordinator does not answer"), { name: error.name });
  }
}

async function get(path) {
  const answer = await reach(path, TIMEOUT_MS, {});
  if (answer.type === "opaqueredirect") throw await leaderElsewhere();
  const text = await answer.text();
  if (!answer.ok) throw new Error(text.trim() || `HTTP ${answer.status}`);
  return JSON.parse(text);
}

// Of each job its status, or why there is none.
function getCompared(ids) {
  const known = [...new Set(ids)].slice(0, COMPARED_MAX);
  return Promise.all(known.map((id) => get(`/api/v1/jobs/${id}`).catch((error) => {
    if (error.pages) throw error;
    return { job_id: id, error: error.message };
  })));
}

let leaving = 0;

// Says who leads, with a link, and goes there by itself, unless that would lose what is being written. error: null: this coordinator leads.
function showLeader(error) {
  const led = document.getElementById("led");
  led.hidden = error === null;
  if (error === null) {
    clearTimeout(leaving);
    leaving = 0;
    return;
  }
  led.replaceChildren(`${error.message}. Its pages: `, el("a", { href: `${error.pages}/${location.hash}` }, error.pages));
  if (leaving === 0 && !draftIsOpen()) leaving = setTimeout(() => location.reload(), REFRESH_MS);
}

// What an element that can have the focus is known by when the page is drawn anew.
function focusKey(node) {
  const label = (node.getAttribute("aria-label") || "").split(":")[0];
  return `${node.tagName} ${label || node.getAttribute("href") || node.textContent}`;
}

// Shows the new content. What has the focus keeps it.
function draw(main, content) {
  const at = document.activeElement, key = main.contains(at) ? focusKey(at) : null;
  main.replaceChildren(...content);
  if (key) ([...main.querySelectorAll("a, button, input, [tabindex]")].find((node) => focusKey(node) === key) || main).focus({ preventScroll: true });
}

const getOverview = () => get(`/api/v1/overview?jobs=${view.jobs}&name=${encodeURIComponent(view.name)}&offset=${view.offset}&limit=${JOBS_A_PAGE}&events=${EVENTS_SHOWN}&warnings=${view.warnings ? 1 : 0}`);

// By what stands behind the #: what a view asks for and how it is shown. once: it is not drawn anew while it is open.
const VIEWS = [
  { at: /^#\/job\/(\d+)$/, read: (id) => get(`/api/v1/jobs/${id}`), show: showJob },
  { at: /^#\/compare\/(\d+(?:,\d+)*)$/, read: (ids) => getCompared(ids.split(",")), show: showCompare },
  { at: /^#\/log\/(.*)$/, read: (node) => readNodeLog(decodeURIComponent(node)), show: showLog },
  { at: /^#\/joblog\/(\d+)$/, read: readJobLog, show: showLog },
  { at: /^#\/submit$/, read: () => get("/api/v1/overview?limit=0"), show: showSubmit, once: true },
  { at: /^/, read: getOverview, show: showOverview, overview: true },
];

// Neither a selection nor a drag nor a question is torn away.
const isHeld = () => window.getSelection().toString() || drag.key || asking();

let timer = 0;

async function refresh() {
  clearTimeout(timer);
  const serial = ++view.serial, hash = location.hash;
  const main = document.getElementById("main"), fresh = document.getElementById("fresh");
  const at = VIEWS.find((one) => one.at.test(hash));
  try {
    const [answer] = await Promise.all([at.read(at.at.exec(hash)[1]), readRights()]);
    if (serial !== view.serial) return; // another view was opened meanwhile
    if (at.overview && answer.jobs.length === 0 && view.offset > 0) { view.offset = 0; return refresh(); }
    const moved = view.hash !== hash;
    view.hash = hash;
    if (moved || !(at.once || isHeld())) draw(main, at.show(answer));
    if (moved) window.scrollTo(0, 0);
    if (at.overview) document.getElementById("who").textContent = `coordinator ${answer.coordinator} · version ${answer.version} · up ${duration(answer.up_seconds)}${acting.rights?.user ? ` · you are ${acting.rights.user}` : ""}`;
    showLeader(null);
    fresh.textContent = `as of ${new Date().toLocaleTimeString()}`;
    fresh.className = "";
  } catch (error) {
    if (serial !== view.serial) return;
    if (error.pages) showLeader(error);
    if (view.hash !== hash) main.replaceChildren(el("p", {}, el("a", { href: "#/" }, "← all jobs")), el("div", { class: "error" }, error.message));
    fresh.textContent = `not refreshed, asking again: ${error.message}`;
    fresh.className = "stale";
  }
  if (serial === view.serial) timer = setTimeout(refresh, document.hidden ? 5 * REFRESH_MS : REFRESH_MS);
}

let typing = 0;

document.getElementById("find").addEventListener("input", (event) => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    view.name = event.target.value.trim();
    view.offset = 0;
    if (/^#\/(submit$|(job|compare|log|joblog)\/)/.test(location.hash)) location.hash = "#/"; // refreshes
    else refresh();
  }, TYPING_MS);
});
window.addEventListener("hashchange", refresh);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
refresh();
