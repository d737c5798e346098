//! What `-v` and `-vv` show, and what a terminal shows of an HTTP server.

use serde_json::json;

use crate::harness::{DEADLINE, dev, fake};
use crate::pty::{ALL, Streams, Terminal};
use crate::shell::Place;

fn place() -> Place {
    let servers = json!({"well": fake("--with echo"), "ill": fake("--exit 3")});
    Place::workbench(dev("proxy", servers))
}

/// The line of a log that has all of these parts.
#[track_caller]
fn line<'a>(log: &'a str, parts: &[&str]) -> &'a str {
    let found = log.lines().find(|line| parts.iter().all(|part| line.contains(part)));
    found.unwrap_or_else(|| panic!("no line with {parts:?}: {log}"))
}

#[test]
fn the_life_of_servers_is_shown_on_demand() {
    let place = place();
    let quiet = place.run(&["call", "well/echo", "text=hi"]);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
    let told = place.run(&["call", "well/echo", "text=hi", "-v"]).stderr;
    let runs = line(&told, &["info: [dev/well] runs ", "fake-upstream as process "]);
    assert!(runs.rsplit(' ').next().is_some_and(|pid| pid.parse::<u32>().is_ok()), "{runs}");
    line(&told, &["info: [dev/well] is ready: legacy 20", ", 1 tool, ", " ms"]);
    line(&told, &["info: [dev/well] has ended: it was closed"]);
    assert!(!told.contains("is sent"), "{told}");
    let told = place.run(&["list", "--fresh", "-v"]).stderr;
    line(&told, &["warn: [dev/ill] the server exited with status 3"]);
    let told = place.run(&["call", "well/echo", "text=hi", "-vv"]).stderr;
    for method in ["initialize", "tools/list", "tools/call"] {
        line(&told, &["debug: [dev/well] is sent ", method]);
    }
}

/// One line for each client that comes and goes, and each server that starts or fails; none in a pipe or with `-q`.
#[test]
fn a_server_on_a_terminal_tells_who_comes_and_goes() {
    let place = place();
    let serve = |args: &[&str]| {
        let mut command = place.lab.command();
        command.args(["serve", "--http", "0"]).args(args).env("TERM", "dumb");
        command
    };
    let visit = |terminal: &mut Terminal| {
        terminal.wait_for("listening on http://");
        let address = terminal.rest_of_line();
        assert!(address.starts_with("127.0.0.1:"), "{address}");
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "visitor", "version": "1"}}});
        let session = post(&address, "POST", None, &hello.to_string());
        let open = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}});
        post(&address, "POST", session.as_deref(), &open.to_string());
        let modern = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list", "params": {"_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "passer-by", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}}}});
        post(&address, "MODERN", None, &modern.to_string());
        post(&address, "DELETE", session.as_deref(), "");
    };
    let mut terminal = Terminal::start(serve(&[]), ALL);
    visit(&mut terminal);
    terminal.press("\u{3}");
    let ended = terminal.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for (parts, count) in [
        (&["client visitor has come"][..], 1),
        (&["client visitor has gone"], 1),
        (&["client passer-by has come"], 1),
        (&["[dev/well] is ready: "], 1),
        (&["[dev/ill] the server exited with status 3"], 1),
        (&["as process"], 0),
    ] {
        let lines = ended.shown.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count();
        assert_eq!(lines, count, "{parts:?}: {}", ended.shown);
    }
    for (args, streams) in [(&["-q"][..], ALL), (&[], Streams { stderr: false, ..ALL })] {
        let mut terminal = Terminal::start(serve(args), streams);
        visit(&mut terminal);
        terminal.press("\u{3}");
        let ended = terminal.end();
        let told = format!("{}{}", ended.shown, ended.stderr);
        assert!(!told.contains("has come") && !told.contains("is ready"), "{args:?}: {told}");
    }
    place.lab.wait_until_gone(DEADLINE);
}

/// Sends one request over HTTP and reads the whole answer; returns its session.
fn post(address: &str, method: &str, session: Option<&str>, body: &str) -> Option<String> {
    use std::io::{Read, Write};
    let host = address.trim_end_matches("/mcp");
    let mut stream = std::net::TcpStream::connect(host).expect("it listens");
    let modern = match method {
        "MODERN" => "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n",
        _ => "",
    };
    let session = session.map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default();
    let method = if method == "MODERN" { "POST" } else { method };
    let head = format!(
        "{method} /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Accept: application/json, text/event-stream\r\n{modern}{session}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
    let header = answer.lines().find(|line| line.to_ascii_lowercase().starts_with("mcp-session-id:"));
    header.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()))
}
