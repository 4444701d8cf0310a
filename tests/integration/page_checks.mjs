// What each picture of a page is looked at for: nothing is wider than the window, texts have the contrast of WCAG 2 AA, what can be used has a name,
// and no script failed.
//
//   const wrong = [], look = looker(wrong, folder); await look(page, "overview");      folder/overview.png; faults are in wrong

// In the page: texts whose contrast with what is behind them is below 4.5 (3 where they are large).
const CONTRAST = `(() => {
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length === 3 ? [...n, 1] : n; };
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3]));
  const light = (c) => { const l = c.map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * l[0] + 0.7152 * l[1] + 0.0722 * l[2]; };
  const behind = (node) => { const layers = []; for (let n = node; n; n = n.parentElement) layers.push(parse(getComputedStyle(n).backgroundColor)); return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]); };
  const found = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const node = text.parentElement, style = getComputedStyle(node);
    if (!text.data.trim() || !node.getClientRects().length || node.closest("button:disabled, noscript, script, style, title")) continue;
    const ground = behind(node), colour = over(parse(node instanceof SVGElement ? style.fill : style.color), ground);
    const [a, b] = [light(ground), light(colour)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) found.add(node.tagName + "." + (node.getAttribute("class") || "") + " " + text.data.trim().slice(0, 30) + ": " + ratio.toFixed(2));
  }
  return [...found];
})()`;

export function looker(wrong, folder) {
  return async (page, name) => {
    const wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
    if (wide > 0) wrong.push(`${name}: ${wide} pixels wider than the window`);
    for (const text of await page.evaluate(CONTRAST)) wrong.push(`${name}: contrast: ${text}`);
    for (const role of await page.unnamed()) wrong.push(`${name}: a ${role} has no name`);
    // The page says itself what the coordinator refused.
    for (const fault of page.faults.splice(0)) if (!/Failed to load resource/.test(fault)) wrong.push(`${name}: ${fault}`);
    await page.screenshot(`${folder}/${name}.png`);
  };
}
