//! `docs/compatibility.md` shows the table of clients that the program has, and what came of driving real ones
//! (`tests/agents/results.json`). `UPDATE_EXPECTED=1` writes it anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use mcp_workbench::inside::page_of_clients;
use serde::Deserialize;

/// What `tests/agents/run.mjs --update` wrote, by the names that it gives to clients.
type Results = BTreeMap<String, Driven>;

/// A client that was driven.
#[derive(Deserialize)]
struct Driven {
    title: String,
    version: String,
    date: String,
    /// Where its model finds opened tools: in the `list`, or in the `answer`.
    opened: String,
    /// By face and check: `ok`, or what was wrong.
    faces: BTreeMap<String, BTreeMap<String, String>>,
    measures: BTreeMap<String, u64>,
}

/// The checks of `tests/agents/README.md`, in its order.
const CHECKS: [&str; 9] =
    ["connect", "open", "call", "error", "80 tools", "long answer", "long result", "kill -9", "end"];

const FACES: [&str; 2] = ["workbench", "toolman"];

#[test]
fn the_page_of_clients_is_that_of_the_table_and_the_results() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let results = std::fs::read_to_string(root.join("tests/agents/results.json")).expect("it is committed");
    let results: Results = serde_json::from_str(&results).expect("run.mjs wrote it");
    let page = page_of_clients() + &driven(&results);
    let place = root.join("docs/compatibility.md");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&place, &page).expect("the page is ours");
    }
    let expected = std::fs::read_to_string(&place).unwrap_or_default();
    assert_eq!(expected, page, "docs/compatibility.md is out of date; UPDATE_EXPECTED=1 writes it anew");
}

/// The part of the page that tells what came of driving real clients.
fn driven(results: &Results) -> String {
    let checks = CHECKS.join(" | ");
    let mut page = format!(
        "\n## Driven clients\n\n\
         [tests/agents](../tests/agents/README.md) drives these clients through both faces of the gateway, the agents with\n\
         a scripted model; it says what each check means. The last column is what an agent hands to its model of an answer\n\
         of 300,000 characters.\n\n\
         | client | driven on | opened tools are in | {checks} | of 300,000 |\n|---|---|---|{}---|\n",
        "---|".repeat(CHECKS.len()),
    );
    for client in results.values() {
        let cells = CHECKS.map(|check| cell(client, check)).join(" | ");
        let place = if client.opened == "list" { "the next list" } else { "the answer" };
        let taken = client.measures.get("of 300,000 characters");
        let taken = taken.map_or(NOT_TRIED.to_owned(), |&taken| thousands(taken));
        let Driven { title, version, date, .. } = client;
        let _ = writeln!(page, "| {title} {version} | {date} | {place} | {cells} | {taken} |");
    }
    let failures: Vec<_> = results.values().flat_map(failures).collect();
    if !failures.is_empty() {
        let _ = write!(page, "\nWhat fails:\n\n{}", failures.concat());
    }
    page
}

const NOT_TRIED: &str = "–";

/// Whether a check holds on both faces, on one, or on none.
fn cell(client: &Driven, check: &str) -> String {
    let outcomes = FACES.map(|face| (face, client.faces.get(face).and_then(|checks| checks.get(check))));
    let good: Vec<_> =
        outcomes.iter().filter(|(_, outcome)| outcome.is_some_and(|outcome| outcome == "ok")).collect();
    match (good.as_slice(), outcomes) {
        (_, [(_, None), (_, None)]) => NOT_TRIED.to_owned(),
        ([_, _], _) => "yes".to_owned(),
        ([(face, _)], _) => format!("{face} only"),
        _ => "no".to_owned(),
    }
}

fn failures(client: &Driven) -> Vec<String> {
    let failed = |face: &str| -> Vec<String> {
        let checks = CHECKS.iter().filter_map(|check| Some((check, client.faces.get(face)?.get(*check)?)));
        let failed = checks.filter(|(_, outcome)| *outcome != "ok");
        failed
            .map(|(check, outcome)| {
                format!("- {} {}, {face}, {check}: {outcome}\n", client.title, client.version)
            })
            .collect()
    };
    FACES.iter().flat_map(|face| failed(face)).collect()
}

fn thousands(number: u64) -> String {
    match (number / 1000, number % 1000) {
        (0, number) => number.to_string(),
        (thousands, rest) => format!("{thousands},{rest:03}"),
    }
}
