// The page of `notes.mjs`: asks its server for everything that an app may ask for, and shows the answers, one a line.
/* global SERVER, PAGE, NOTE */

import { App } from "@modelcontextprotocol/ext-apps/app-with-deps";

const app = new App({ name: `Notes of ${SERVER}`, version: "1.0.0" }, {});

function show(what, text) {
  const line = document.createElement("li");
  line.dataset.what = what;
  line.textContent = text;
  document.getElementById("notes").append(line);
}

async function ask(what, question) {
  try {
    show(what, await question());
  } catch (error) {
    show(what, `error: ${error.message}`);
  }
}

const textOf = (result) => result.content[0].text;
const contentOf = async (uri) => (await app.readServerResource({ uri })).contents[0];

app.ontoolresult = (result) => show("result", textOf(result));
await app.connect();

await ask("app-only tool", async () => textOf(await app.callServerTool({ name: `${SERVER}-secret`, arguments: {} })));
await ask("resource", async () => (await contentOf(NOTE)).text);
// Two servers have this page under the same URI, so it is the host that tells an app which one is its own.
const own = app.getHostContext().toolInfo.tool._meta.ui.resourceUri;
await ask("own page", async () => (await contentOf(own)).text.match(/<title>(.*?)<\/title>/)[1]);
await ask("shared URI", async () => (await contentOf(PAGE)).text.match(/<title>(.*?)<\/title>/)[1]);
show("done", "done");
