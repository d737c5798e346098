// Packs everything, installs it from the files into empty places, and uses it: a handshake, a toolbox opened, and every
// way to end there is, after which no process may be left. Linux only, since it looks into /proc.
//
//   node packaging/test-install.mjs [--quick] [--executables DIRECTORY] [--node FILE]...
//
// --quick leaves out wheel, cargo and validators. The executables are those of `cargo build` unless told otherwise.
// --node names a further Node to run the launcher with: what it does depends on whether Node can replace itself.

import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';

import { crate, programs, root } from './manifests.mjs';

const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    executables: { type: 'string' },
    node: { type: 'string', multiple: true, default: [] },
  },
});
const PATIENCE = 60_000;
const platform = `${process.platform}-${process.arch}`;
const place = fs.mkdtempSync(path.join(os.tmpdir(), 'install-'));
const packed = path.join(place, 'packed');
let executables = path.join(root, 'target', 'debug');

try {
  await main();
  console.log('all is well');
} finally {
  fs.rmSync(place, { recursive: true, force: true });
}

async function main() {
  step('manifests agree with Cargo.toml');
  run(process.execPath, [path.join(root, 'packaging', 'manifests.mjs'), '--check']);
  if (options.executables) executables = path.resolve(options.executables);
  else run('cargo', ['build', '--bins'], { cwd: root });
  executables = stripped(executables);

  step('npm');
  run(process.execPath, [path.join(root, 'packaging', 'pack.mjs'), packed, `${platform}=${executables}`]);
  const project = installFromTarballs();
  for (const folder of [platformFolder(project), bundleFolder()]) {
    const notice = path.join(folder, 'vectors.NOTICE');
    check(fs.existsSync(notice), `${notice}: the origin of the table of meanings is not told`);
  }
  const launchers = programs.map((name) => path.join(project, 'node_modules', '.bin', name));
  for (const launcher of launchers) says(launcher, 'installed by npm');
  for (const node of [process.execPath, ...options.node]) {
    // With the exec bit and `#!/usr/bin/env node` the first Node on PATH is taken.
    const environment = { PATH: `${path.dirname(path.resolve(node))}:${process.env.PATH}` };
    const replaced = execFileSync(node, ['-p', 'typeof process.execve']).toString().trim() === 'function';
    console.log(`  ${execFileSync(node, ['--version']).toString().trim()}, ${replaced ? 'replaces itself' : 'forwards'}`);
    await everyEnd([launchers[0]], { environment, killedWhole: replaced });
    await everyEnd(['npx', '--no-install', 'mcp-workbench'], { environment, cwd: project, wrapper: true });
  }
  explainsWhatIsMissing(project, launchers[0]);
  step('desktop bundle');
  await bundleWithoutRunBit();
  if (options.quick) return;

  step('wheel');
  const wheels = path.join(place, 'wheels');
  run('maturin', ['build', '--profile', 'dev', '--compatibility', 'linux', '--out', wheels], {
    cwd: root,
    env: { ...process.env, MCP_WORKBENCH_CHANNEL: 'wheel' },
  });
  const byPip = path.join(place, 'pip');
  run('pip', ['install', '--no-index', '--find-links', wheels, '--target', byPip, crate.names.pypi]);
  says(path.join(byPip, 'bin', 'toolman'), 'installed from a wheel');
  const fromWheels = ['--offline', '--no-index', '--find-links', wheels];
  run('uv', ['tool', 'install', ...fromWheels, crate.names.pypi], { env: uvPlace() });
  for (const name of [...programs, crate.names.pypi]) {
    says(path.join(uvPlace().UV_TOOL_BIN_DIR, name), 'installed from a wheel');
  }
  await everyEnd([path.join(uvPlace().UV_TOOL_BIN_DIR, crate.names.pypi)], { killedWhole: true });
  await everyEnd(['uvx', ...fromWheels, crate.names.pypi], { environment: uvPlace(), wrapper: true });

  step('cargo install');
  const cargoRoot = path.join(place, 'cargo');
  run('cargo', ['install', '--path', root, '--root', cargoRoot, '--locked', '--offline', '--debug']);
  says(path.join(cargoRoot, 'bin', 'toolman'), 'installed by cargo');
  await everyEnd([path.join(cargoRoot, 'bin', 'mcp-workbench')], { killedWhole: true });

  step('validators');
  run('npx', ['--yes', '--prefix', path.join(root, 'packaging'), 'mcpb', 'validate', bundleFolder()]);
  run('npx', ['--yes', '--prefix', path.join(root, 'packaging'), 'mcpb', 'pack', bundleFolder(), path.join(place, 'a.mcpb')]);
  run('twine', ['check', '--strict', ...fs.readdirSync(wheels).map((wheel) => path.join(wheels, wheel))]);
  run(path.join(root, 'packaging', 'validate'), []);
}

// Every way to end: the client closes stdin, SIGTERM, SIGKILL. `wrapper`: the command is not our launcher but starts
// it, and signals end only itself, so that the rest ends when stdin does. `killedWhole`: one process, so that a SIGKILL
// leaves nothing but what ends by itself.
async function everyEnd(command, { environment = {}, cwd = place, wrapper = false, killedWhole = false }) {
  for (const end of ['stdin', 'SIGTERM', 'SIGKILL']) {
    const session = await open(command, environment, cwd);
    if (end === 'stdin') session.child.stdin.end();
    else session.child.kill(end);
    const status = await within(session.ended, `${command} after ${end}`);
    if (end === 'stdin' || (end === 'SIGTERM' && !wrapper)) {
      check(status === 0, `${command} ended with ${status} after ${end}\n${session.stderr()}`);
    }
    if (end === 'SIGKILL' && killedWhole) await gone(session.mark, `${command} after ${end}, stdin still open`);
    session.child.stdin.destroy();
    await gone(session.mark, `${command} after ${end}`);
    console.log(`  ${path.basename(command[0])}: ${end}`);
  }
}

// Starts the gateway, shakes hands, opens a toolbox, so that there is a tree of processes.
async function open(command, environment, cwd) {
  const mark = randomUUID();
  const config = path.join(place, `${mark}.json`);
  const upstream = { command: path.join(executables, 'mcp-workbench'), args: ['demo-server', 'notes'], env: { MARK: mark } };
  fs.writeFileSync(config, JSON.stringify({ toolboxes: { demo: { mcpServers: { notes: upstream } } } }));
  const child = spawn(command[0], [...command.slice(1), '--config', config], {
    cwd,
    env: { ...process.env, ...environment, MARK: mark },
  });
  const ended = new Promise((resolve) => child.on('exit', (code, signal) => resolve(code ?? signal)));
  let [stdout, stderr] = ['', ''];
  child.stderr.on('data', (data) => (stderr += data));
  const answers = new Map();
  let arrived = () => {};
  child.stdout.on('data', (data) => {
    stdout += data;
    const lines = stdout.split('\n');
    stdout = lines.pop();
    lines.map((line) => JSON.parse(line)).forEach((message) => answers.set(message.id, message));
    arrived();
  });
  const ask = async (id, method, params) => {
    child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    while (!answers.has(id)) {
      const news = new Promise((resolve) => (arrived = resolve));
      await within(Promise.race([news, ended]), `${method} of ${command}`);
      check(answers.has(id) || child.exitCode === null, `${command} ended early\n${stderr}`);
    }
    return answers.get(id).result;
  };
  const clientInfo = { name: 'install-test', version: '1' };
  const hello = await ask(1, 'initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo });
  check(hello.serverInfo.version === crate.version, `it says ${JSON.stringify(hello.serverInfo)}`);
  const opened = await ask(2, 'tools/call', { name: 'open_toolbox', arguments: { toolbox_name: 'demo' } });
  check(opened.structuredContent?.servers_connected === 1, `opening: ${JSON.stringify(opened)}`);
  return { child, ended, mark, stderr: () => stderr };
}

// What only a debugger wants makes most of a debug build, and packing it takes most of the time.
function stripped(folder) {
  const slim = path.join(place, 'executables');
  fs.mkdirSync(slim);
  for (const program of programs) {
    const [from, to] = [path.join(folder, program), path.join(slim, program)];
    if (spawnSync('strip', ['-o', to, from]).status !== 0) fs.copyFileSync(from, to);
    fs.chmodSync(to, 0o755);
  }
  return slim;
}

function installFromTarballs() {
  const project = path.join(place, 'project');
  fs.mkdirSync(project);
  fs.writeFileSync(path.join(project, 'package.json'), '{"private": true}\n');
  const tarballs = fs.readdirSync(path.join(packed, 'npm')).map((file) => path.join(packed, 'npm', file));
  run('npm', ['install', '--offline', '--ignore-scripts', '--no-audit', '--no-fund', ...tarballs], { cwd: project });
  return project;
}

function platformFolder(project) {
  return path.join(project, 'node_modules', crate.names.npm.split('/')[0], platform);
}

function explainsWhatIsMissing(project, launcher) {
  fs.rmSync(platformFolder(project), { recursive: true });
  const { status, stderr } = spawnSync(launcher, ['--version'], { encoding: 'utf8' });
  check(status === 1 && stderr.includes('--omit=optional'), `a missing package: ${status} ${stderr}`);
}

function bundleFolder() {
  return path.join(packed, 'bundles', `${crate.name}-${platform}`);
}

async function bundleWithoutRunBit() {
  fs.chmodSync(path.join(bundleFolder(), 'server', 'mcp-workbench'), 0o644);
  await everyEnd([process.execPath, path.join(bundleFolder(), 'server', 'index.js')], {});
}

function uvPlace() {
  const uv = path.join(place, 'uv');
  return {
    ...process.env,
    UV_TOOL_DIR: path.join(uv, 'tools'),
    UV_TOOL_BIN_DIR: path.join(uv, 'bin'),
    UV_CACHE_DIR: path.join(uv, 'cache'),
    UV_PYTHON_DOWNLOADS: 'never',
  };
}

function says(executable, origin) {
  const text = execFileSync(executable, ['--version']).toString().trim();
  check(text.includes(crate.version) && text.endsWith(`${origin})`), `${executable} says ${text}`);
  console.log(`  ${text}`);
}

// Waits until no process carries the mark in its environment.
async function gone(mark, what) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const left = fs.readdirSync('/proc').filter((pid) => /^\d+$/.test(pid) && carries(pid, mark));
    if (left.length === 0) return;
    check(Date.now() < end, `processes are left, ${what}: ${left}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

function carries(pid, mark) {
  try {
    // A process that has ended and waits for its parent has an empty one.
    return fs.readFileSync(`/proc/${pid}/environ`).includes(mark);
  } catch {
    return false;
  }
}

async function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} takes too long`)), PATIENCE);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function run(program, args, more = {}) {
  const { status, error, stdout, stderr } = spawnSync(program, args, { encoding: 'utf8', maxBuffer: 1 << 28, ...more });
  check(status === 0, `${program} ${args.join(' ')}: ${error?.message ?? status}\n${stdout ?? ''}${stderr ?? ''}`);
}

function step(what) {
  console.log(`== ${what}`);
}

function check(holds, otherwise) {
  if (!holds) throw new Error(otherwise);
}
