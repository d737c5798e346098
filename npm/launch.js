'use strict';
// Finds the executable of this platform and starts it.

const fs = require('node:fs');
const path = require('node:path');
const start = require('./start.js');
const { homepage, optionalDependencies, version } = require('./package.json');

module.exports = (program) => start(find(program));

// The executable in the package of this platform; never one of the same name on PATH, which may be us.
function find(program) {
  const platform = `${process.platform}-${process.arch}`;
  const offered = Object.keys(optionalDependencies);
  const name = offered.find((candidate) => candidate.endsWith(`/${platform}`));
  if (!name) {
    const known = offered.map((candidate) => candidate.slice(candidate.indexOf('/') + 1)).join(', ');
    fail(`there is no build for ${platform}, only for ${known}; ${homepage} says how to build one`);
  }
  let manifest;
  try {
    manifest = require.resolve(`${name}/package.json`);
  } catch {
    fail(
      `the package ${name} is missing. It is an optional dependency: install again without --omit=optional, ` +
        'and on this machine, not from a node_modules of another system',
    );
  }
  const found = require(manifest).version;
  if (found !== version) fail(`${name} has version ${found} instead of ${version}; install again`);
  const file = path.join(path.dirname(manifest), 'bin', program + (process.platform === 'win32' ? '.exe' : ''));
  try {
    fs.accessSync(file, fs.constants.X_OK);
  } catch (error) {
    fail(`${file} cannot be executed: ${error.message}; install again`);
  }
  return file;
}

function fail(reason) {
  process.stderr.write(`error: ${reason}\n`);
  process.exit(1);
}
