// Reads a trace with the importer of Chrome's trace viewer (chrome://tracing; npm package `traceviewer`) and prints, as
// JSON, what it made of it: {"warnings": [...], "processes": {name: {thread: spans}}, "seconds": S}.
//
//   node trace_viewer.cjs FOLDER TRACE    FOLDER: has node_modules/traceviewer
const fs = require("fs");
const path = require("path");
const [folder, file] = process.argv.slice(2);
const root = path.join(path.resolve(folder), "node_modules", "traceviewer");
const tracing = path.join(root, "tracing");
const libraries = ["", "chai", "components", "d3", "gl-matrix/dist", "jszip", "mocha"];
// The package asks a program in Python 2 for these folders.
const sources = [tracing, ...libraries.map((name) => path.join(tracing, "third_party", name)), path.join(root, "third_party")];
require("child_process").execFileSync = () => JSON.stringify(sources);

const tr = require(path.join(tracing, "tracing"));
const options = new tr.importer.ImportOptions();
options.showImportWarnings = false;
const model = new tr.Model();
new tr.importer.Import(model, options).importTraces([fs.readFileSync(file, "utf8")]);
const processes = {};
for (const of of Object.values(model.processes)) {
  processes[of.name] = {};
  for (const thread of Object.values(of.threads)) processes[of.name][thread.name] = thread.sliceGroup.length;
}
const seconds = (model.bounds.max - model.bounds.min) / 1000;
console.log(JSON.stringify({ warnings: model.importWarnings.map((w) => w.message), processes, seconds }));
