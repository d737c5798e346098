// Every sentence of docs/console.md, as checks in a browser.

import { calls, overview, pages, servers, tools } from "./pages.mjs";
import { alone, catalogue, daemon, endurance, toolman } from "./places.mjs";
import { hostile, secrets, tokens, trust } from "./trust.mjs";

export const suites = [
  ["pages", pages],
  ["overview", overview],
  ["servers", servers],
  ["tools", tools],
  ["calls", calls],
  ["hostile content", hostile],
  ["secrets", secrets],
  ["trust", trust],
  ["tokens", tokens],
  ["endurance", endurance],
  ["a large catalogue", catalogue],
  ["toolman", toolman],
  ["the journal alone", alone],
  ["the daemon", daemon],
];
