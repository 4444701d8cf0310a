// Two pages of a coordinator that leads and then does not: one that only shows goes to the new leader by itself; one with a job that is being written says
// who leads, with a link, and keeps what is written.
//
//   node dashboard_leader.mjs CHROMIUM LEADER OTHER FOLDER      prints "open" when both are open: another one may lead now
import { Page } from "./browser.mjs";

const [chromium, leader, other, folder] = process.argv.slice(2);
const shown = "document.getElementById('who')?.textContent.startsWith('coordinator ')";
const led = "document.getElementById('led')";

const [shows, writes] = await Promise.all(["shows", "writes"].map((name) => Page.open(chromium, `${folder}/profile-${name}`)));
try {
  await shows.goTo(`${leader}/#/`);
  await shows.waitFor(shown);
  await writes.goTo(`${leader}/#/submit`);
  await writes.waitFor("document.getElementById('job-text') !== null");
  await writes.evaluate("document.getElementById('job-text').focus()");
  await writes.type('name: "unfinished"');
  console.log("open");
  await shows.waitFor(`location.origin === ${JSON.stringify(other)} && ${shown}`);
  await writes.waitFor(`${led}.hidden === false && ${led}.querySelector("a").href === ${JSON.stringify(`${other}/#/submit`)}`);
  const text = await writes.evaluate("document.getElementById('job-text').value");
  if (text !== 'name: "unfinished"') throw new Error(`what was written is ${text}`);
} finally {
  await Promise.all([shows.close(), writes.close()]);
}
