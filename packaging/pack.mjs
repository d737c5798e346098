// Packs executables that are already built for all channels that take them as they are.
//
//   node packaging/pack.mjs OUT PLATFORM=DIRECTORY...
//
// A platform is one of [package.metadata.targets] in Cargo.toml, its directory holds the executables. OUT gets
//   npm/                       tarballs: the main package and one for each platform
//   archives/                  NAME-TARGET-vVERSION.tgz, as cargo-binstall looks for them, and SHA256SUMS
//   bundles/NAME-PLATFORM/     the content of a desktop bundle, for `mcpb pack`

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import { bundle, crate, platformPackage, programs, root } from './manifests.mjs';

const papers = ['README.md', 'LICENSE-MIT', 'LICENSE-APACHE', 'src/search/vectors.NOTICE'];

const [given, ...builds] = process.argv.slice(2);
if (!given || builds.length === 0) {
  console.error('usage: node packaging/pack.mjs OUT PLATFORM=DIRECTORY...');
  process.exit(2);
}
const out = path.resolve(given);
const stage = fs.mkdtempSync(path.join(os.tmpdir(), 'pack-'));
try {
  ['npm', 'archives', 'bundles'].forEach((folder) => fs.mkdirSync(path.join(out, folder), { recursive: true }));
  packMain();
  for (const build of builds) {
    const [platform, directory] = build.split('=');
    if (!crate.targets[platform]) throw new Error(`${platform} is not one of ${Object.keys(crate.targets).join(', ')}`);
    const suffix = platform.startsWith('win32') ? '.exe' : '';
    const executables = programs.map((program) => path.resolve(directory, program + suffix));
    packPlatform(platform, executables);
    packArchive(platform, executables);
    layBundle(platform, executables[0]);
  }
  sumUp();
} finally {
  fs.rmSync(stage, { recursive: true });
}

function packMain() {
  const folder = path.join(stage, 'main');
  fs.cpSync(path.join(root, 'npm'), folder, { recursive: true });
  copy(papers.map((paper) => path.join(root, paper)), folder);
  npmPack(folder);
}

function packPlatform(platform, executables) {
  const folder = path.join(stage, platform);
  copy(executables, path.join(folder, 'bin'), 0o755);
  copy(papers.slice(1).map((paper) => path.join(root, paper)), folder);
  const about = platformPackage(platform);
  write(path.join(folder, 'package.json'), about);
  fs.writeFileSync(path.join(folder, 'README.md'), `${about.description}.\n`);
  npmPack(folder);
}

function packArchive(platform, executables) {
  const name = `${crate.name}-${crate.targets[platform]}-v${crate.version}`;
  const folder = path.join(stage, name);
  copy(executables, folder, 0o755);
  copy(papers.map((paper) => path.join(root, paper)), folder);
  const archive = path.join(out, 'archives', `${name}.tgz`);
  execFileSync('tar', ['-czf', archive, '-C', stage, name]);
}

function layBundle(platform, executable) {
  const folder = path.join(out, 'bundles', `${crate.name}-${platform}`);
  copy([executable], path.join(folder, 'server'), 0o755);
  copy([path.join(root, 'npm', 'start.js')], path.join(folder, 'server'));
  fs.copyFileSync(path.join(root, 'packaging', 'bundle.js'), path.join(folder, 'server', 'index.js'));
  copy(papers.slice(1).map((paper) => path.join(root, paper)), folder);
  write(path.join(folder, 'manifest.json'), bundle(platform));
}

function sumUp() {
  const folder = path.join(out, 'archives');
  const archives = fs.readdirSync(folder).filter((file) => file.endsWith('.tgz'));
  const lines = archives.map((file) => {
    const sum = createHash('sha256').update(fs.readFileSync(path.join(folder, file))).digest('hex');
    return `${sum}  ${file}\n`;
  });
  fs.writeFileSync(path.join(folder, 'SHA256SUMS'), lines.join(''));
}

function npmPack(folder) {
  const npm = process.platform === 'win32' ? 'npm.cmd' : 'npm';
  const shell = process.platform === 'win32';
  execFileSync(npm, ['pack', '--silent', '--pack-destination', path.join(out, 'npm')], {
    cwd: folder,
    shell,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
}

function copy(files, folder, mode) {
  fs.mkdirSync(folder, { recursive: true });
  for (const file of files) {
    const place = path.join(folder, path.basename(file));
    fs.copyFileSync(file, place);
    if (mode) fs.chmodSync(place, mode);
  }
}

function write(file, value) {
  fs.writeFileSync(file, `${JSON.stringify(value, null, 2)}\n`);
}
