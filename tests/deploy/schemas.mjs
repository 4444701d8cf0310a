// Checks objects (on standard input a JSON list of lists of them) against validators that npm's kubernetes-models
// compiled from the published OpenAPI documents; prints for each list one of what is wrong, as JSON.
//
//   node schemas.mjs FOLDER      FOLDER/node_modules has the packages (tools.py)
//
// Kubernetes' schemas allow fields that they do not know, so that a misspelt field passes. Here the validator reads the
// object through proxies that note which fields it looks at: one that it never read is none that the schema knows.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const folder = process.argv[2];
const lists = JSON.parse(readFileSync(0, 'utf8'));
const packages = ['kubernetes-models', '@kubernetes-models/prometheus-operator', '@kubernetes-models/cert-manager'];

function schemaOf(object) {
  for (const name of packages) {
    const root = join(folder, 'node_modules', name);
    const model = join(root, object.apiVersion, `${object.kind}.js`);
    if (!existsSync(model)) continue;
    const schema = /_schemas\/(\w+)/.exec(readFileSync(model, 'utf8'));
    for (const end of ['.mjs', '.js']) {
      const file = join(root, '_schemas', schema[1] + end);
      if (existsSync(file)) return pathToFileURL(file).href;
    }
  }
  return null;
}

function watched(value, path, read) {
  if (value === null || typeof value !== 'object') return value;
  const seen = new Map();
  return new Proxy(value, {
    get(target, key) {
      if (typeof key !== 'string' || !Object.hasOwn(target, key)) return target[key];
      read.add(`${path}/${key}`);
      if (!seen.has(key)) seen.set(key, watched(target[key], `${path}/${key}`, read));
      return seen.get(key);
    },
  });
}

function* fields(value, path) {
  if (value === null || typeof value !== 'object') return;
  for (const [key, inner] of Object.entries(value)) {
    yield `${path}/${key}`;
    yield* fields(inner, `${path}/${key}`);
  }
}

async function check(object, wrong) {
  const who = `${object.kind} ${object.metadata?.name}`;
  const schema = schemaOf(object);
  if (schema === null) {
    wrong.push(`${who}: there is no schema of ${object.apiVersion} ${object.kind}`);
    return;
  }
  const { validate } = await import(schema);
  const read = new Set();
  if (!validate(watched(object, '', read))) {
    for (const error of validate.errors) {
      wrong.push(`${who}: ${error.instancePath}: ${error.message ?? error.keyword} ${JSON.stringify(error.params)}`);
    }
    return;
  }
  for (const path of fields(object, '')) {
    if (!read.has(path)) wrong.push(`${who}: ${path}: the schema knows no such field`);
  }
}
const answers = [];
for (const objects of lists) {
  const wrong = [];
  for (const object of objects) await check(object, wrong);
  answers.push(wrong);
}
console.log(JSON.stringify(answers));
