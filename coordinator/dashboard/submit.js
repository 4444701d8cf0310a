// The view "#/submit": a form for a job's text, or a file of it; POST /api/v1/jobs. What is written stays while other views are shown.
"use strict";

const SUBMIT_TRIES = 6; // of one submission, while workers look at its data
const SUBMIT_EXAMPLE = 'name: "digits"\nmodel {\n  layers { input { shape: [28, 28, 1] } }\n  …\n}\ndata { path: "data:/glyphs" }\n…';

const submission = { text: "", sent: null, key: "", busy: false };

const draftIsOpen = () => location.hash === "#/submit" && submission.text.trim() !== "";

// The same text has the same key until a job has come of it: a request that is made again makes no second job.
function submissionKey(text) {
  if (submission.sent !== text) {
    submission.sent = text;
    submission.key = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }
  return submission.key;
}

async function postSubmission(text) {
  for (let tries = 1; ; ++tries) {
    try {
      return await post("/api/v1/jobs", { text, request_key: submissionKey(text) });
    } catch (error) {
      if (tries >= SUBMIT_TRIES || (error.status !== 504 && error.name !== "TimeoutError")) throw error;
      say("the workers still look at the job's data…");
    }
  }
}

// "job:3:8: ..." : selects that line.
function selectFault(area, message) {
  const at = /^job:(\d+):\d+: /.exec(message);
  area.focus();
  if (!at) return;
  const lines = area.value.split("\n"), line = Math.min(Number(at[1]), lines.length) - 1;
  const begin = lines.slice(0, line).reduce((sum, one) => sum + one.length + 1, 0);
  area.setSelectionRange(begin, begin + lines[line].length);
}

async function submitJob(area, fault) {
  if (submission.busy) return;
  submission.busy = true;
  fault.hidden = true;
  say("…");
  try {
    const job = await postSubmission(area.value);
    submission.text = "";
    submission.sent = null;
    location.hash = `#/job/${job.job_id}`;
    say([`job ${job.job_id} “${job.name}” is submitted: ${lower(job.state)}`, ...(job.warnings || []).map((warning) => `warning: ${warning}`)].join("; "));
  } catch (error) {
    say("");
    fault.textContent = error.message;
    fault.hidden = false;
    selectFault(area, error.message);
  } finally {
    submission.busy = false;
  }
}

// Of the request that submits a text: its quotes and line ends are two bytes each.
const requestBytes = (text) => new Blob([JSON.stringify({ text, request_key: "0".repeat(32) })]).size;

async function takeFile(file, area, fault) {
  const most = acting.rights.request_bytes_max;
  const text = file.size <= most ? await file.text() : "";
  const size = text === "" ? file.size : requestBytes(text);
  fault.hidden = size <= most;
  fault.textContent = `${file.name}: ${bytes(size)}; a request that submits a job has at most ${bytes(most)}`;
  if (!fault.hidden) return;
  area.value = submission.text = text;
  area.focus();
}

function submitForm() {
  const area = el("textarea", { id: "job-text", rows: 20, spellcheck: "false", placeholder: SUBMIT_EXAMPLE, "aria-describedby": "job-fault" });
  const file = el("input", { id: "job-file", type: "file" });
  const fault = el("pre", { id: "job-fault", class: "error", role: "alert", hidden: true });
  area.value = submission.text;
  area.addEventListener("input", () => { submission.text = area.value; });
  file.addEventListener("change", () => { if (file.files.length > 0) takeFile(file.files[0], area, fault); });
  const form = el("form", {},
    el("label", { for: "job-text" }, "The job, as text protobuf or JSON"), area, fault,
    el("div", { class: "row" }, el("label", { for: "job-file" }, "or a file of it"), file, el("button", { class: "primary", type: "submit" }, "submit the job")));
  form.addEventListener("submit", (event) => { event.preventDefault(); submitJob(area, fault); });
  return form;
}

function showSubmit() {
  document.title = "Submit a job · Cairn";
  const why = acting.rights === null ? "Whether you may submit jobs is not known yet: open this page again." : acting.rights.read_only ? "These pages are for reading only (--http-read-only): use cairn submit." : "You may not submit jobs: that is for the roles user and admin.";
  return [el("section", { class: "card" },
    el("div", { class: "head" }, el("a", { href: "#/" }, "← all jobs"), el("h1", {}, "Submit a job")),
    may("submit") ? submitForm() : el("p", { class: "quiet" }, why),
    el("p", { class: "quiet" }, "Paths are those of the workers, absolute or below a root of theirs (data:/glyphs). A dry run, settings and models from files: cairn submit."))];
}
