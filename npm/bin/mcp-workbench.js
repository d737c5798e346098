#!/usr/bin/env node
require('../launch.js')('mcp-workbench');
