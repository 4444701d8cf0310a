// Runs the script of a sweep's page with a small document of its own, and prints the elements it makes. Fails where the
// script makes HTML of a text, gives an attribute no number, or needs what the page does not have.
//
//   node sweep_page.mjs PAGE.html
import fs from "fs";
import vm from "vm";

class Element {
  constructor(tag) {
    this.tag = tag;
    this.attributes = {};
    this.children = [];
    this.textContent = "";
    this.classList = { toggle() {} };
  }
  setAttribute(name, value) {
    if (value === undefined || /NaN|undefined/.test(String(value))) throw new Error(`${this.tag}: ${name} is ${value}`);
    this.attributes[name] = String(value);
  }
  addEventListener() {}
  append(...children) {
    this.children.push(...children);
  }
  set innerHTML(text) {
    throw new Error(`${this.tag}: HTML is made of ${text}`);
  }
}

const page = fs.readFileSync(process.argv[2], "utf8");
const scripts = [...page.matchAll(/<script[^>]*>([^]*?)<\/script>/g)].map((m) => m[1]);
if (scripts.length !== 2) throw new Error(`the page has ${scripts.length} scripts`);
const known = {};
for (const id of ["title", "about", "main", "data"]) {
  if (!page.includes(`id="${id}"`)) throw new Error(`the page has no ${id}`);
  known[id] = new Element(id);
}
known.data.textContent = scripts[0];
const document = {
  getElementById: (id) => known[id],
  createElement: (tag) => new Element(tag),
  createElementNS: (_, tag) => new Element(tag),
};
vm.runInNewContext(scripts[1], { document, Node: Element });

const counts = {};
const count = (node) => {
  if (!(node instanceof Element)) return;
  const name = node.attributes.class ? `${node.tag}.${node.attributes.class.split(" ")[0]}` : node.tag;
  counts[name] = (counts[name] || 0) + 1;
  node.children.forEach(count);
};
count(known.main);
console.log(JSON.stringify({ about: known.about.textContent, counts }));
