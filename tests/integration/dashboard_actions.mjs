// Changes a cluster by its dashboard, in Chromium and by the keyboard: a job is submitted by the form, wrong and right, seen running, kept and cancelled
// by the question's answers, deleted; a node is drained and undrained; a page of another site can do none of this.
//
//   node dashboard_actions.mjs CHROMIUM BASE JOB_FILE NODE FOLDER      JOB_FILE: a job that runs for minutes; screenshots go to FOLDER
import fs from "fs";
import http from "http";

import { Page } from "./browser.mjs";
import { looker } from "./page_checks.mjs";

const [chromium, base, jobFile, node, folder] = process.argv.slice(2);
const wrong = [];
const look = looker(wrong, folder);

const said = "document.getElementById('said').textContent";
const state = "(document.querySelector('.head .pill') || {}).textContent";
const isAsked = "document.getElementById('ask').open";
const focused = "(document.activeElement.getAttribute('aria-label') || document.activeElement.id || document.activeElement.textContent)";

async function expect(page, expression, what) {
  if (!(await page.evaluate(expression))) wrong.push(`${what}: ${expression} is not so; #said: ${await page.evaluate(said)}`);
}

// The page may be drawn anew between the two halves of a key press, which is then none.
async function raise(page, selector) {
  for (let tries = 0; tries < 20 && !(await page.evaluate(isAsked)); ++tries) await page.press(selector);
  await page.waitFor(isAsked);
}

// Answers the question that `selector` raises. verb: "yes" or "no".
async function answer(page, selector, verb) {
  await raise(page, selector);
  await expect(page, `${focused} === "ask-no"`, "the question begins with no");
  if (verb === "no") {
    await page.key("Escape", 27);
  } else {
    await page.key("Tab", 9);
    await expect(page, `${focused} === "ask-yes"`, "Tab leads to yes");
    await page.key(" ", 32);
  }
  await page.waitFor(`!${isAsked}`);
}

async function submitByForm(page) {
  await page.goTo(`${base}/#/`);
  await page.waitFor("[...document.links].some((a) => a.textContent === 'submit a job')");
  await page.evaluate("[...document.links].find((a) => a.textContent === 'submit a job').click()");
  await page.waitFor("document.getElementById('job-text') !== null");
  await page.evaluate("document.getElementById('job-text').focus()");
  await page.type('name: "wrong"\nepocs: 3\n');
  await page.press("form button[type=submit]");
  await page.waitFor("document.getElementById('job-fault')?.hidden === false");
  await expect(page, "/^job:2:6: .*no field named \"epocs\"; did you mean \"epochs\"\\?/.test(document.getElementById('job-fault').textContent)", "a wrong field is named");
  await expect(page, "document.getElementById('job-text').value.startsWith('name: \"wrong\"')", "what was written stays");
  for (const [width, scheme] of [[1400, "light"], [1400, "dark"], [400, "light"], [400, "dark"]]) {
    await page.show(width, 900, scheme);
    await look(page, `submit-${width}-${scheme}`);
  }
  // Other views are looked at meanwhile; the text stays.
  await page.goTo(`${base}/#/`);
  await page.waitFor("document.title === 'Cairn'");
  await page.goTo(`${base}/#/submit`);
  await page.waitFor("document.getElementById('job-text')?.value.startsWith('name: \"wrong\"')");
  fs.writeFileSync(`${folder}/large.textproto`, "\n".repeat(5 << 20)); // a request of twice that
  await page.chooseFile("#job-file", `${folder}/large.textproto`);
  await page.waitFor("/^large.textproto: .* at most /.test(document.getElementById('job-fault').textContent)");
  await expect(page, "document.getElementById('job-text').value.startsWith('name: \"wrong\"')", "what was written stays");
  fs.rmSync(`${folder}/large.textproto`);
  await page.chooseFile("#job-file", jobFile);
  await page.waitFor("document.getElementById('job-text').value.includes('layers')");
  await page.press("form button[type=submit]");
  await page.waitFor("/^#\\/job\\/\\d+$/.test(location.hash)");
  await page.waitFor(`/ is submitted: /.test(${said})`);
  await page.waitFor(`${state} === "running"`);
  return page.evaluate("location.hash.slice('#/job/'.length)");
}

// What another site can make this browser send: forms, and requests that need no question before them.
async function attack(page, job) {
  const evil = http.createServer((_, reply) => reply.setHeader("content-type", "text/html").end("<!doctype html><title>evil</title><form method=post enctype=text/plain><input name='{}' value=''></form>"));
  await new Promise((resolve) => evil.listen(0, "127.0.0.1", resolve));
  try {
    const cancel = `${base}/api/v1/jobs/${job}/cancel`;
    const other = `http://127.0.0.1:${evil.address().port}/`; // another port is another origin, and the same site
    await page.goTo(other);
    await page.waitFor("document.title === 'evil'");
    const fetched = (options) => page.evaluate(`fetch(${JSON.stringify(cancel)}, ${JSON.stringify(options)}).then((answer) => answer.type, () => "refused")`);
    await fetched({ method: "POST", mode: "no-cors", body: "{}" }); // sent without a question before it; no script learns the answer
    const asking = await fetched({ method: "POST", headers: { "content-type": "application/json", "x-cairn-action": "1" }, body: "{}" });
    if (asking !== "refused") wrong.push(`a request of another site with the header is ${asking}`);
    await page.evaluate(`(() => { const form = document.querySelector('form'); form.action = ${JSON.stringify(cancel)}; form.submit(); })()`);
    await page.waitFor("/another site sent this request/.test(document.body?.innerText || '')");
  } finally {
    evil.closeAllConnections?.();
    evil.close();
  }
  page.faults.splice(0); // that the browser refused this, too
  await page.goTo(`${base}/#/job/${job}`);
  await page.waitFor(`${state} !== undefined`);
  await expect(page, `${state} === "running"`, "another site has cancelled the job");
}

async function cancelAndDelete(page, job) {
  const cancel = `[aria-label="cancel job ${job}"]`;
  await answer(page, cancel, "no");
  await expect(page, `${focused} === "cancel job ${job}"`, "the focus comes back from the question");
  await expect(page, `${state} === "running"`, "no is no");
  await raise(page, cancel);
  for (const [width, scheme] of [[1400, "light"], [400, "dark"]]) {
    await page.show(width, 900, scheme);
    await look(page, `ask-${width}-${scheme}`);
  }
  await page.key("Escape", 27);
  await page.waitFor(`!${isAsked}`);
  await answer(page, cancel, "yes");
  await page.waitFor(`${state} === "cancelled"`);
  await page.waitFor(`/^job ${job} .*: /.test(${said})`);
  await answer(page, `[aria-label="delete job ${job}"]`, "yes");
  await page.waitFor("location.hash === '#/' && document.title === 'Cairn'");
  await page.waitFor(`/^job ${job} .* is deleted$/.test(${said})`);
  await page.waitFor(`![...document.links].some((a) => a.hash === "#/job/${job}" && a.closest("table"))`);
}

async function drainAndUndrain(page) {
  const row = `[...document.querySelectorAll("tbody tr")].find((tr) => tr.cells[0].textContent === ${JSON.stringify(node)})`;
  await answer(page, `[aria-label="work of ${node}: drain"]`, "yes");
  await page.waitFor(`(${row})?.querySelector(".pill").textContent === "draining"`);
  await page.waitFor(`/^${node} is drained/.test(${said})`);
  await expect(page, `${focused} === "work of ${node}: undrain"`, "the focus stays");
  await page.press(`[aria-label="work of ${node}: undrain"]`);
  await page.waitFor(`(${row})?.querySelector(".pill").textContent === "alive"`);
}

const page = await Page.open(chromium, `${folder}/profile-actions`);
try {
  await page.show(1400, 900, "light");
  const job = await submitByForm(page);
  await page.show(1400, 900, "light");
  await attack(page, job);
  await cancelAndDelete(page, job);
  await drainAndUndrain(page);
  await look(page, "after-changes");
} finally {
  await page.close();
}
for (const line of wrong) console.log(line);
process.exit(wrong.length === 0 ? 0 : 1);
