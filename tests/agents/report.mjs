// What came of the runs: lines as they happen, a table at the end, and results.json.

import { existsSync, readFileSync, writeFileSync } from "node:fs";

export class Report {
  #clients = {};
  failed = false;

  begin({ name, title, opened }, version) {
    console.log(`${title} ${version}`);
    this.#clients[name] = { title, version, opened, faces: {}, measures: {} };
  }

  add({ name }, face, { checks, measures = {} }) {
    const client = this.#clients[name];
    const known = (client.faces[face.name] ??= {});
    // A check that several scenarios make has failed where it failed once.
    for (const [check, wrong] of Object.entries(checks)) if ((known[check] ?? "ok") === "ok") known[check] = wrong ?? "ok";
    Object.assign(client.measures, measures);
    for (const [check, wrong] of Object.entries(checks)) {
      this.failed ||= wrong !== undefined;
      console.log(`  ${face.name.padEnd(9)} ${check.padEnd(11)} ${wrong === undefined ? "ok" : `FAILS: ${wrong}`}`);
    }
    for (const [what, value] of Object.entries(measures)) console.log(`  ${face.name.padEnd(9)} ${what}: ${value}`);
  }

  print() {
    const rows = Object.values(this.#clients).flatMap(({ title, version, faces }) =>
      Object.entries(faces).map(([face, checks]) => ({ client: `${title} ${version}`, face, ...checks })));
    const columns = [...new Set(rows.flatMap(Object.keys))];
    const cell = (row, column) => row[column] ?? "";
    const short = (text) => (text.length > 40 ? "fails" : text);
    const widths = columns.map((column) => Math.max(...[column, ...rows.map((row) => short(cell(row, column)))].map((text) => text.length)));
    const line = (cells) => cells.map((text, index) => text.padEnd(widths[index])).join("  ").trimEnd();
    console.log(`\n${line(columns)}`);
    for (const row of rows) console.log(line(columns.map((column) => short(cell(row, column)))));
  }

  /** Clients that were not driven this time keep what they had. */
  save(file) {
    const before = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")).clients : {};
    const results = { date: new Date().toISOString().slice(0, 10), clients: { ...before, ...this.#clients } };
    writeFileSync(file, `${JSON.stringify(results, null, 2)}\n`);
  }
}
