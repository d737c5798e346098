// The figures of docs/deployment.md: three replicas behind haproxy, a real Valkey, the fake upstream.
//
//   node testing/replicas/run.mjs [--gateway target/release] [--sessions 10000] [--seconds 60] [--kills 200] [--log FILE]
//     [PART…]
//
// PART is one of handing, throughput, sizing, sessions, kills, stream; all of them unless told otherwise. It prints the
// rows of the table there, and what went wrong in full on stderr; FILE gets what the programs say. The exit status is 1 if a
// figure was missed. It needs haproxy on PATH (Debian: haproxy) and `cargo build --release --bins --examples`; the store is
// that of PATH, or the one that `cargo test --test it store_server::` has unpacked.
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, openSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const root = new URL('../../', import.meta.url).pathname;
const options = { gateway: 'target/release', sessions: 10000, concurrency: 32, seconds: 60, kills: 200, calls: 6000, idle: 2000 };
const parts = [];
for (let at = 2; at < process.argv.length; at += 1) {
  const word = process.argv[at];
  if (word.startsWith('--')) options[word.slice(2)] = process.argv[(at += 1)];
  else parts.push(word);
}
for (const name of ['sessions', 'concurrency', 'seconds', 'kills', 'calls', 'idle']) options[name] = Number(options[name]);
const directory = mkdtempSync(join(tmpdir(), 'replicas-'));
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const running = new Set();
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(130));
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
  rmSync(directory, { recursive: true, force: true });
});

const log = options.log ? openSync(options.log, 'a') : 'ignore';
function start(program, args, settings = {}) {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', log], ...settings });
  running.add(child);
  child.on('exit', () => running.delete(child));
  return child;
}

async function freePort() {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

// ---- the machines

function storeProgram() {
  for (const name of ['valkey-server', 'redis-server']) {
    for (const folder of process.env.PATH.split(':')) if (existsSync(join(folder, name))) return join(folder, name);
  }
  const found = readdirSync(join(root, 'target/wheels'), { recursive: true }).find((path) => path.endsWith('/valkey-server'));
  if (!found) throw new Error('no store: run `cargo test --test it store_server::` once');
  return join(root, 'target/wheels', found);
}

async function startStore() {
  const port = await freePort();
  const child = start(storeProgram(), ['--port', `${port}`, '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', directory]);
  child.stdout.resume();
  for (;;) {
    const up = await new Promise((resolve) => {
      const socket = net.connect(port, '127.0.0.1', () => { socket.destroy(); resolve(true); });
      socket.on('error', () => resolve(false));
    });
    if (up) return { child, port, url: `redis://127.0.0.1:${port}/0` };
    await sleep(20);
  }
}

const fake = join(root, options.gateway, 'examples/fake-upstream');
function config(store) {
  const server = (...flags) => ({ command: fake, args: flags });
  // Calls of clients that share a server which asks go to it one at a time, so the one that asks is another.
  const mcpServers = { a: server('--with', 'echo,progress,update', '--resources', '1'), q: server('--with', 'ask') };
  const file = { toolMode: 'proxy', toolboxes: { dev: { description: 'd', mcpServers } } };
  if (store) file.store = store;
  const path = join(directory, store ? 'shared.json' : 'alone.json');
  writeFileSync(path, JSON.stringify(file));
  return path;
}

async function startGateway(file, port = 0) {
  const args = ['--config', file, 'serve', '--http', `127.0.0.1:${port}`, '--allow-host', 'localhost'];
  const child = start(join(root, options.gateway, 'mcp-workbench'), args, { cwd: directory, env: { ...process.env, HOME: directory, XDG_STATE_HOME: directory } });
  const line = await new Promise((resolve, reject) => {
    let text = '';
    child.stdout.on('data', (data) => { text += data; if (text.includes('\n')) resolve(text); });
    child.on('exit', (code) => reject(new Error(`the gateway ended with ${code}`)));
  });
  return { child, port: Number(/:(\d+)\/mcp/.exec(line)[1]), file };
}

async function kill(gateway) {
  const gone = new Promise((resolve) => gateway.child.on('exit', resolve));
  gateway.child.kill('SIGKILL');
  await gone;
}

// The balancer of deploy/haproxy.cfg, with the addresses of these gateways.
async function startBalancer(gateways) {
  const port = await freePort();
  const servers = gateways.map((gateway, n) => `    server gateway${n} 127.0.0.1:${gateway.port}`).join('\n');
  const text = readFileSync(join(root, 'deploy/haproxy.cfg'), 'utf8')
    .replace(/^resolvers[^]*?\n\n/m, '')
    .replace('bind :8850', `bind 127.0.0.1:${port}`)
    .replace(/ +server-template.*/, servers)
    .replace(' init-addr none,libc', '')
    // A shell has fewer descriptors than a container.
    .replace('maxconn 20000', 'maxconn 4000');
  const file = join(directory, 'haproxy.cfg');
  writeFileSync(file, text);
  const child = start('haproxy', ['-db', '-f', file]);
  child.stdout.resume();
  child.on('exit', (code) => { if (code) throw new Error(`haproxy ended with ${code}`); });
  for (;;) {
    const ready = await request(port, 'GET', '/readyz', {}, '').then((answer) => answer.status === 200, () => false);
    if (ready) return { child, port };
    await sleep(50);
  }
}

// ---- HTTP, and MCP over it

const agent = new http.Agent({ keepAlive: true, maxSockets: 4096 });
const PATIENCE = 30_000;

// One exchange. `onEvent` gets each event of a stream; what it returns `false` for ends the reading.
function request(port, method, path, headers, body, onEvent) {
  return new Promise((resolve, reject) => {
    const all = { Host: 'localhost', Accept: method === 'GET' ? 'text/event-stream' : 'application/json, text/event-stream', ...headers };
    if (body) Object.assign(all, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) });
    const sent = http.request({ host: '127.0.0.1', port, method, path, headers: all, agent }, (answer) => {
      let text = '';
      const isStream = (answer.headers['content-type'] ?? '').startsWith('text/event-stream');
      const end = () => { clearTimeout(timer); resolve({ status: answer.statusCode, headers: answer.headers, text }); };
      answer.setEncoding('utf8');
      answer.on('data', (data) => {
        text += data;
        if (!isStream || !onEvent) return;
        for (let cut = text.indexOf('\n\n'); cut >= 0; cut = text.indexOf('\n\n')) {
          const event = {};
          for (const line of text.slice(0, cut).split('\n')) {
            const [, key, value] = /^(\w*): ?(.*)$/.exec(line) ?? [];
            if (key) event[key] = value;
          }
          text = text.slice(cut + 2);
          if (onEvent(event) === false) { sent.destroy(); return end(); }
        }
      });
      answer.on('end', end);
      answer.on('error', (error) => { clearTimeout(timer); reject(error); });
    });
    const timer = onEvent && method === 'GET' ? undefined : setTimeout(() => sent.destroy(new Error('no answer')), PATIENCE);
    sent.on('error', (error) => { clearTimeout(timer); reject(error); });
    sent.end(body);
  });
}

class Session {
  constructor(next) { this.next = next; this.last = 0; this.heard = []; this.waiting = []; }

  get headers() { return { 'Mcp-Session-Id': this.id, 'MCP-Protocol-Version': '2025-06-18' }; }

  async open() {
    const params = { protocolVersion: '2025-06-18', capabilities: { elicitation: {} }, clientInfo: { name: 'driver', version: '1' } };
    const answer = await this.raw({ id: 0, method: 'initialize', params }, {});
    this.id = answer.headers['mcp-session-id'];
    if (answer.status !== 200 || !this.id) throw new Error(`initialize: ${answer.status}`);
    await this.raw({ method: 'notifications/initialized' });
  }

  raw(message, headers = this.headers, onEvent = undefined) {
    return request(this.next(), 'POST', '/mcp', headers, JSON.stringify({ jsonrpc: '2.0', ...message }), onEvent);
  }

  // A request, whose questions `answer` answers.
  async request(method, params, answer) {
    const id = (this.last += 1);
    let result;
    const response = await this.raw({ id, method, params }, this.headers, (event) => {
      if (!event.data) return;
      const message = JSON.parse(event.data);
      if (message.id === id && !message.method) result = message;
      else if (message.method && message.id !== undefined) this.raw({ id: message.id, result: answer(message) });
    });
    result ??= response.text ? JSON.parse(response.text) : undefined;
    if (response.status !== 200 || !result) throw new Error(`${method}: ${response.status} ${response.text}`);
    if (result.id !== id) throw new Wrong(`${method}: the answer of another`);
    return result;
  }

  async use(tool, args, answer) {
    const server = tool === 'ask' ? 'q' : 'a';
    const message = await this.request('tools/call', { name: 'use_tool', arguments: { tool: { toolbox: 'dev', server, tool }, arguments: args } }, answer);
    if (message.error || message.result.isError) throw new Failed(JSON.stringify(message.error ?? message.result));
    return message.result.content[0].text;
  }

  // Opens the session's own stream, and waits until it is there: it begins with an event that has nothing but an id.
  listen() {
    return new Promise((opened, refused) => {
      request(this.next(), 'GET', '/mcp', this.headers, '', (event) => {
        opened();
        if (event.data) this.heard.push(JSON.parse(event.data));
        this.waiting.splice(0).forEach((wake) => wake());
        return !this.ended;
      }).then(({ status, text }) => refused(new Error(`GET: ${status} ${text}`)), refused);
    });
  }

  async hear(method) {
    const end = Date.now() + PATIENCE;
    while (Date.now() < end) {
      const found = this.heard.find((message) => message.method === method);
      if (found) return found;
      await Promise.race([new Promise((resolve) => this.waiting.push(resolve)), sleep(1000)]);
    }
    throw new Error(`no ${method}`);
  }
}

class Wrong extends Error {}
class Failed extends Error {}

const expect = (condition, what) => { if (!condition) throw new Wrong(what); };

const QUESTION = { method: 'elicitation/create', params: '{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}' };

// Opens, calls, subscribes, is asked, resumes and ends.
async function mixedWork(next, n) {
  const session = new Session(next);
  await session.open();
  await session.listen();
  await session.request('tools/call', { name: 'open_toolbox', arguments: { toolbox_name: 'dev' } });
  const mark = `mark-${n}-${Math.random()}`;
  const echoed = await session.use('echo', { mark });
  expect(echoed.includes(mark), `echo of ${mark}: ${echoed}`);
  const uri = 'fake://resource/1';
  const listed = await session.request('resources/list', {});
  const known = listed.result.resources[0]?.uri ?? uri;
  await session.request('resources/subscribe', { uri: known });
  await session.use('update', { uri });
  const updated = await session.hear('notifications/resources/updated');
  expect(updated.params.uri === known, `update of ${known}: ${JSON.stringify(updated)}`);
  const answer = { action: 'accept', content: { name: mark } };
  const asked = await session.use('ask', QUESTION, () => answer);
  expect(asked.includes(mark), `question of ${mark}: ${asked}`);
  const steps = await progressWithBreaks(session, 5, 5, () => session.next(), async () => {});
  expect(steps.join() === '1,2,3,4,5', `resume: ${steps}`);
  session.ended = true;
  const ended = await request(next(), 'DELETE', '/mcp', session.headers, '');
  expect(ended.status === 204, `DELETE: ${ended.status}`);
  for (let n = 0; n < 3; n += 1) {
    const after = await session.raw({ id: 99, method: 'ping' });
    expect(after.status === 404, `ping after DELETE: ${after.status}`);
  }
}

// A call that reports progress, whose stream is broken after each event and resumed elsewhere. Returns the steps as they came.
async function progressWithBreaks(session, steps, ms, nextPort, onBreak) {
  const id = (session.last += 1);
  const seen = [];
  let last;
  let answer;
  const take = (event) => {
    if (event.id) last = event.id;
    if (!event.data) return true;
    const message = JSON.parse(event.data);
    if (message.id === id && !message.method) { answer = message; return false; }
    if (message.method === 'notifications/progress') { seen.push(message.params.progress); return false; }
    return true;
  };
  const params = { name: 'use_tool', arguments: { tool: { toolbox: 'dev', server: 'a', tool: 'progress' }, arguments: { n: steps, ms } }, _meta: { progressToken: id } };
  let port = nextPort();
  await request(port, 'POST', '/mcp', session.headers, JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params }), take);
  const end = Date.now() + PATIENCE + steps * 2000;
  while (!answer) {
    if (Date.now() > end) throw new Error(`the stream never ended; ${seen.length} of ${steps}`);
    await onBreak(port);
    port = nextPort();
    await request(port, 'GET', '/mcp', { ...session.headers, 'Last-Event-ID': last }, '', take).catch(() => sleep(20));
  }
  return seen;
}

// ---- the parts

const percentile = (values, share) => values.sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))];
const TICK = Number(execFileSync('getconf', ['CLK_TCK']));
// The seconds that a process has run.
const cpu = (pid) => {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / TICK;
};
let broken = false;
const number = (value) => Math.round(value).toLocaleString('en');
// A row of the table of figures.
const report = (what, found, wanted, fine) => {
  broken ||= !fine;
  console.log(`| ${what} | ${found} | ${wanted}${fine ? '' : ' **missed**'} |`);
};
const complain = (what) => process.stderr.write(`${what}\n`);

async function all(count, concurrency, work) {
  let next = 0;
  await Promise.all(Array.from({ length: concurrency }, async () => { while (next < count) { const n = next; next += 1; await work(n); } }));
}

// A server over stdio cannot say whose call its question belongs to. Until it has asked once, a question that comes
// while several clients have calls there is refused; from then on, their calls go to it one at a time. So each asks once
// before the others come, in a session that stays, so that the server does.
async function letEachServerAskOnce(fleet) {
  for (const { port } of fleet.gateways) {
    const session = new Session(() => port);
    await session.open();
    await session.request('tools/call', { name: 'open_toolbox', arguments: { toolbox_name: 'dev' } });
    await session.use('ask', QUESTION, () => ({ action: 'decline' }));
  }
}

async function sessions(fleet) {
  await letEachServerAskOnce(fleet);
  const counts = { wrong: 0, lost: 0 };
  const begun = Date.now();
  await all(options.sessions, options.concurrency, async (n) => {
    try { await mixedWork(() => fleet.balancer.port, n); } catch (error) {
      counts[error instanceof Wrong ? 'wrong' : 'lost'] += 1;
      complain(`session ${n}: ${error.message}`);
    }
  });
  const seconds = number((Date.now() - begun) / 1000);
  report(`${number(options.sessions)} sessions of mixed work (open, call, subscribe, question, resume, delete) behind haproxy`, `${counts.wrong} wrong, ${counts.lost} lost, in ${seconds} s`, '0 wrong, 0 lost', counts.wrong + counts.lost === 0);
}

async function kills(fleet) {
  const clients = await Promise.all(Array.from({ length: 24 }, async () => {
    const session = new Session(() => fleet.balancer.port);
    await session.open();
    await session.request('tools/call', { name: 'open_toolbox', arguments: { toolbox_name: 'dev' } });
    return session;
  }));
  let calls = 0, failed = 0, unexplained = 0, wrong = 0, latest = 0, slowest = 0, ended = false;
  const deaths = [];
  const work = clients.map(async (session, n) => {
    let seen = 0;
    while (!ended) {
      const mark = `k-${n}-${calls}`;
      const begun = Date.now();
      try {
        if (!(await session.use('echo', { mark })).includes(mark)) wrong += 1;
        calls += 1;
        const death = deaths.at(-1);
        // The first call that began after a death and was served: the session is back.
        if (death && begun >= death.end && seen !== death) {
          seen = death;
          slowest = Math.max(slowest, Date.now() - death.begun);
        }
      } catch (error) {
        failed += 1;
        const death = deaths.find(({ end }) => begun <= end);
        if (death) latest = Math.max(latest, Date.now() - death.begun);
        else { unexplained += 1; complain(`call of session ${n}, not in flight at a death: ${error.message}`); }
      }
    }
  });
  for (let second = 5; second <= options.seconds; second += 5) {
    await sleep(5000);
    const at = (second / 5) % 3;
    const { port, file } = fleet.gateways[at];
    const death = { begun: Date.now(), end: Infinity };
    deaths.push(death);
    await kill(fleet.gateways[at]);
    death.end = Date.now();
    fleet.gateways[at] = await startGateway(file, port);
  }
  await sleep(5000);
  ended = true;
  await Promise.all(work);
  const what = `\`kill -9\` of a replica each 5 s for ${options.seconds} s, under ${number(calls)} calls of 24 sessions`;
  report(what, `${failed} calls failed, ${unexplained} of them not in flight at a death, ${wrong} wrong answers`, 'only calls in flight', unexplained + wrong === 0);
  report('… a call in flight fails after', `${number(latest)} ms at most`, '3,000 ms', latest <= 3000);
  report('… every session is back after', `${number(slowest)} ms at most`, '5,000 ms', slowest <= 5000);
}

async function stream(fleet) {
  const [home, ...fronts] = fleet.gateways;
  const session = new Session(() => home.port);
  await session.open();
  await session.request('tools/call', { name: 'open_toolbox', arguments: { toolbox_name: 'dev' } });
  let at = 0;
  const seen = await progressWithBreaks(session, options.kills, 50, () => fronts[at % 2].port, async () => {
    const { port, file } = fronts[at % 2];
    await kill(fronts[at % 2]);
    fronts[at % 2] = await startGateway(file, port);
    fleet.gateways = [home, ...fronts];
    at += 1;
  });
  const lost = options.kills - new Set(seen).size, repeated = seen.length - new Set(seen).size;
  report(`a stream of ${options.kills} events whose front replica is killed at each (${at} kills)`, `${lost} lost, ${repeated} repeated`, '0 lost, 0 repeated', lost + repeated === 0 && seen.every((step, n) => step === n + 1));
}

async function handing(fleet) {
  const times = { home: [], other: [] };
  let port = fleet.gateways[0].port;
  const session = new Session(() => port);
  await session.open();
  await session.request('tools/call', { name: 'open_toolbox', arguments: { toolbox_name: 'dev' } });
  const count = options.calls / 2;
  for (let n = 0; n < count; n += 1) {
    for (const [where, gateway] of [['home', fleet.gateways[0]], ['other', fleet.gateways[1]]]) {
      port = gateway.port;
      const begun = process.hrtime.bigint();
      await session.use('echo', { n });
      times[where].push(Number(process.hrtime.bigint() - begun) / 1e6);
    }
  }
  const added = (share) => percentile(times.other, share) - percentile(times.home, share);
  for (const [what, share, most] of [['median', 0.5, 2], ['99th percentile', 0.99, 10]]) {
    const found = `${added(share).toFixed(2)} ms (${percentile(times.other, share).toFixed(2)} ms against ${percentile(times.home, share).toFixed(2)} ms)`;
    report(`handing on adds at the ${what}, of ${number(count)} calls each`, found, `${most} ms`, added(share) <= most);
  }
}

const META = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientInfo': { name: 'driver', version: '1' }, 'io.modelcontextprotocol/clientCapabilities': {} };
async function modernCall(port, name, args) {
  const params = { _meta: META, name, arguments: args };
  const headers = { 'MCP-Protocol-Version': '2026-07-28', 'Mcp-Method': 'tools/call', 'Mcp-Name': name };
  const answer = await request(port, 'POST', '/mcp', headers, JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }), () => true);
  if (answer.status !== 200) throw new Error(`${name}: ${answer.status} ${answer.text}`);
}

// The calls per processor second of gateways, each of which has this many clients.
const CLIENTS = 16;
async function load(gateways, legacy) {
  let turn = 0;
  const next = () => gateways[(turn += 1) % gateways.length].port;
  const echo = { tool: { toolbox: 'dev', server: 'a', tool: 'echo' }, arguments: {} };
  const clients = CLIENTS * gateways.length;
  let call = () => modernCall(next(), 'use_tool', echo);
  if (legacy) {
    const sessions = await Promise.all(Array.from({ length: clients }, async () => {
      const session = new Session(next);
      await session.open();
      await session.request('tools/call', { name: 'open_toolbox', arguments: { toolbox_name: 'dev' } });
      return session;
    }));
    call = (n) => sessions[n % clients].use('echo', {});
  } else await modernCall(next(), 'open_toolbox', { toolbox_name: 'dev' });
  await all(options.calls, clients, call);
  const before = gateways.map((gateway) => cpu(gateway.child.pid));
  await all(options.calls * gateways.length, clients, call);
  const used = gateways.reduce((sum, gateway, n) => sum + cpu(gateway.child.pid) - before[n], 0);
  return (options.calls * gateways.length) / used;
}

// Legacy calls go round robin. Modern ones are served where they arrive, so each replica has its load in turn: three of
// them and the driver would get in each other's way on a small machine, and not for the sake of the store.
async function throughput(fleet) {
  const alone = await startGateway(config());
  for (const [what, legacy, wanted] of [['modern', false, 0.9], ['legacy', true, 0.25]]) {
    const rounds = [];
    for (let round = 0; round < 3; round += 1) {
      const single = await load([alone], legacy);
      const shared = legacy ? await load(fleet.gateways, true) : await load([fleet.gateways[round]], false);
      rounds.push({ single, shared, ratio: shared / single });
    }
    const { single, shared, ratio } = rounds.sort((a, b) => a.ratio - b.ratio)[1];
    const found = `${(100 * ratio).toFixed(0)} %: ${number(shared)} against ${number(single)} calls`;
    report(`${what} calls${legacy ? ' in round robin' : ''}, per processor second of the gateways, against one without a store`, found, `${100 * wanted} %`, ratio >= wanted);
  }
  await kill(alone);
}

const resident = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
function storeMemory(port) {
  return new Promise((resolve, reject) => {
    let text = '';
    const socket = net.connect(port, '127.0.0.1', () => socket.write('INFO memory\r\n'));
    socket.on('data', (data) => {
      const found = /used_memory:(\d+)/.exec((text += data));
      if (found) { socket.destroy(); resolve(Number(found[1])); }
    });
    socket.on('error', reject);
  });
}

// The memory of sessions that have a toolbox open and are silent.
async function sizing(fleet) {
  const measure = async () => [fleet.gateways.reduce((sum, gateway) => sum + resident(gateway.child.pid), 0), await storeMemory(fleet.store.port)];
  const before = await measure();
  const opened = [];
  await all(options.idle, options.concurrency, async () => {
    const session = new Session(() => fleet.balancer.port);
    await session.open();
    await session.request('tools/call', { name: 'open_toolbox', arguments: { toolbox_name: 'dev' } });
    opened.push(session);
  });
  const after = await measure();
  const [gateways, store] = after.map((bytes, n) => (bytes - before[n]) / opened.length);
  report(`memory of an idle session with a toolbox open, of ${number(options.idle)}`, `${(gateways / 1024).toFixed(1)} KiB at its gateway, ${(store / 1024).toFixed(1)} KiB in the store: ${number(2 ** 20 / gateways)} and ${number(2 ** 20 / store)} sessions per MiB`, '', true);
  await all(opened.length, options.concurrency, (n) => request(fleet.balancer.port, 'DELETE', '/mcp', opened[n].headers, ''));
}

const known = { handing, throughput, sizing, sessions, kills, stream };
const store = await startStore();
const file = config(store.url);
const fleet = { store, gateways: [await startGateway(file), await startGateway(file), await startGateway(file)] };
fleet.balancer = await startBalancer(fleet.gateways);
console.log('| what | found | wanted |\n|---|---|---|');
for (const part of parts.length > 0 ? parts : Object.keys(known)) await known[part](fleet);
process.exit(broken ? 1 : 0);
