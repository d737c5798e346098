// Holds the files of `deploy` against the published schemas, and prints what they say as JSON:
//   node check.mjs MODULES COMPOSE_SCHEMA KUBERNETES_SCHEMAS
// MODULES is a node_modules with ajv and yaml, COMPOSE_SCHEMA a file, KUBERNETES_SCHEMAS a directory of files.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [modules, composeSchema, kubernetesSchemas] = process.argv.slice(2);
const require = createRequire(join(modules, 'any.js'));
const Ajv = require('ajv/dist/2020').default;
const yaml = require('yaml');

const deploy = new URL('../../deploy/', import.meta.url);
const read = (file) => JSON.parse(readFileSync(file, 'utf8'));
const documents = (name) =>
  yaml.parseAllDocuments(readFileSync(new URL(name, deploy), 'utf8')).map((document) => {
    if (document.errors.length > 0) throw new Error(`${name}: ${document.errors[0].message}`);
    return document.toJS();
  });
const validator = () => new Ajv({ strict: false, validateFormats: false, validateSchema: false, allErrors: true });
const wrong = [];
const note = (what, validate, value) => {
  if (!validate(value)) wrong.push(...validate.errors.map((error) => `${what}${error.instancePath} ${error.message}`));
};

const [compose] = documents('compose.yaml');
note('compose.yaml: ', validator().compile(read(composeSchema)), compose);

const kubernetes = documents('kubernetes.yaml');
for (const document of kubernetes) {
  const version = document.apiVersion.replace('.k8s.io', '').replace('/', '-');
  const ajv = validator();
  ajv.addSchema(read(join(kubernetesSchemas, '_definitions.json')), '_definitions.json');
  const schema = read(join(kubernetesSchemas, `${document.kind.toLowerCase()}-${version}.json`));
  note(`kubernetes.yaml: ${document.kind} ${document.metadata.name}: `, ajv.compile(schema), document);
}

if (wrong.length > 0) {
  console.error(wrong.join('\n'));
  process.exit(1);
}
console.log(JSON.stringify({ compose, kubernetes }));
