//! Metrics for Prometheus, and metrics and traces for a collector of OpenTelemetry.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Client, Era, Exchanged, Host, Web};
use crate::harness::{DEADLINE, Gateway, Lab, VERSION, dev, fake, gateway_path, server};

/// A gateway over HTTP with `--metrics`, or without.
fn host(config: Value, metrics: bool) -> Host {
    let lab = Lab::new();
    lab.write("workbench-config.json", &lab.fill(&config.to_string()));
    Host::new(Gateway::run_in(lab, &gateway_path(), |command| {
        command.args(["serve", "--http", "127.0.0.1:0"]);
        if metrics {
            command.arg("--metrics");
        }
    }))
}

fn scrape(host: &Host, headers: &str) -> Exchanged {
    let mut web = Web::new(&host.address);
    web.path = "/metrics".to_owned();
    web.exchange("GET", headers, "")
}

/// Asks until a line of the metrics is there.
#[track_caller]
fn metric(host: &Host, line: &str) -> String {
    let end = Instant::now() + DEADLINE;
    loop {
        let page = scrape(host, "Accept: text/plain\r\n").body;
        if page.lines().any(|other| other == line) {
            return page;
        }
        assert!(Instant::now() < end, "no {line} in\n{page}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn prometheus_reads_what_was_answered() {
    let flags = "--with echo,error,result,crash --prompts 1 --resources 1";
    let mut config = dev("dynamic", json!({"a": fake(flags), "b": fake("--exit 7")}));
    config["toolboxes"]["more"] = json!({"description": "Closed", "mcpServers": {"c": fake("--with echo")}});
    let host = host(config, true);
    let mut client = host.client(Era::Legacy);
    client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    client.call("dev__a__echo", "{}").text();
    client.call("dev__a__error", json!({"json": r#"{"code":-32602,"message":"no"}"#}));
    client.call("dev__a__ghost", "{}");
    client.request("tools/dream", "{}");
    client.request("prompts/get", json!({"name": "dev__a__prompt-1"}));
    let listed = client.request("resources/list", "{}").result();
    client.request("resources/read", json!({"uri": listed["resources"][0]["uri"]})).result();
    let common = r#"network_transport="tcp",mcp_protocol_version="2025-06-18""#;
    let upstream = r#"network_transport="pipe",mcp_protocol_version="2025-11-25",mcp_workbench_toolbox="dev",mcp_workbench_server="a""#;
    let server = "mcp_server_operation_duration_seconds_count";
    metric(&host, &format!(r#"{server}{{mcp_method_name="_other",error_type="-32601",{common}}} 1"#));
    let call = r#"mcp_method_name="tools/call""#;
    for line in [
        format!(r#"{server}{{{call},gen_ai_tool_name="open_toolbox",{common}}} 1"#),
        format!(r#"{server}{{{call},gen_ai_tool_name="dev__a__echo",{common}}} 1"#),
        format!(r#"{server}{{{call},gen_ai_tool_name="dev__a__error",error_type="tool_error",{common}}} 1"#),
        format!(r#"{server}{{{call},gen_ai_tool_name="_other",error_type="tool_error",{common}}} 1"#),
        format!(
            r#"mcp_client_operation_duration_seconds_count{{{call},gen_ai_tool_name="echo",{upstream}}} 1"#
        ),
        format!(
            r#"mcp_client_operation_duration_seconds_count{{{call},gen_ai_tool_name="error",error_type="-32602",{upstream}}} 1"#
        ),
        r#"mcp_workbench_server_starts_total{mcp_workbench_toolbox="dev",mcp_workbench_server="a"} 1"#
            .to_owned(),
        format!(r#"{server}{{mcp_method_name="resources/read",{common}}} 1"#),
        format!(
            r#"{server}{{mcp_method_name="prompts/get",gen_ai_prompt_name="dev__a__prompt-1",{common}}} 1"#
        ),
        r#"mcp_workbench_servers{state="running"} 1"#.to_owned(),
        r#"mcp_workbench_servers{state="idle"} 1"#.to_owned(),
        r#"mcp_workbench_servers{state="starting"} 0"#.to_owned(),
        r#"mcp_workbench_servers{state="failed"} 1"#.to_owned(),
        "mcp_workbench_sessions 1".to_owned(),
        format!(r#"mcp_workbench_build_info{{version="{}"}} 1"#, env!("CARGO_PKG_VERSION")),
    ] {
        metric(&host, &line);
    }
    client.call("dev__a__crash", "{}");
    metric(
        &host,
        r#"mcp_workbench_server_crashes_total{mcp_workbench_toolbox="dev",mcp_workbench_server="a"} 1"#,
    );
    metric(&host, r#"mcp_workbench_servers{state="failed"} 2"#);
    let plain = scrape(&host, "Accept: text/plain\r\n");
    assert_eq!(plain.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    assert!(!plain.body.contains("fake://"), "resources are never labels: {}", plain.body);
    assert!(plain.body.contains("process_resident_memory_bytes ") || !cfg!(target_os = "linux"));
    for page in ["docs/grafana/mcp-workbench.json", "docs/observability.md"] {
        let text = std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(page))
            .expect("it is there");
        let unknown: Vec<_> = names_in(&text).into_iter().filter(|name| !is_on(&plain.body, name)).collect();
        assert_eq!(unknown, [""; 0], "{page} names what nobody measures");
    }
    let open = scrape(&host, "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n");
    assert_eq!(open.headers["content-type"], "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(open.body.ends_with("# EOF\n"), "{}", open.body);
}

/// A failure has one name, wherever it is told: in the metrics and in the journal.
/// A machine with other work may need longer now and then, but not every time.
#[test]
fn what_was_answered_is_counted_within_200_ms() {
    let host = host(dev("dynamic", json!({"a": fake("--with echo")})), true);
    let mut client = host.client(Era::Legacy);
    client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    let tries = (1..=50).map(|calls| {
        client.call("dev__a__echo", "{}").text();
        let answered = Instant::now();
        let labels = r#"mcp_method_name="tools/call",gen_ai_tool_name="dev__a__echo""#;
        let count = format!("mcp_server_operation_duration_seconds_count{{{labels},");
        let is_counted = |line: &str| line.starts_with(&count) && line.ends_with(&format!(" {calls}"));
        while !scrape(&host, "Accept: text/plain\r\n").body.lines().any(is_counted) {
            assert!(answered.elapsed() < DEADLINE, "it is never counted");
        }
        answered.elapsed()
    });
    let tries: Vec<_> = tries
        .scan(false, |done, took| {
            let before = std::mem::replace(done, took < Duration::from_millis(200));
            (!before).then_some(took)
        })
        .collect();
    assert!(tries.iter().any(|took| *took < Duration::from_millis(200)), "{tries:?}");
}

#[test]
fn every_way_to_fail_has_its_name() {
    let mut hasty = fake("--with slow");
    hasty["callTimeout"] = json!(0.3);
    let frail = fake("--with echo,slow,started,crash --fail-while @dir/broken");
    let mut config = dev("dynamic", json!({"frail": frail, "hasty": hasty}));
    config["journal"] = json!(true);
    let host = host(config, true);
    let mut client = host.client(Era::Legacy);
    client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    client.call("dev__hasty__slow", "{}").failure();
    let slow = client.post_call("dev__frail__slow", r#"{"key":"k"}"#);
    client.call("dev__frail__started", r#"{"key":"k"}"#).text();
    client.cancel(&slow);
    host.lab.write("broken", "");
    client.call("dev__frail__crash", "{}").failure();
    client.call("dev__frail__echo", "{}").failure();
    let series = |tool: &str, error: &str, carried: &str, server: &str| {
        format!(
            r#"mcp_client_operation_duration_seconds_count{{mcp_method_name="tools/call",gen_ai_tool_name="{tool}",error_type="{error}",{carried}mcp_workbench_toolbox="dev",mcp_workbench_server="{server}"}} 1"#
        )
    };
    let pipe = r#"network_transport="pipe",mcp_protocol_version="2025-11-25","#;
    // A server that does not start has no connection to tell of.
    for (tool, error, carried, server) in [
        ("echo", "unavailable", "", "frail"),
        ("slow", "timeout", pipe, "hasty"),
        ("slow", "cancelled", pipe, "frail"),
        ("crash", "connection_lost", pipe, "frail"),
    ] {
        metric(&host, &series(tool, error, carried, server));
    }
    let mut told = Vec::new();
    let end = Instant::now() + DEADLINE;
    while told.len() < 5 {
        assert!(Instant::now() < end, "{told:?}");
        let journal = host.lab.run(host.lab.command().args(["log", "--json", "--kind", "call"])).stdout;
        let words = |line: Value| {
            ["tool", "outcome", "error"].map(|key| line[key].as_str().unwrap_or("-").to_owned()).join(" ")
        };
        told = journal.lines().map(|line| words(serde_json::from_str(line).expect("JSON"))).collect();
    }
    told.sort();
    assert_eq!(
        told,
        [
            "crash lost connection_lost",
            "echo error unavailable",
            "slow cancelled cancelled",
            "slow error timeout",
            "started ok -"
        ]
    );
}

/// The names of metrics and labels in a text.
fn names_in(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
    let ours = [
        "mcp_server_",
        "mcp_client_",
        "mcp_workbench_",
        "mcp_method",
        "mcp_protocol",
        "gen_ai_",
        "process_",
        "error_t",
    ];
    words.filter(|word| ours.iter().any(|start| word.starts_with(start))).collect()
}

/// Whether a page of metrics has a metric or a label of this name.
fn is_on(page: &str, name: &str) -> bool {
    let histogram = page.contains(&format!("\n# TYPE {name} histogram\n"));
    let starts = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
    let is_label = page.contains(&format!("{{{name}=\"")) || page.contains(&format!(",{name}=\""));
    histogram || is_label || page.lines().any(starts)
}

#[test]
fn metrics_are_for_those_who_may_see_everything() {
    let mut config = dev("proxy", json!({"a": fake("--with echo")}));
    assert_eq!(scrape(&host(config.clone(), false), "").status, 404);
    assert_eq!(scrape(&host(config.clone(), true), "").status, 200);
    config["auth"] = json!({"tokens": [
        {"name": "ci", "token": "token-of-ci", "toolboxes": ["dev"]}, {"name": "all", "token": "token-of-all"},
    ]});
    let host = host(config, true);
    for (headers, status) in [
        ("", 401),
        ("Authorization: Bearer wrong\r\n", 401),
        ("Authorization: Bearer token-of-ci\r\n", 403),
        ("Authorization: Bearer token-of-all\r\n", 200),
    ] {
        assert_eq!(scrape(&host, headers).status, status, "{headers}");
    }
}

/// How a collector answers.
#[derive(Clone, Copy)]
enum Manners {
    Good,
    Status(&'static str),
    Nonsense,
    /// It reads and says nothing.
    Silent,
}

/// A collector on this machine.
struct Collector {
    url: String,
    /// Path, headers and document of each request.
    requests: Receiver<(String, String, Value)>,
}

impl Collector {
    fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("it listens"));
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    let mut stream = stream;
                    while let Some(request) = read_request(&mut stream) {
                        let answer = match manners {
                            Manners::Good => "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}".to_owned(),
                            Manners::Status(status) => format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"),
                            Manners::Nonsense => "what do you want?\r\n\r\n".to_owned(),
                            Manners::Silent => String::new(),
                        };
                        let _ = sender.send(request);
                        if stream.write_all(answer.as_bytes()).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Self { url, requests }
    }

    /// All spans of a gateway that has ended.
    fn spans(&self) -> Vec<Value> {
        let documents = self.requests.try_iter().filter(|(path, ..)| path == "/v1/traces");
        documents.flat_map(|(_, _, document)| spans_in(&document)).collect()
    }
}

fn read_request(stream: &mut TcpStream) -> Option<(String, String, Value)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 65_536];
    loop {
        if let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse::<usize>().ok()?;
            if bytes.len() >= end + 4 + length {
                let document = serde_json::from_slice(&bytes[end + 4..end + 4 + length]).expect("JSON");
                let path = head.split(' ').nth(1)?.to_owned();
                return Some((path, head, document));
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

fn spans_in(document: &Value) -> Vec<Value> {
    let spans = &document["resourceSpans"][0]["scopeSpans"][0]["spans"];
    spans.as_array().unwrap_or_else(|| panic!("no spans: {document}")).clone()
}

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a str> {
    let attributes = span["attributes"].as_array().expect("a list");
    attributes.iter().find(|one| one["key"] == key).and_then(|one| one["value"]["stringValue"].as_str())
}

fn traced(lab: Lab, config: &Value, collector: &Collector, more: &[(&str, &str)]) -> Gateway {
    Gateway::spawn_with(lab, config, |command| {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url).envs(more.iter().copied());
    })
}

fn find<'a>(spans: &'a [Value], name: &str, kind: u64) -> &'a Value {
    let found = spans.iter().find(|span| span["name"] == name && span["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {name} of kind {kind}: {spans:#?}"))
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[test]
fn spans_follow_a_request_through_both_eras() {
    for client_era in [Era::Legacy, Era::Modern] {
        for server_flags in ["--with echo,error", "--era modern --with echo,error"] {
            let collector = Collector::start(Manners::Good);
            let config = dev("dynamic", json!({"a": fake(server_flags)}));
            let gateway =
                traced(Lab::new(), &config, &collector, &[("OTEL_EXPORTER_OTLP_HEADERS", "x-team=tools")]);
            let mut client = Client::pipe(client_era, gateway, "{}");
            client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
            let meta = format!(
                r#""traceparent":"00-{TRACE}-00f067aa0ba902b7-01","tracestate":"v=1","baggage":"k=2""#
            );
            let id =
                client.post_with("tools/call", r#"{"name":"dev__a__echo","arguments":{"hush":1}}"#, &meta);
            let echoed: Value = serde_json::from_str(&client.answer(&id).text()).expect("its parameters");
            client.call("dev__a__error", json!({"json": r#"{"code":-32602,"message":"no"}"#}));
            drop(client);
            let (path, head, first) = collector.requests.recv_timeout(DEADLINE).expect("a document");
            assert!(["/v1/traces", "/v1/metrics"].contains(&path.as_str()), "{path}");
            assert!(
                head.contains("content-type: application/json") && head.contains("x-team: tools"),
                "{head}"
            );
            let mut spans = if path == "/v1/traces" { spans_in(&first) } else { Vec::new() };
            spans.extend(collector.spans());
            let server = find(&spans, "tools/call dev__a__echo", 2);
            assert_eq!(
                (&server["traceId"], &server["parentSpanId"]),
                (&json!(TRACE), &json!("00f067aa0ba902b7"))
            );
            let errand = find(&spans, "tools/call echo", 3);
            assert_eq!((&errand["traceId"], &errand["parentSpanId"]), (&json!(TRACE), &server["spanId"]));
            assert_eq!((&server["traceState"], &errand["traceState"]), (&json!("v=1"), &json!("v=1")));
            let told = &echoed["_meta"];
            let span = errand["spanId"].as_str().expect("an id");
            assert_eq!(told["traceparent"], format!("00-{TRACE}-{span}-01"));
            assert_eq!((&told["tracestate"], &told["baggage"]), (&json!("v=1"), &json!("k=2")));
            for (span, expected) in [
                (server, [("gen_ai.tool.name", Some("dev__a__echo")), ("mcp_workbench.server", None)]),
                (errand, [("gen_ai.tool.name", Some("echo")), ("mcp_workbench.server", Some("a"))]),
            ] {
                for (key, value) in expected.into_iter().chain([
                    ("mcp.method.name", Some("tools/call")),
                    ("gen_ai.operation.name", Some("execute_tool")),
                    ("network.transport", Some("pipe")),
                    ("error.type", None),
                ]) {
                    assert_eq!(attribute(span, key), value, "{key}: {span}");
                }
                assert!(
                    attribute(span, "jsonrpc.request.id").is_some()
                        && attribute(span, "mcp.session.id").is_some()
                );
                assert!(attribute(span, "mcp.protocol.version").is_some_and(|version| version.len() == 10));
                assert!(!span.to_string().contains("hush"), "{span}");
            }
            let failed = find(&spans, "tools/call error", 3);
            assert_eq!(
                (attribute(failed, "error.type"), attribute(failed, "rpc.response.status_code")),
                (Some("-32602"), Some("-32602"))
            );
            assert_eq!(failed["status"]["code"], 2);
            let answered = find(&spans, "tools/call dev__a__error", 2);
            assert_eq!(attribute(answered, "error.type"), Some("tool_error"));
            assert_ne!(answered["traceId"], TRACE);
        }
    }
}

#[test]
fn spans_over_http_name_what_is_read_and_got() {
    let collector = Collector::start(Manners::Good);
    let lab = Lab::new();
    let config = dev("dynamic", json!({"a": fake("--resources 1 --prompts 1")}));
    lab.write("workbench-config.json", &lab.fill(&config.to_string()));
    let host = Host::new(Gateway::run_in(lab, &gateway_path(), |command| {
        command
            .args(["serve", "--http", "127.0.0.1:0"])
            .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("{}/v1/traces", collector.url))
            .env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
            .env("OTEL_BSP_SCHEDULE_DELAY", "10");
    }));
    let mut client = host.client(Era::Legacy);
    client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    let listed = client.request("resources/list", "{}").result();
    let uri = listed["resources"][0]["uri"].as_str().expect("a URI").to_owned();
    client.request("resources/read", json!({"uri": uri})).result();
    client.request("prompts/get", json!({"name": "dev__a__prompt-1"})).result();
    let mut spans = Vec::new();
    let is_there = |spans: &[Value], name: &str| spans.iter().any(|span| span["name"] == name);
    while !is_there(&spans, "prompts/get prompt-1") {
        let (.., document) = collector.requests.recv_timeout(DEADLINE).expect("a document");
        let resource = document["resourceSpans"][0]["resource"].to_string();
        assert!(
            resource.contains("deployment.environment") && resource.contains("mcp-workbench"),
            "{resource}"
        );
        spans.extend(spans_in(&document));
    }
    for (name, kind, transport, key, value) in [
        ("resources/read", 2, "tcp", "mcp.resource.uri", &*uri),
        ("resources/read", 3, "pipe", "mcp.resource.uri", "fake://resource/1"),
        ("prompts/get dev__a__prompt-1", 2, "tcp", "gen_ai.prompt.name", "dev__a__prompt-1"),
        ("prompts/get prompt-1", 3, "pipe", "gen_ai.prompt.name", "prompt-1"),
    ] {
        let span = find(&spans, name, kind);
        assert_eq!(attribute(span, key), Some(value), "{span}");
        assert_eq!(attribute(span, "network.transport"), Some(transport), "{span}");
        assert_eq!(attribute(span, "gen_ai.operation.name"), None, "{span}");
        let nanos =
            |key: &str| span[key].as_str().and_then(|nanos| nanos.parse::<u64>().ok()).expect("a number");
        assert!(nanos("startTimeUnixNano") < nanos("endTimeUnixNano"), "{span}");
    }
}

#[test]
fn requests_that_start_a_server_belong_to_the_request_that_needs_it() {
    for (server_flags, handshake) in [
        ("--with echo,requests,change", "initialize"),
        ("--era modern --with echo,requests,change", "server/discover"),
    ] {
        let collector = Collector::start(Manners::Good);
        let config = dev("dynamic", json!({"a": fake(server_flags)}));
        let gateway = traced(Lab::new(), &config, &collector, &[("OTEL_METRICS_EXPORTER", "none")]);
        let mut client = Client::pipe(Era::Legacy, gateway, "{}");
        let meta = format!(r#""traceparent":"00-{TRACE}-00f067aa0ba902b7-01""#);
        let opening = r#"{"name":"open_toolbox","arguments":{"toolbox_name":"dev"}}"#;
        let id = client.post_with("tools/call", opening, &meta);
        client.answer(&id).text();
        let heard = client.call("dev__a__requests", "{}").text();
        // What the server has changed is nobody's request.
        let later = json!({"name": "later", "inputSchema": {"type": "object"}}).to_string();
        client.call("dev__a__change", json!({"add": [later]})).text();
        client.until("the new tool is there", |client| {
            client.tools().iter().any(|tool| tool == "dev__a__later")
        });
        drop(client);
        let (.., first) = collector.requests.recv_timeout(DEADLINE).expect("a document");
        let mut spans = spans_in(&first);
        spans.extend(collector.spans());
        let opened = find(&spans, "tools/call open_toolbox", 2);
        for method in [handshake, "tools/list"] {
            let start = find(&spans, method, 3);
            assert_eq!(
                (&start["traceId"], &start["parentSpanId"]),
                (&json!(TRACE), &opened["spanId"]),
                "{method}"
            );
            for (key, value) in [
                ("mcp.method.name", Some(method)),
                ("mcp_workbench.toolbox", Some("dev")),
                ("mcp_workbench.server", Some("a")),
                ("mcp.session.id", attribute(opened, "mcp.session.id")),
                ("network.transport", Some("pipe")),
            ] {
                assert_eq!(attribute(start, key), value, "{key}: {start}");
            }
            assert!(attribute(start, "jsonrpc.request.id").is_some(), "{start}");
            let span = start["spanId"].as_str().expect("an id");
            assert!(heard.contains(&format!("00-{TRACE}-{span}-01")), "{method} {span}: {heard}");
        }
        let lists = spans.iter().filter(|span| span["name"] == "tools/list" && span["kind"] == 3);
        assert_eq!(lists.count(), 1, "{spans:#?}");
    }
}

#[test]
fn contexts_that_are_not_valid_or_not_sampled() {
    let collector = Collector::start(Manners::Good);
    let config = dev("dynamic", json!({"a": fake("--with echo")}));
    let gateway = traced(Lab::new(), &config, &collector, &[("OTEL_METRICS_EXPORTER", "none")]);
    let mut client = Client::pipe(Era::Legacy, gateway, "{}");
    client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    let mut told = |meta: &str| -> String {
        let id = client.post_with("tools/call", r#"{"name":"dev__a__echo"}"#, meta);
        let echoed: Value = serde_json::from_str(&client.answer(&id).text()).expect("its parameters");
        echoed["_meta"]["traceparent"].as_str().expect("a context").to_owned()
    };
    let unsampled = told(&format!(r#""traceparent":"00-{TRACE}-00f067aa0ba902b7-00""#));
    assert!(unsampled.starts_with(&format!("00-{TRACE}-")) && unsampled.ends_with("-00"), "{unsampled}");
    let fresh = told(r#""traceparent":"nonsense""#);
    assert!(!fresh.contains(TRACE) && fresh.ends_with("-01") && fresh.len() == 55, "{fresh}");
    drop(client);
    let (.., first) = collector.requests.recv_timeout(DEADLINE).expect("a document");
    let mut spans = spans_in(&first);
    spans.extend(collector.spans());
    assert!(!spans.iter().any(|span| span["traceId"] == TRACE), "{spans:#?}");
    assert!(spans.iter().any(|span| fresh.contains(span["traceId"].as_str().expect("an id"))), "{spans:#?}");
}

/// Whoever wants progress gets it, and the upstream gets both our token and our context.
#[test]
fn a_context_travels_beside_what_a_client_says_in_meta() {
    let collector = Collector::start(Manners::Good);
    let config = dev("dynamic", json!({"a": fake("--with echo")}));
    let gateway = traced(Lab::new(), &config, &collector, &[("OTEL_TRACES_SAMPLER", "always_off")]);
    let mut client = Client::pipe(Era::Legacy, gateway, "{}");
    client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    for meta in ["", r#""own":[1]"#, r#""progressToken":"mine","own":[1]"#] {
        let id = client.post_with("tools/call", r#"{"name":"dev__a__echo"}"#, meta);
        let echoed: Value = serde_json::from_str(&client.answer(&id).text()).expect("its parameters");
        let told = &echoed["_meta"];
        // The sampler says no, whoever asks.
        assert!(told["traceparent"].as_str().is_some_and(|told| told.ends_with("-00")), "{meta}: {echoed}");
        assert_eq!(told["own"], if meta.is_empty() { Value::Null } else { json!([1]) }, "{meta}: {echoed}");
        assert_eq!(told["progressToken"].is_number(), meta.contains("progress"), "{meta}: {echoed}");
        assert_eq!(echoed["name"], "echo");
    }
    drop(client);
    assert_eq!(collector.spans(), Vec::<Value>::new());
}

#[test]
fn without_tracing_nothing_of_a_request_is_touched() {
    for vars in [&[][..], &[("OTEL_SDK_DISABLED", "true")], &[("OTEL_TRACES_EXPORTER", "none")]] {
        let collector = Collector::start(Manners::Good);
        let config = dev("dynamic", json!({"a": fake("--with echo")}));
        let gateway = match vars {
            [] => Gateway::spawn(&config),
            vars => traced(Lab::new(), &config, &collector, vars),
        };
        let mut client = Client::pipe(Era::Legacy, gateway, "{}");
        client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
        let params = r#"{"name":"dev__a__echo","arguments":{},"_meta":{"traceparent":"as it came"}}"#;
        let id = client.gateway().post("tools/call", params);
        assert_eq!(client.answer(&id).text(), params.replace("dev__a__echo", "echo"), "{vars:?}");
    }
}

#[test]
fn a_collector_gets_histograms() {
    let collector = Collector::start(Manners::Good);
    let config = format!("active_toolsets = [\"*\"]\n{}", server("files", "--with echo", ""));
    let mut gateway = Gateway::spawn_toolman(Lab::new(), config, |command| {
        command
            .env("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", format!("{}/m", collector.url))
            .env("OTEL_METRIC_EXPORT_INTERVAL", "50")
            .env("OTEL_SERVICE_NAME", "my tools")
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    });
    gateway.initialize(VERSION);
    gateway.call("files_echo", "{}").text();
    gateway.stderr_with("but what is exported is sent as `http/json`");
    let end = Instant::now() + DEADLINE;
    let metrics = loop {
        let (path, _, document) = collector.requests.recv_timeout(DEADLINE).expect("a document");
        assert_eq!(path, "/m");
        assert!(document.to_string().contains("my tools"), "{document}");
        let metrics = document["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].clone();
        if metrics.to_string().contains("files_echo") {
            break metrics;
        }
        assert!(Instant::now() < end, "{metrics}");
    };
    let of = |name: &str| {
        let metric = metrics.as_array().expect("a list").iter().find(|metric| metric["name"] == name);
        metric.unwrap_or_else(|| panic!("no {name}: {metrics}")).clone()
    };
    let [server, client] = ["mcp.server.operation.duration", "mcp.client.operation.duration"].map(of);
    assert_eq!((&server["unit"], &server["histogram"]["aggregationTemporality"]), (&json!("s"), &json!(2)));
    let points = client["histogram"]["dataPoints"].as_array().expect("a list");
    let echo = points
        .iter()
        .find(|point| attribute(point, "gen_ai.tool.name") == Some("echo"))
        .expect("it was called");
    assert_eq!(
        (attribute(echo, "mcp_workbench.server"), attribute(echo, "mcp_workbench.toolbox")),
        (Some("files"), None)
    );
    assert_eq!((&echo["count"], echo["explicitBounds"].as_array().map(Vec::len)), (&json!("1"), Some(14)));
    assert_eq!(echo["bucketCounts"].as_array().map(Vec::len), Some(15));
}

#[test]
fn a_bad_collector_is_reported_once_and_costs_no_call() {
    for manners in [Some(Manners::Silent), Some(Manners::Nonsense), Some(Manners::Status("500 Oh")), None] {
        let collector = Collector::start(manners.unwrap_or(Manners::Good));
        let dead = "http://127.0.0.1:9".to_owned();
        let url = manners.map_or(dead, |_| collector.url.clone());
        let config = dev("dynamic", json!({"a": fake("--with echo")}));
        let mut gateway = Gateway::spawn_with(Lab::new(), &config, |command| {
            command
                .env("OTEL_EXPORTER_OTLP_ENDPOINT", url)
                .env("OTEL_BSP_SCHEDULE_DELAY", "10")
                .env("OTEL_METRIC_EXPORT_INTERVAL", "10")
                .env("OTEL_EXPORTER_OTLP_TIMEOUT", "100");
        });
        gateway.initialize(VERSION);
        gateway.open("dev");
        gateway.stderr_with("the collector of OpenTelemetry");
        for _ in 0..20 {
            gateway.call("dev__a__echo", "{}").text();
        }
        let begun = Instant::now();
        gateway.close();
        assert!(gateway.wait().success());
        assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
        let reports = gateway.stderr().matches("the collector of OpenTelemetry").count();
        assert_eq!(reports, 1, "{}", gateway.stderr());
    }
}

/// The upstream is told of no span that nobody will see, and of the client's as if there were no tracing.
#[test]
fn while_there_is_no_room_for_spans_requests_are_not_traced() {
    for more in [&[("OTEL_METRICS_EXPORTER", "none")][..], &[]] {
        let collector = Collector::start(Manners::Silent);
        let config = dev("dynamic", json!({"a": fake("--with echo")}));
        let patient = [("OTEL_EXPORTER_OTLP_TIMEOUT", "60000"), ("OTEL_BSP_SCHEDULE_DELAY", "60000")];
        let mut gateway = traced(Lab::new(), &config, &collector, &[&patient, more].concat());
        gateway.initialize(VERSION);
        gateway.open("dev");
        let own = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let mut told = |meta: Value| -> Value {
            let id = gateway.post("tools/call", json!({"name": "dev__a__echo", "_meta": meta}));
            let echoed: Value = serde_json::from_str(&gateway.answer(&id).text()).expect("its parameters");
            echoed["_meta"]["traceparent"].clone()
        };
        assert!(told(json!({})).as_str().is_some_and(|told| told.len() == 55));
        // Each call has two spans, and at most 2,048 wait.
        let mut calls = 1;
        while told(json!({})) != Value::Null {
            calls += 1;
            assert!(calls <= 1024, "there is always room");
        }
        assert!(calls > 1000, "there was room for {calls} calls only");
        assert_eq!(told(json!({"traceparent": own})), own);
        gateway.close();
        assert!(gateway.wait().success());
        let stderr = gateway.stderr();
        let dropped =
            stderr.split_once(" spans were dropped").and_then(|(before, _)| before.split(' ').next_back());
        assert!(dropped.and_then(|count| count.parse().ok()) > Some(2 * calls), "{stderr}");
    }
}

/// The collector never answers, and may take a minute for that; the end waits for a second. If it waited for longer, it
/// would be cut off, and nobody would count the spans.
#[test]
fn an_orderly_end_flushes_and_does_not_wait_for_a_collector_that_hangs() {
    let collector = Collector::start(Manners::Silent);
    let config = dev("dynamic", json!({"a": fake("--with echo")}));
    let patient = [("OTEL_EXPORTER_OTLP_TIMEOUT", "60000"), ("OTEL_BSP_SCHEDULE_DELAY", "60000")];
    let mut gateway = traced(Lab::new(), &config, &collector, &patient);
    gateway.initialize(VERSION);
    gateway.open("dev");
    for _ in 0..10 {
        gateway.call("dev__a__echo", "{}").text();
    }
    gateway.close();
    assert!(gateway.wait().success());
    let (stderr, sent) = (gateway.stderr(), collector.spans().len());
    assert!(stderr.contains(&format!("{sent} spans were dropped")), "{sent}: {stderr}");
    assert!(sent >= 20 && !stderr.contains("could not be finished in time"), "{sent}: {stderr}");
}
