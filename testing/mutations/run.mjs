#!/usr/bin/env node
// Tells the lies of the list beside it, one at a time, and runs the tests that must notice.
//
//   node testing/mutations/run.mjs             all of them; most of an hour on two cores
//   node testing/mutations/run.mjs guard.rs    those whose file or words hold one of these texts
//   node testing/mutations/run.mjs --check     only whether every original stands once in its file
//
// The tree is copied into target/mutations first, so that nothing here changes while it runs.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
const copy = join(root, 'target/mutations/tree');
// Seconds that a run may take. One that hangs has noticed, too.
const LONGEST = '600';

const words = process.argv.slice(2).filter((word) => word !== '--check');
const all = read(readFileSync(join(root, 'testing/mutations/list'), 'utf8'));
const chosen = all.filter(({ file, what }) => !words.length || words.some((word) => `${file} ${what}`.includes(word)));
const stale = chosen.filter(({ file, original }) => occurrences(join(root, file), original) !== 1);
for (const { file, what } of stale) console.error(`the original of "${what}" must stand exactly once in ${file}`);
if (stale.length) process.exit(2);
if (process.argv.includes('--check')) process.exit(0);

copyTree();
cargo(['build', '--examples'], 'inherit') || fail('the examples do not build');
for (const test of new Set(chosen.map(({ test }) => test))) {
  cargo(['test', '--quiet', ...test.split(' ')], 'inherit') || fail(`without any lie, cargo test ${test} fails`);
}
const outcomes = chosen.map(mutate);
const count = (outcome) => outcomes.filter((other) => other === outcome).length;
console.log(`${count('killed')} killed, ${count('accepted')} accepted, ${chosen.length - count('killed') - count('accepted')} wrong`);
process.exit(count('killed') + count('accepted') === chosen.length ? 0 : 1);

// The entries: separated by blank lines, comments left out.
function read(text) {
  const blocks = text.split(/\n\n+/).map((block) => block.split('\n').filter((line) => line && !line.startsWith('#')));
  return blocks.filter((lines) => lines.length).map(([title, ...lines]) => {
    const [, file, what] = title.match(/^(\S+): (.+)$/) ?? fail(`no title of an entry: ${title}`);
    const part = (sign) => lines.filter((line) => line.startsWith(`${sign} `)).map((line) => line.slice(2)).join('\n');
    return { file, what, original: part('-'), mutated: part('+'), test: part('!'), reason: part('~') };
  });
}

function occurrences(path, text) {
  return existsSync(path) ? readFileSync(path, 'utf8').split(text).length - 1 : 0;
}

function mutate({ file, what, original, mutated, test, reason }) {
  const path = join(copy, file);
  const text = readFileSync(path, 'utf8');
  const began = Date.now();
  writeFileSync(path, text.replace(original, () => mutated));
  let outcome;
  try {
    if (!cargo(['test', '--no-run', ...test.split(' ')])) outcome = 'does not compile';
    else if (!cargo(['test', ...test.split(' ')])) outcome = reason ? 'killed in spite of its reason' : 'killed';
    else outcome = reason ? 'accepted' : 'SURVIVED';
  } finally {
    writeFileSync(path, text);
  }
  const seconds = Math.round((Date.now() - began) / 1000);
  console.log(`${outcome.padEnd(10)} ${String(seconds).padStart(4)} s  ${file}: ${what}${reason && ` (${reason})`}`);
  return outcome;
}

function cargo(words, stdio = 'ignore') {
  const env = { ...process.env, CARGO_TARGET_DIR: join(root, 'target/mutations/target') };
  return spawnSync('timeout', [LONGEST, 'cargo', ...words], { cwd: copy, env, stdio }).status === 0;
}

// Only files that differ are written, so that cargo builds no more than it must; those that are gone here go there.
function copyTree() {
  const git = (...words) => spawnSync('git', words, { cwd: root, encoding: 'utf8', maxBuffer: 1 << 26 }).stdout;
  const files = git('ls-files', '-co', '--exclude-standard').split('\n').filter((file) => file && existsSync(join(root, file)));
  for (const file of files) {
    const [from, to] = [join(root, file), join(copy, file)];
    const content = readFileSync(from);
    if (existsSync(to) && readFileSync(to).equals(content)) continue;
    mkdirSync(dirname(to), { recursive: true });
    writeFileSync(to, content);
  }
  const there = readdirSync(copy, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  for (const path of there.map((entry) => join(entry.parentPath, entry.name))) {
    if (!files.includes(relative(copy, path))) rmSync(path);
  }
}

function fail(problem) {
  console.error(problem);
  process.exit(2);
}
