// The agents that are driven, each in its own file: how it is set up in a fresh home, and what is known of it.
//
// | member | meaning |
// |---|---|
// | `name` | what the command line and `results.json` call it |
// | `client` | what `connect` calls it |
// | `package` | where its version stands |
// | `prefix` | what it puts before the names of an entry's tools |
// | `opened` | where its model finds opened tools: in the `list` of its next request, or in the `answer` |
// | `whole` | how many characters of an answer reach its model whole; the gateway's limit for it relies on that |
// | `files` | its settings, before `connect` adds the gateway |
// | `command` | how it is told something without a terminal |

import * as claudeCode from "./claude-code.mjs";
import cline from "./cline.mjs";
import codex from "./codex.mjs";
import gemini from "./gemini.mjs";
import opencode from "./opencode.mjs";

export const AGENTS = [claudeCode.modern, claudeCode.legacy, codex, gemini, opencode, cline];
