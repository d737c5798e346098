//! `stats`: calls, errors, times and bytes, by server and by tool, as the journal tells them.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::failure::{Failure, OutputMode};
use super::log::{Since, UserJournal, milliseconds, tell_skipped};
use super::screen::Screen;
use crate::events::{Tally, TallyRow};
use crate::text::spelled_out;

/// The longest bar, in columns.
const LONGEST_BAR: u64 = 20;

/// Counts what happened.
pub(super) fn run(
    since: &Since,
    journal: UserJournal<'_>,
    (output, screen): (OutputMode, Screen),
) -> Result<u8, Failure> {
    let (reader, lines) = journal.read(output)?;
    let mut tally = Tally::default();
    for happening in
        lines.iter().filter(|line| since.includes(line.time)).filter_map(|line| line.happening.as_ref())
    {
        tally.add(happening);
    }
    let mut out = io::stdout();
    match output.json {
        true => writeln!(out, "{}", as_json(&tally))?,
        false if reader.found_any() => write!(out, "{}", as_text(&tally, screen))?,
        false => {}
    }
    tell_skipped(&reader, output)?;
    Ok(0)
}

fn as_json(tally: &Tally) -> Value {
    let row = |row: &TallyRow| {
        let mut told = match &*row.server.server {
            "" => json!({"namespace": &*row.server.group}),
            server => json!({"toolbox": &*row.server.group, "server": server}),
        };
        if let Some(tool) = &row.tool {
            told["tool"] = (**tool).into();
        }
        for (key, value) in [("calls", row.calls), ("errors", row.errors), ("bytesOut", row.bytes_out)] {
            told[key] = value.into();
        }
        for (key, value) in [("p50", row.p50), ("p95", row.p95), ("p99", row.p99)] {
            told[key] = value.into();
        }
        told
    };
    json!({
        "calls": tally.calls(),
        "errors": tally.errors(),
        "servers": tally.servers().iter().map(row).collect::<Vec<_>>(),
        "tools": tally.tools().iter().map(row).collect::<Vec<_>>(),
    })
}

fn as_text(tally: &Tally, screen: Screen) -> String {
    let plural = |count: u64, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let mut text = format!("{}, {}\n", plural(tally.calls(), "call"), plural(tally.errors(), "error"));
    for (heading, rows) in [("SERVER", tally.servers()), ("TOOL", tally.tools())] {
        let most = rows.first().map_or(1, |row| row.calls);
        let cells: Vec<_> = rows.iter().map(|row| cells(row, most, screen)).collect();
        let mut headings = vec![heading, "CALLS", "ERRORS", "P50 MS", "P95 MS", "P99 MS", "BYTES"];
        if screen.terminal {
            headings.push("");
        }
        if !cells.is_empty() {
            text.push('\n');
            text.push_str(&screen.table(&headings, &cells));
        }
    }
    text
}

fn cells(row: &TallyRow, most: u64, screen: Screen) -> Vec<String> {
    let name = match &row.tool {
        Some(tool) => format!("{}/{tool}", row.server),
        None => row.server.to_string(),
    };
    let mut cells = vec![spelled_out(&name), row.calls.to_string(), row.errors.to_string()];
    cells.extend([row.p50, row.p95, row.p99].map(milliseconds));
    cells.push(row.bytes_out.to_string());
    if screen.terminal {
        let length = (row.calls * LONGEST_BAR).div_ceil(most.max(1));
        cells.push(if screen.unicode { "█" } else { "#" }.repeat(length as usize));
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Happening;

    fn tally() -> Tally {
        let mut tally = Tally::default();
        for (place, tool, ms, outcome) in [
            (r#""toolbox":"dev","server":"fs""#, "read", 2.0, "ok"),
            (r#""toolbox":"dev","server":"fs""#, "read", 4.0, "lost"),
            (r#""namespace":"n""#, "x", 150.0, "cancelled"),
        ] {
            let face = if place.contains("namespace") { "toolman" } else { "workbench" };
            let line = format!(
                r#"{{"time":"2026-11-16T10:05:37.123Z","face":"{face}","pid":7,"kind":"call","client":"a","session":"0",{place},"tool":"{tool}","ms":{ms},"outcome":"{outcome}","bytesIn":1,"bytesOut":5}}"#
            );
            tally.add(&Happening::read(&line).and_then(|(_, it)| it).expect("a line of ours"));
        }
        tally
    }

    #[test]
    fn the_busiest_come_first() {
        assert_eq!(
            as_json(&tally()),
            json!({
                "calls": 3, "errors": 1,
                "servers": [
                    {"toolbox": "dev", "server": "fs", "calls": 2, "errors": 1, "p50": 2.0, "p95": 4.0, "p99": 4.0, "bytesOut": 10},
                    {"namespace": "n", "calls": 1, "errors": 0, "p50": 150.0, "p95": 150.0, "p99": 150.0, "bytesOut": 5},
                ],
                "tools": [
                    {"toolbox": "dev", "server": "fs", "tool": "read", "calls": 2, "errors": 1, "p50": 2.0, "p95": 4.0, "p99": 4.0, "bytesOut": 10},
                    {"namespace": "n", "tool": "x", "calls": 1, "errors": 0, "p50": 150.0, "p95": 150.0, "p99": 150.0, "bytesOut": 5},
                ],
            })
        );
    }

    #[test]
    fn a_terminal_gets_bars() {
        let screen = |terminal| Screen {
            moves: false,
            asks: false,
            terminal,
            colour: false,
            unicode: true,
            width: None,
        };
        let text = as_text(&tally(), screen(false));
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0].join(" "), "3 calls, 1 error");
        assert_eq!(lines[2].join(" "), "SERVER CALLS ERRORS P50 MS P95 MS P99 MS BYTES");
        assert_eq!(lines[3].join(" "), "dev/fs 2 1 2.0 4.0 4.0 10");
        assert_eq!(lines[4].join(" "), "n 1 0 150 150 150 5");
        assert_eq!(lines[7].join(" "), "dev/fs/read 2 1 2.0 4.0 4.0 10");
        let bars = |text: &str| text.matches('█').count() as u64;
        assert_eq!(bars(&text), 0);
        assert_eq!(bars(&as_text(&tally(), screen(true))), 2 * (LONGEST_BAR + LONGEST_BAR / 2));
    }
}
