// Writes every manifest that holds our names or our version, from Cargo.toml, which is where they are decided.
//
//   node packaging/manifests.mjs            writes them
//   node packaging/manifests.mjs --check    says which have drifted, and fails

import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

/** What Cargo.toml says of us. */
export const crate = readCrate();
/** The executables that every package has. */
export const programs = ['mcp-workbench', 'toolman'];

const { names } = crate;
const author = { name: 'The MCP Workbench authors', url: crate.repository };
/** How a client starts us from npm, which most clients' users have. */
const server = { command: 'npx', args: ['-y', `${names.npm}@${crate.version}`] };
/** As a plugin, whose name stands in the names of its servers. */
const pluginServer = { ...server, args: [...server.args, '--entry', `plugin_${crate.name}_workbench`] };

/** The package that `npx` names: a launcher, and a package for each platform of which npm installs one. */
export function mainPackage() {
  return {
    name: names.npm,
    version: crate.version,
    description: crate.description,
    keywords: crate.keywords,
    license: crate.license,
    homepage: crate.homepage,
    repository: { type: 'git', url: `git+${crate.repository}.git`, directory: 'npm' },
    mcpName: names.registry,
    bin: Object.fromEntries(programs.map((program) => [program, `bin/${program}.js`])),
    files: ['bin', 'launch.js', 'start.js'],
    engines: { node: '>=18' },
    optionalDependencies: Object.fromEntries(
      Object.keys(crate.targets).map((platform) => [platformName(platform), crate.version]),
    ),
    publishConfig: { access: 'public' },
  };
}

/** The package that holds the executables of one platform. */
export function platformPackage(platform) {
  const [os, cpu] = platform.split('-');
  return {
    name: platformName(platform),
    version: crate.version,
    description: `The executables of ${names.npm} for ${platform}`,
    license: crate.license,
    homepage: crate.homepage,
    repository: { type: 'git', url: `git+${crate.repository}.git` },
    files: ['bin', 'vectors.NOTICE'],
    os: [os],
    cpu: [cpu],
    preferUnplugged: true,
    publishConfig: { access: 'public' },
  };
}

/** The manifest of the desktop bundle of one platform: a script that sets the run bit, which some clients drop. */
export function bundle(platform) {
  const [os] = platform.split('-');
  return {
    manifest_version: '0.3',
    name: crate.name,
    display_name: names.title,
    version: crate.version,
    description: names.summary,
    author,
    homepage: crate.homepage,
    repository: { type: 'git', url: crate.repository },
    license: crate.license,
    keywords: crate.keywords,
    server: {
      type: 'node',
      entry_point: 'server/index.js',
      mcp_config: {
        command: 'node',
        args: ['${__dirname}/server/index.js'],
        env: { WORKBENCH_CONFIG: '${user_config.config}' },
      },
    },
    user_config: {
      config: {
        type: 'file',
        title: 'Configuration file',
        description: 'Your workbench-config.json',
        required: true,
      },
    },
    compatibility: { platforms: [os], runtimes: { node: '>=18' } },
  };
}

/** Every generated file of the repository: its path, and what it holds. */
function files() {
  const about = {
    name: crate.name,
    version: crate.version,
    description: names.summary,
    author,
    homepage: crate.homepage,
    repository: crate.repository,
    license: crate.license,
    keywords: crate.keywords,
  };
  const json = {
    'npm/package.json': mainPackage(),
    'server.json': {
      $schema: 'https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json',
      name: names.registry,
      title: names.title,
      description: names.summary,
      version: crate.version,
      repository: { url: crate.repository, source: 'github' },
      packages: [registryPackage('npm', names.npm, 'npx'), registryPackage('pypi', names.pypi, 'uvx')],
    },
    '.claude-plugin/marketplace.json': {
      name: crate.name,
      owner: author,
      plugins: [{ name: crate.name, source: './plugin', description: names.summary, version: crate.version }],
    },
    'plugin/.claude-plugin/plugin.json': about,
    'plugin/.mcp.json': { mcpServers: { workbench: pluginServer } },
    'plugin/plugin.json': { $schema: 'https://agent-plugins.org/schemas/1.0.0/plugin.schema.json', ...about },
    'plugin/mcp.json': {
      $schema: 'https://agent-plugins.org/schemas/1.0.0/mcp.schema.json',
      mcpServers: { workbench: { type: 'stdio', ...pluginServer } },
    },
    'gemini-extension.json': {
      name: crate.name,
      version: crate.version,
      description: names.summary,
      mcpServers: { workbench: server },
    },
  };
  const texts = Object.entries(json).map(([file, value]) => [file, `${JSON.stringify(value, null, 2)}\n`]);
  return new Map([...texts, ['pyproject.toml', wheel()], ['README.md', readme()]]);
}

function registryPackage(registryType, identifier, runtimeHint) {
  const description = 'The configuration file; where it is not set, workbench-config.json here or the user\'s own';
  return {
    registryType,
    identifier,
    version: crate.version,
    runtimeHint,
    transport: { type: 'stdio' },
    environmentVariables: [{ name: 'WORKBENCH_CONFIG', description, format: 'filepath', isRequired: false }],
  };
}

function wheel() {
  const list = (items) => `[${items.map((item) => JSON.stringify(item)).join(', ')}]`;
  return `# Written by packaging/manifests.mjs.
[build-system]
requires = ["maturin>=1.9,<2"]
build-backend = "maturin"

[project]
name = ${JSON.stringify(names.pypi)}
version = ${JSON.stringify(crate.version)}
description = ${JSON.stringify(crate.description)}
readme = "README.md"
license = ${JSON.stringify(crate.license)}
license-files = ["LICENSE-MIT", "LICENSE-APACHE", "src/search/vectors.NOTICE"]
keywords = ${list(crate.keywords)}
requires-python = ">=3.8"

[project.urls]
Homepage = ${JSON.stringify(crate.homepage)}
Changelog = ${JSON.stringify(`${crate.repository}/blob/main/CHANGELOG.md`)}

[tool.maturin]
bindings = "bin"
features = ["wheel"]
strip = true
`;
}

/** The README with its install links as they are now. */
function readme() {
  const text = fs.readFileSync(path.join(root, 'README.md'), 'utf8');
  const [begin, end] = ['<!-- install links -->\n', '<!-- /install links -->'];
  const [from, to] = [text.indexOf(begin), text.indexOf(end)];
  if (from < 0 || to < from) throw new Error('the README has no place for install links');
  for (const told of [`npx -y ${names.npm}\``, `uvx ${names.pypi}\``, `mcp-name: ${names.registry}\n`]) {
    if (!text.includes(told)) throw new Error(`the README does not say ${told.trim()}`);
  }
  const cursor = new URL('https://cursor.com/en/install-mcp');
  cursor.searchParams.set('name', 'workbench');
  cursor.searchParams.set('config', Buffer.from(JSON.stringify(server)).toString('base64'));
  const code = new URL('https://insiders.vscode.dev/redirect/mcp/install');
  code.searchParams.set('name', 'workbench');
  code.searchParams.set('config', JSON.stringify({ type: 'stdio', ...server }));
  const links = `[Add to Cursor](${cursor}) · [Add to VS Code](${code})\n`;
  return text.slice(0, from + begin.length) + links + text.slice(to);
}

function platformName(platform) {
  return `${names.npm.split('/')[0]}/${platform}`;
}

function readCrate() {
  const arguments_ = ['metadata', '--no-deps', '--offline', '--format-version', '1'];
  const [found] = JSON.parse(execFileSync('cargo', arguments_, { cwd: root, maxBuffer: 1 << 26 })).packages;
  const { names, targets } = found.metadata;
  const executables = found.targets.filter((target) => target.kind.includes('bin')).map((target) => target.name);
  if (!executables.includes(names.pypi)) throw new Error(`no [[bin]] is called ${names.pypi}, like the wheel`);
  if (names.summary.length > 100) throw new Error('the summary is longer than the 100 characters that a registry takes');
  return { ...found, names, targets };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const check = process.argv.includes('--check');
  let drifted = 0;
  for (const [file, content] of files()) {
    const place = path.join(root, file);
    if (fs.existsSync(place) && fs.readFileSync(place, 'utf8') === content) continue;
    drifted += 1;
    if (check) {
      console.error(`${file} is not what Cargo.toml says; run node packaging/manifests.mjs`);
    } else {
      fs.mkdirSync(path.dirname(place), { recursive: true });
      fs.writeFileSync(place, content);
      console.log(`${file} is written`);
    }
  }
  process.exitCode = check && drifted ? 1 : 0;
}
