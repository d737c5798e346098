// Measures other programs beside ours, in the benchmark's own harness:
//
//   node benches/peers/run.mjs [--quick]
//
// Installs them first: from npm into benches/peers/node_modules, from PyPI into target/peers. To measure another one, add
// it to the list below; `{port}` and `{server}` are explained in benches/gateway/peers.rs.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '..', '..');
const run = (program, args, env = {}) =>
  execFileSync(program, args, { cwd: root, stdio: 'inherit', env: { ...process.env, ...env } });

// An installation that was interrupted is made again.
if (!existsSync(join(here, 'node_modules', '.package-lock.json'))) run('npm', ['ci', '--prefix', here]);
const venv = join(root, 'target', 'peers');
if (!existsSync(join(venv, 'bin', 'mcp-proxy'))) {
  run('python3', ['-m', 'venv', venv]);
  run(join(venv, 'bin', 'pip'), ['install', '--quiet', '-r', join(here, 'requirements.txt')]);
}

const { dependencies } = JSON.parse(readFileSync(join(here, 'package.json'), 'utf8'));
const npm = (name) => ['node', join(here, 'node_modules', '.bin', name)];
const python = readFileSync(join(here, 'requirements.txt'), 'utf8').match(/mcp-proxy==(.*)/)[1];
const peers = [
  {
    name: `supergateway ${dependencies.supergateway} (npm)`,
    command: [...npm('supergateway'), '--stdio={server}', '--outputTransport', 'streamableHttp', '--stateful',
      '--port', '{port}', '--logLevel', 'none'],
  },
  {
    name: `mcp-proxy ${dependencies['mcp-proxy']} (npm)`,
    command: [...npm('mcp-proxy'), '--host', '127.0.0.1', '--port', '{port}', '--server', 'stream', '--', '{server}'],
  },
  {
    name: `mcp-proxy ${python} (PyPI)`,
    command: [join(venv, 'bin', 'mcp-proxy'), '--host', '127.0.0.1', '--port', '{port}', '--log-level', 'ERROR', '--',
      '{server}'],
  },
];
run('cargo', ['bench', '--', 'peers', ...process.argv.slice(2)], { MCP_PEERS: JSON.stringify(peers) });
