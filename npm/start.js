'use strict';
// Starts an executable in our place. Everything about it (arguments, environment, stdin, stdout, stderr, exit status)
// is what it would be without us.

const { spawn } = require('node:child_process');
const os = require('node:os');

module.exports = function start(file) {
  const args = process.argv.slice(2);
  if (process.platform !== 'win32' && typeof process.execve === 'function') {
    // One process instead of two: nothing to forward, and nobody left behind by a `kill -9`. That Node calls this
    // experimental is not for the user's stderr.
    process.emitWarning = () => {};
    process.execve(file, [file, ...args], process.env);
  }
  const child = spawn(file, args, { stdio: 'inherit' });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    // On Windows the console tells the child by itself, and `kill` would not be a question.
    process.on(signal, () => process.platform === 'win32' || child.kill(signal));
  }
  child.on('error', (error) => {
    process.stderr.write(`error: ${file} cannot be started: ${error.message}\n`);
    process.exit(1);
  });
  child.on('exit', (code, signal) => process.exit(code ?? 128 + os.constants.signals[signal]));
};
