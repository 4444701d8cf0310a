// The views "#/log/NODE" (a daemon's log; without a name the coordinator's) and "#/joblog/ID" (what all daemons logged of a job), from /api/v1/logs.
"use strict";

const LINES_ASKED = 300;
const DAEMONS_ASKED = 6; // of a job's at the same time; the coordinator limits them

const logView = { level: "all" };

async function readLog(node, job) {
  const path = `/api/v1/logs?node=${encodeURIComponent(node)}${job ? `&job=${job}` : ""}&level=${logView.level}&limit=${LINES_ASKED}`;
  try {
    return await get(path);
  } catch (error) {
    if (error.pages) throw error; // of another coordinator
    return { node: node || "coordinator", lines: [], dropped: 0, error: error.message };
  }
}

// The logs of all daemons that are alive, of one job.
async function readJobLog(job) {
  const { nodes } = await get("/api/v1/nodes");
  const names = ["", ...nodes.filter((n) => n.alive).map((n) => n.name)], logs = [];
  while (names.length > 0) logs.push(...(await Promise.all(names.splice(0, DAEMONS_ASKED).map((name) => readLog(name, job)))));
  return { job, logs };
}

const readNodeLog = async (node) => ({ node: node || "coordinator", logs: [await readLog(node, "")] });

const LEVEL_TONE = { warning: "warn", error: "bad" };

// answer: {job or node, logs: what /api/v1/logs gave, or {node, error}}.
function showLog(answer) {
  const title = answer.job ? `Log of job ${answer.job}` : `Log of ${answer.node}`;
  document.title = `${title} · Cairn`;
  const lines = answer.logs.flatMap((log) => log.lines.map((line) => ({ ...line, node: log.node }))).sort((a, b) => a.unix_ms - b.unix_ms).slice(-LINES_ASKED);
  const choose = (level) => el("button", { class: logView.level === level ? "on" : "", onclick: () => { logView.level = level; refresh(); } }, level);
  const head = el("section", { class: "card" },
    el("div", { class: "head" }, answer.job ? el("a", { href: `#/job/${answer.job}` }, `← job ${answer.job}`) : el("a", { href: "#/" }, "← all nodes"), el("h1", {}, title),
      el("div", { class: "right" }, choose("all"), choose("info"), choose("warning"), choose("error"))),
    answer.logs.filter((log) => log.error).map((log) => el("div", { class: "error" }, `${log.node}: ${log.error}`)),
    el("p", { class: "quiet" }, `The newest ${plural(LINES_ASKED, "line")} at most that the ${answer.job ? "daemons have" : "daemon has"} in memory; cairn logs prints more, and follows.`),
    lines.length === 0 ? el("p", { class: "quiet" }, "No lines.") : el("div", { class: "log", tabindex: 0, role: "log", "aria-label": title },
      lines.map((line) => el("div", { class: LEVEL_TONE[line.level] || "" }, el("b", {}, new Date(line.unix_ms).toLocaleTimeString()), " ", answer.job ? el("i", {}, `${line.node} `) : "", line.text))));
  return [head];
}
