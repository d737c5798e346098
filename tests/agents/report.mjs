// What came of the runs: lines as they happen, a table at the end, and results.json.

import { existsSync, readFileSync, writeFileSync } from "node:fs";

export class Report {
  #clients = {};
  failed = false;

  begin({ name, title, opened }, version) {
    console.log(`${title} ${version}`);
    const date = new Date().toISOString().slice(0, 10);
    this.#clients[name] = { title, version, date, opened, faces: {}, measures: {} };
  }

  add({ name }, face, { checks, measures = {} }) {
    const client = this.#clients[name];
    const known = (client.faces[face.name] ??= {});
    // A check that several scenarios make has failed where it failed once.
    for (const [check, wrong] of Object.entries(checks)) {
      if ((known[check] ?? "ok") === "ok") known[check] = wrong ?? "ok";
      this.failed ||= wrong !== undefined;
      console.log(`  ${face.name.padEnd(9)} ${check.padEnd(11)} ${wrong === undefined ? "ok" : `FAILS: ${wrong}`}`);
    }
    Object.assign(client.measures, measures);
    for (const [what, value] of Object.entries(measures)) console.log(`  ${face.name.padEnd(9)} ${what}: ${value}`);
  }

  print() {
    const rows = Object.values(this.#clients).flatMap(({ title, version, faces }) =>
      Object.entries(faces).map(([face, checks]) => ({ client: `${title} ${version}`, face, ...checks })));
    const columns = [...new Set(rows.flatMap(Object.keys))];
    const isName = (column) => column === "client" || column === "face";
    const cell = (row, column) => (isName(column) || (row[column] ?? "ok") === "ok" ? (row[column] ?? "") : "FAILS");
    const lines = [columns, ...rows.map((row) => columns.map((column) => cell(row, column)))];
    const widths = columns.map((_, index) => Math.max(...lines.map((cells) => cells[index].length)));
    console.log("");
    for (const cells of lines) console.log(cells.map((text, index) => text.padEnd(widths[index])).join("  ").trimEnd());
  }

  /** Clients that were not driven this time keep what they had. */
  save(file) {
    const before = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {};
    writeFileSync(file, `${JSON.stringify({ ...before, ...this.#clients }, null, 2)}\n`);
  }
}
