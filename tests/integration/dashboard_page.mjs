// Opens the dashboard of a cluster with two trained jobs in Chromium and looks at it: no script fails, nothing is wider
// than the window, texts have the contrast of WCAG 2 AA, what can be used has a name and is reached by Tab; curves zoom
// by pointer and keyboard; jobs are compared. At 400 and 1,400 pixels, light and dark.
//
//   node dashboard_page.mjs CHROMIUM BASE FIRST_JOB SECOND_JOB FOLDER      screenshots go to FOLDER
import { Page } from "./browser.mjs";
import { looker } from "./page_checks.mjs";

const [chromium, base, first, second, folder] = process.argv.slice(2);
const wrong = [];
const look = looker(wrong, folder);

// What Tab reaches, of a page with fewer than 80 stops.
async function tabbed(page) {
  const seen = new Set();
  for (let i = 0; i < 80; ++i) {
    await page.key("Tab", 9);
    seen.add(await page.evaluate("(() => { const a = document.activeElement; return a.getAttribute('aria-label') || a.textContent.trim() || a.tagName; })()"));
  }
  return [...seen];
}

const label = "document.querySelector('.chart svg').getAttribute('aria-label')";

async function zoom(page) {
  const box = await page.evaluate("(() => { const b = document.querySelector('.chart svg').getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()");
  const at = (share) => [box[0] + box[2] * share, box[1] + box[3] / 2];
  await page.drag(at(0.3), at(0.6));
  await page.waitFor(`/; epoch .* to /.test(${label})`);
  await page.waitFor("document.querySelector('.chart button').textContent === 'all'");
  const zoomed = await page.evaluate(label);
  await page.waitFor("document.getElementById('fresh').textContent !== ''");
  const before = await page.evaluate("document.getElementById('fresh').textContent");
  await page.waitFor(`document.getElementById('fresh').textContent !== ${JSON.stringify(before)}`); // drawn anew
  if ((await page.evaluate(label)) !== zoomed) wrong.push(`a refresh loses the zoom: ${zoomed}, then ${await page.evaluate(label)}`);
  await page.evaluate("document.querySelector('.chart svg').focus()");
  await page.key("+");
  await page.waitFor(`${label} !== ${JSON.stringify(zoomed)}`);
  await page.key("Escape", 27);
  await page.waitFor(`!/; epoch .* to /.test(${label})`);
}

const page = await Page.open(chromium, `${folder}/profile`);
try {
  for (const [width, scheme] of [[1400, "light"], [1400, "dark"], [400, "light"], [400, "dark"]]) {
    const name = (view) => `${view}-${width}-${scheme}`;
    await page.show(width, 900, scheme);
    await page.goTo(`${base}/#/`);
    await page.waitFor("document.querySelectorAll('tbody tr').length >= 4");
    await look(page, name("overview"));
    await page.goTo(`${base}/#/job/${first}`);
    await page.waitFor("document.title.endsWith('· Cairn') && document.querySelectorAll('.chart svg').length >= 2");
    await look(page, name("job"));
    await page.goTo(`${base}/#/compare/${first},${second}`);
    await page.waitFor("document.title === 'Compare · Cairn' && document.querySelectorAll('.chart path').length >= 4");
    await look(page, name("compare"));
    await page.goTo(`${base}/#/joblog/${first}`);
    await page.waitFor("document.title.startsWith('Log of job') && document.querySelectorAll('.log div').length >= 2");
    await look(page, name("log"));
  }
  await page.show(1400, 900, "light");
  await page.goTo(`${base}/#/log/ps-0`);
  await page.waitFor("document.title === 'Log of ps-0 · Cairn' && document.querySelectorAll('.log div').length >= 1");
  await page.goTo(`${base}/#/log/`);
  await page.waitFor("document.title === 'Log of coordinator · Cairn' && document.querySelectorAll('.log div').length >= 2");
  await page.goTo(`${base}/#/log/nobody`);
  await page.waitFor("(document.querySelector('.error') || {}).textContent?.startsWith('nobody: ')");
  await look(page, "log-of-nobody");
  await page.goTo(`${base}/#/compare/${first},${second}`);
  await page.waitFor("document.title === 'Compare · Cairn' && document.querySelectorAll('.chart path').length >= 4");
  await zoom(page);
  for (const text of ["optimizer.learning_rate", "What differs"]) {
    if (!(await page.evaluate("document.body.innerText")).includes(text)) wrong.push(`the comparison does not show ${text}`);
  }
  await page.goTo(`${base}/#/compare/${first},424242`);
  await page.waitFor("document.querySelector('.error') !== null");
  await page.goTo(`${base}/#/`);
  await page.waitFor("document.querySelectorAll('tbody input[type=checkbox]').length >= 2");
  const reached = await tabbed(page);
  for (const wanted of ["Find jobs by name", `compare job ${first}`, "warnings"]) {
    if (!reached.includes(wanted)) wrong.push(`Tab does not reach ${wanted}; it reaches ${reached.join(" | ")}`);
  }
  for (const job of [first, second]) await page.evaluate(`document.querySelector('[aria-label="compare job ${job}"]').click()`);
  await page.waitFor("[...document.links].some((a) => a.textContent === 'compare 2 jobs')");
  await look(page, "two-chosen");
} finally {
  await page.close();
}
for (const line of wrong) console.log(line);
process.exit(wrong.length === 0 ? 0 : 1);
