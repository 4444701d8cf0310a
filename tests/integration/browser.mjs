// A Chromium that a script drives: Chrome's DevTools protocol through two pipes, so that no port is open.
//
//   const page = await Page.open("/usr/bin/chromium", profileFolder);
//   await page.goTo(url); await page.waitFor("document.title === 'Cairn'"); await page.close();
import { spawn } from "child_process";
import fs from "fs";

const WAIT_MS = 60000; // of one answer, and of what a page is waited for: for pages that hang

export class Page {
  static async open(program, profile) {
    const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe", `--user-data-dir=${profile}`, "about:blank"];
    const page = new Page(spawn(program, flags, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] }));
    const { targetInfos } = await page.send("Target.getTargets");
    const target = targetInfos.find((t) => t.type === "page") || (await page.send("Target.createTarget", { url: "about:blank" }));
    page.session = (await page.send("Target.attachToTarget", { targetId: target.targetId, flatten: true })).sessionId;
    for (const domain of ["Page", "Runtime", "Log", "Accessibility", "DOM"]) await page.send(`${domain}.enable`);
    return page;
  }

  constructor(child) {
    this.child = child;
    this.waiting = new Map();
    this.faults = []; // what scripts threw, and errors of the console
    this.last = 0;
    let rest = "";
    child.stdio[4].setEncoding("utf8");
    child.stdio[4].on("data", (text) => {
      const parts = (rest + text).split("\0");
      rest = parts.pop();
      for (const part of parts) this.hear(JSON.parse(part));
    });
    this.ended = new Promise((resolve) => child.on("exit", resolve));
    this.ended.then(() => { for (const { reject } of this.waiting.values()) reject(new Error("the browser ended")); });
  }

  hear(message) {
    if (message.method === "Runtime.exceptionThrown") this.faults.push(message.params.exceptionDetails.exception?.description || message.params.exceptionDetails.text);
    if (message.method === "Log.entryAdded" && message.params.entry.level === "error") this.faults.push(message.params.entry.text);
    const call = this.waiting.get(message.id);
    if (!call) return;
    this.waiting.delete(message.id);
    clearTimeout(call.timer);
    if (message.error) call.reject(new Error(`${call.method}: ${message.error.message}`));
    else call.resolve(message.result);
  }

  send(method, params = {}) {
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${method}: no answer`)), WAIT_MS);
      this.waiting.set(id, { resolve, reject, method, timer });
      this.child.stdio[3].write(`${JSON.stringify({ id, method, params, ...(this.session ? { sessionId: this.session } : {}) })}\0`);
    });
  }

  async evaluate(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception?.description || exceptionDetails.text}`);
    return result.value;
  }

  async waitFor(expression) {
    for (const end = Date.now() + WAIT_MS; Date.now() < end;) {
      // While another page is loaded there is nothing to ask.
      if (await this.evaluate(expression).catch((error) => { if (!/context|navigated/i.test(error.message)) throw error; })) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`not within ${WAIT_MS / 1000} s: ${expression}; the page shows: ${(await this.evaluate("document.body.innerText")).slice(0, 2000)}`);
  }

  goTo(url) { return this.send("Page.navigate", { url }); }

  async show(width, height, scheme) {
    await this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
    await this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  }

  // Down, some moves and up, at places of the window.
  async drag(from, to) {
    const mouse = (type, [x, y], buttons) => this.send("Input.dispatchMouseEvent", { type, x, y, button: "left", buttons, clickCount: 1 });
    await mouse("mousePressed", from, 1);
    for (let i = 1; i <= 4; ++i) await mouse("mouseMoved", [from[0] + ((to[0] - from[0]) * i) / 4, from[1] + ((to[1] - from[1]) * i) / 4], 1);
    await mouse("mouseReleased", to, 0);
  }

  async key(key, code = 0) {
    const text = key.length === 1 ? { text: key } : {};
    for (const type of ["keyDown", "keyUp"]) await this.send("Input.dispatchKeyEvent", { type, key, windowsVirtualKeyCode: code, ...(type === "keyDown" ? text : {}) });
  }

  // Puts the focus on what a selector finds, and presses the space bar there: only what the keyboard reaches is used so.
  async press(selector) {
    await this.waitFor(`document.querySelector(${JSON.stringify(selector)}) !== null`);
    await this.evaluate(`document.querySelector(${JSON.stringify(selector)}).focus()`);
    await this.key(" ", 32);
  }

  // Types into what has the focus.
  type(text) { return this.send("Input.insertText", { text }); }

  async chooseFile(selector, path) {
    const { root } = await this.send("DOM.getDocument");
    const { nodeId } = await this.send("DOM.querySelector", { nodeId: root.nodeId, selector });
    await this.send("DOM.setFileInputFiles", { nodeId, files: [path] });
  }

  async screenshot(path) {
    const { data } = await this.send("Page.captureScreenshot", { format: "png", captureBeyondViewport: true });
    fs.writeFileSync(path, Buffer.from(data, "base64"));
  }

  // What a reader of screens finds without a name, of what can be used.
  async unnamed() {
    const { nodes } = await this.send("Accessibility.getFullAXTree");
    const used = new Set(["button", "link", "textbox", "searchbox", "checkbox", "img", "image"]);
    return nodes.filter((n) => !n.ignored && used.has(n.role?.value) && !n.name?.value).map((n) => n.role.value);
  }

  async close() {
    this.child.stdio[3].end();
    this.child.kill("SIGTERM");
    await this.ended;
  }
}
