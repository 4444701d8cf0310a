// Opens the overview of a cluster with very many jobs: what is drawn is bounded, whatever there is, and pages, filters and names lead to the rest. Prints
// how long it took, which nothing depends on.
//
//   node dashboard_many.mjs CHROMIUM BASE JOBS FOLDER      JOBS: how many there are, all ended, named many-0000 and up
import { Page } from "./browser.mjs";
import { looker } from "./page_checks.mjs";

const [chromium, base, jobs, folder] = process.argv.slice(2);
const wrong = [];
const look = looker(wrong, folder);

const A_PAGE = 50; // rows
const ELEMENTS_MAX = 3000; // about 30 a row of a job, 15 an event
const rows = "document.querySelectorAll('tbody tr').length";
const firstJob = "document.querySelector('tbody a').textContent";
const shown = (text) => `document.body.innerText.includes(${JSON.stringify(text)})`;

// When the first rows were there, by the page's own clock, which begins with the navigation.
const WATCH = `new MutationObserver((_, watch) => { if (document.querySelector("tbody tr")) { window.firstRowsMs = performance.now(); watch.disconnect(); } })
  .observe(document, { childList: true, subtree: true });`;

const click = (page, text) => page.evaluate(`[...document.querySelectorAll("button")].find((b) => (b.getAttribute("aria-label") || b.textContent) === ${JSON.stringify(text)}).click()`);

async function check(page, expression, what) {
  const value = await page.evaluate(expression);
  if (value !== true) wrong.push(`${what}: ${expression} is ${value}`);
}

async function readThrough(page, width) {
  await page.show(width, 900, "light");
  await page.goTo("about:blank");
  await page.goTo(`${base}/#/`);
  await page.waitFor(`${rows} > 0 && window.firstRowsMs !== undefined`);
  await check(page, `${rows} === ${A_PAGE}`, "rows of one page");
  await check(page, shown(`1–${A_PAGE} of ${Number(jobs).toLocaleString("en-US")}`), "how many there are");
  const elements = await page.evaluate("document.querySelectorAll('*').length");
  if (elements > ELEMENTS_MAX) wrong.push(`${elements} elements, at most ${ELEMENTS_MAX}`);
  const again = await page.evaluate("(async () => { const begin = performance.now(); await refresh(); return performance.now() - begin; })()");
  const first = await page.evaluate("window.firstRowsMs");
  console.log(`${jobs} jobs at ${width} pixels: ${elements} elements; rows after ${first.toFixed(0)} ms, drawn anew in ${again.toFixed(0)} ms`);
  await look(page, `many-${width}`);
}

async function leafThrough(page) {
  const newest = await page.evaluate(firstJob);
  await click(page, "next");
  await page.waitFor(shown(`${A_PAGE + 1}–${2 * A_PAGE} of `));
  await check(page, `${firstJob} !== ${JSON.stringify(newest)} && ${rows} === ${A_PAGE}`, "the second page");
  await click(page, "previous");
  await page.waitFor(`${firstJob} === ${JSON.stringify(newest)}`);
  await click(page, "active");
  await page.waitFor(`${rows} === 0`);
  await click(page, "ended");
  await page.waitFor(`${rows} === ${A_PAGE}`);
  await page.evaluate("document.getElementById('find').focus()");
  await page.type("many-0007");
  await page.waitFor(`${rows} === 1 && ${shown("many-0007")}`);
}

const page = await Page.open(chromium, `${folder}/profile-many`);
try {
  await page.send("Page.addScriptToEvaluateOnNewDocument", { source: WATCH });
  for (const width of [1400, 400]) await readThrough(page, width);
  await page.show(1400, 900, "light");
  await leafThrough(page);
} finally {
  await page.close();
}
for (const line of wrong) console.log(line);
process.exit(wrong.length === 0 ? 0 : 1);
