'use strict';
// The entry of a desktop bundle. Some clients unpack it without the run bit, so we set it.

const fs = require('node:fs');
const path = require('node:path');
const start = require('./start.js');

const file = path.join(__dirname, process.platform === 'win32' ? 'mcp-workbench.exe' : 'mcp-workbench');
fs.chmodSync(file, 0o755);
start(file);
