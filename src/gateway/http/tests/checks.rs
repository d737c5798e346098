//! Who is admitted, and which messages are accepted.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use super::super::{Guard, Rules};
use super::fake::whole_answer;
use super::{META, PATIENCE, Running, call, get, modern, post, serving, token};
use crate::protocol::era::Era;
use crate::protocol::era::tests::ERA_CASES;

#[tokio::test]
async fn checks_come_in_their_order() {
    let tokens = vec![token("ci", Some(&["my box"])), token("all", None)];
    let server = Running::start(serving(tokens), |_| ()).await;
    let huge = "Content-Length: 9999999\r\n";
    let auth = "Authorization: Bearer all-secret\r\n";
    let json = "Content-Type: application/json\r\n";
    for (request, host, headers, expected) in [
        // Host and origin are checked on every path, before anything else.
        ("POST /mcp", "Host: evil.com\r\n", "", 403),
        ("POST /mcp", "Host: localhost.evil.com\r\n", "", 403),
        ("GET /healthz", "Host: evil.com\r\n", "", 403),
        ("GET /nowhere", "Host: evil.com\r\n", "", 403),
        ("GET /", "Host: evil.com\r\n", "Accept: text/html\r\n", 403),
        ("GET http://evil.com/healthz", "Host: localhost\r\n", "", 403),
        ("POST /mcp", "", "", 400),
        ("GET /healthz", "", "", 400),
        ("POST /mcp", "Host: localhost\r\nHost: localhost\r\n", auth, 400),
        ("POST /mcp", "Host: localhost\r\n", "Origin: null\r\n", 403),
        ("POST /mcp", "Host: localhost\r\n", "Origin: http://localhost.evil.com\r\n", 403),
        ("POST /mcp", "Host: localhost\r\n", "Origin: http://localhost\r\nOrigin: http://localhost\r\n", 403),
        ("GET /readyz", "Host: localhost\r\n", "Origin: null\r\n", 403),
        (
            "OPTIONS /mcp",
            "Host: localhost\r\n",
            "Origin: http://evil.com\r\nAccess-Control-Request-Method: POST\r\n",
            403,
        ),
        // Tokens are checked before the server reveals what exists.
        ("POST /mcp", "Host: localhost:1\r\n", "", 401),
        ("GET /nowhere", "Host: localhost\r\n", "", 401),
        ("PUT /mcp", "Host: 127.0.0.1\r\n", huge, 401),
        ("POST /mcp", "Host: localhost\r\n", "Authorization: Bearer wrong-secret\r\n", 401),
        ("POST /mcp", "Host: localhost\r\n", "Authorization: Bearer all-secret2\r\n", 401),
        ("POST /mcp", "Host: localhost\r\n", "Authorization: Bearer\r\n", 401),
        ("POST /mcp", "Host: localhost\r\n", "Authorization: Basic all-secret\r\n", 401),
        ("POST /mcp", "Host: localhost\r\n", &format!("{auth}{auth}"), 401),
        // Paths and methods come next.
        ("GET /healthz", "Host: [::1]:9\r\n", "", 200),
        ("HEAD /readyz", "Host: localhost\r\n", "", 200),
        ("POST /healthz", "Host: localhost\r\n", "", 405),
        ("POST /nowhere", "Host: localhost\r\n", &format!("{auth}{huge}"), 404),
        ("GET /", "Host: localhost\r\n", "Accept: text/html,application/xml;q=0.9,*/*;q=0.8\r\n", 200),
        ("HEAD /", "Host: localhost\r\n", "Accept: Text/HTML\r\n", 200),
        ("GET /", "Host: localhost\r\n", "Accept: */*\r\n", 404),
        ("GET /", "Host: localhost\r\n", "Accept: text/html;q=0, text/*\r\n", 404),
        ("GET /", "Host: localhost\r\n", "", 404),
        ("GET /?x", "Host: localhost\r\n", "Accept: text/html\r\n", 200),
        ("POST /", "Host: localhost\r\n", "Accept: text/html\r\n", 401),
        ("POST /", "Host: localhost\r\n", &format!("{auth}Accept: text/html\r\n"), 404),
        ("POST /mcp/", "Host: localhost\r\n", auth, 415),
        ("POST /mcp//", "Host: localhost\r\n", auth, 404),
        ("POST /mcpx", "Host: localhost\r\n", auth, 404),
        ("POST /mcp/unknown", "Host: localhost\r\n", auth, 404),
        ("POST /mcp/my%20box/x", "Host: localhost\r\n", auth, 404),
        ("POST /mcp/my%2", "Host: localhost\r\n", auth, 404),
        ("POST /mcp/dev", "Host: localhost\r\n", "Authorization: bearer ci-secret\r\n", 404),
        ("POST /mcp/my%20box", "Host: localhost\r\n", "Authorization: bearer ci-secret\r\n", 415),
        ("POST /mcp/my%20box/", "Host: localhost\r\n", "Authorization: bearer ci-secret\r\n", 415),
        ("POST /mcp/my%20box//", "Host: localhost\r\n", "Authorization: bearer ci-secret\r\n", 404),
        ("PUT /mcp", "Host: localhost\r\n", &format!("{auth}{huge}"), 405),
        ("OPTIONS /mcp", "Host: localhost\r\n", auth, 405),
        ("GET /mcp", "Host: localhost\r\n", &format!("{auth}MCP-Protocol-Version: 2026-07-28\r\n"), 405),
        ("DELETE /mcp", "Host: localhost\r\n", &format!("{auth}MCP-Protocol-Version: 2026-07-28\r\n"), 405),
        // Media types are checked before the size.
        ("POST /mcp", "Host: localhost\r\n", &format!("{auth}{huge}Content-Type: text/plain\r\n"), 415),
        ("POST /mcp", "Host: localhost\r\n", &format!("{auth}{huge}"), 415),
        ("POST /mcp", "Host: localhost\r\n", &format!("{auth}{huge}{json}Content-Encoding: gzip\r\n"), 415),
        ("POST /mcp", "Host: localhost\r\n", &format!("{auth}{huge}{json}Accept: text/html\r\n"), 406),
        ("GET /mcp", "Host: localhost\r\n", &format!("{auth}Accept: application/json\r\n"), 406),
        // The size is checked before the content.
        ("POST /mcp", "Host: localhost\r\n", &format!("{auth}{huge}{json}"), 413),
        (
            "POST /mcp",
            "Host: localhost\r\n",
            &format!("{auth}Content-Type: Application/JSON; charset=utf-8\r\n"),
            400,
        ),
        ("GET /mcp", "Host: localhost\r\n", auth, 400),
        ("DELETE /mcp", "Host: localhost\r\n", auth, 400),
    ] {
        let reply = {
            let mut client = server.connect().await;
            client.send(&format!("{request} HTTP/1.1\r\n{host}{headers}\r\n")).await;
            client.head().await
        };
        assert_eq!(reply.status, expected, "{request} {host} {headers}");
        assert_eq!(reply.header("www-authenticate"), (expected == 401).then_some("Bearer"));
        assert_eq!(reply.header("allow").is_some(), expected == 405);
    }
}

#[tokio::test]
async fn a_browser_is_told_where_programs_go_and_nothing_else() {
    let server = Running::start(serving(vec![token("ci", Some(&["my box"]))]), |_| ()).await;
    let page = server.ask(&get("/", "Accept: text/html\r\n")).await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.body.contains("/mcp") && page.body.lines().count() < 10, "{}", page.body);
    for absent in ["<script", "my box", "dev", "ci"] {
        assert!(!page.body.contains(absent), "{absent}: {}", page.body);
    }
}

#[test]
fn only_this_machine_comes_in_without_a_token_and_only_where_there_is_none() {
    for (bound, tokens, expected) in [
        ("127.0.0.1:1", vec![], true),
        ("[::1]:1", vec![], true),
        ("127.0.0.1:1", vec![token("all", None)], false),
        // A reload may have removed the last token.
        ("192.0.2.1:1", vec![], false),
        ("0.0.0.0:1", vec![], false),
    ] {
        let rules = Rules::new(&serving(tokens), None);
        let guard = Guard::new(bound.parse().unwrap(), &[], &[]);
        assert_eq!(guard.needs_no_token(&rules.tokens()), expected, "{bound}");
    }
}

#[tokio::test]
async fn bodies_over_the_limit_are_refused_before_they_are_held() {
    let server = Running::open().await;
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    // The client sends nothing of the body, and no `100 Continue` asks for it.
    let request = format!("{head}Expect: 100-continue\r\nContent-Length: 4097\r\n\r\n");
    assert_eq!(server.ask(&request).await.status, 413);
    // This body does not declare its length.
    let mut client = server.connect().await;
    client.send(&format!("{head}Transfer-Encoding: chunked\r\n\r\n")).await;
    for _ in 0..5 {
        client.send(&format!("400\r\n{}\r\n", "x".repeat(1024))).await;
    }
    assert_eq!(client.reply().await.status, 413);
    client.send("0\r\n\r\n").await;
    assert!(client.is_closed().await);
    // A body of exactly the limit is read, and only then found not to be JSON.
    for (length, expected) in [(4096, 400), (4097, 413)] {
        let (one, two) = ("x".repeat(4000), "x".repeat(length - 4000));
        let whole = server.ask(&post("/mcp", "", &format!("{one}{two}"))).await;
        let chunks = format!("{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n", one.len(), two.len());
        let pieces = server.ask(&format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}")).await;
        assert_eq!((whole.status, pieces.status), (expected, expected), "{length} bytes");
    }
    // A client that sends the body all the same still learns why it was refused.
    let body = "x".repeat(30_000_000);
    for (path, headers, expected) in
        [("/mcp", "", 413), ("/nowhere", "", 404), ("/mcp", "Content-Encoding: gzip\r\n", 415)]
    {
        assert_eq!(server.ask(&post(path, headers, &body)).await.status, expected);
    }
    // This body fits and comes in pieces.
    let body = modern(1, "echo", "");
    let (start, body) = body.split_once("\r\n\r\n").unwrap();
    let start: String = start
        .lines()
        .filter(|line| !line.starts_with("Content-Length"))
        .map(|line| format!("{line}\r\n"))
        .collect();
    let (one, two) = body.split_at(10);
    let request = format!(
        "{start}Transfer-Encoding: chunked\r\n\r\na\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n",
        two.len()
    );
    assert_eq!(server.ask(&request).await.status, 200);
}

#[tokio::test]
async fn who_sends_a_refused_body_slowly_still_learns_why() {
    let server = Running::open().await;
    let mut client = server.connect().await;
    let (pieces, piece) = (60, "x".repeat(100_000));
    let head = post("/mcp", "", "").replace("Length: 0", &format!("Length: {}", pieces * piece.len()));
    client.send(&head).await;
    // This takes longer than the server waits for a silent client, but the client never pauses for long.
    for _ in 0..pieces {
        sleep(Duration::from_millis(100)).await;
        client.send(&piece).await;
    }
    assert_eq!(client.reply().await.status, 413);
}

#[tokio::test]
async fn allowed_origins_get_cors_headers() {
    let tokens = vec![token("all", None)];
    let server = Running::start(serving(tokens), |settings| {
        settings.allow_origin = vec!["https://app.example".to_owned()]
    })
    .await;
    let preflight = "OPTIONS /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: https://app.example\r\n\
                     Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,mcp-param-x\r\n\r\n";
    let reply = server.ask(preflight).await;
    assert_eq!(reply.status, 204);
    for (name, expected) in [
        ("access-control-allow-origin", "https://app.example"),
        ("access-control-allow-headers", "authorization,mcp-param-x"),
        ("access-control-allow-methods", "GET, POST, DELETE"),
    ] {
        assert_eq!(reply.header(name), Some(expected));
    }
    let reply = server.ask(&get("/mcp", "Origin: http://localhost:3000\r\n")).await;
    assert_eq!(
        (reply.status, reply.header("access-control-allow-origin")),
        (401, Some("http://localhost:3000"))
    );
    assert!(reply.header("access-control-expose-headers").unwrap().contains("Mcp-Session-Id"));
    let reply = server.ask(&get("/mcp", "")).await;
    assert_eq!(reply.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn modern_messages_are_checked_against_their_headers() {
    let server = Running::open().await;
    let version = "MCP-Protocol-Version: 2026-07-28\r\n";
    let caps = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    let request = |id: &str, method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}"#)
    };
    let echo = request("1", "echo", META);
    let tool = |name: &str, arguments: &str| {
        request("1", "tools/call", &format!(r#""name":"{name}","arguments":{arguments},{META}"#))
    };
    let tool_headers =
        |name: &str, more: &str| format!("{version}Mcp-Method: tools/call\r\nMcp-Name: {name}\r\n{more}");
    let other = META.replace("2026-07-28", "2031-01-01");
    let deep = |levels: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"echo","params":{{"x":{}{},{META}}}}}"#,
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    let with_method = format!("{version}Mcp-Method: echo\r\n");
    // A request that cannot be routed, because one of its keys has two values.
    let twice = |method: &str, params: &str| {
        let headers = format!("{version}Mcp-Method: {method}\r\n");
        (headers, request("1", method, &format!("{params},{META}")), 400, Some(-32600))
    };
    for (headers, body, status, code) in [
        (with_method.clone(), echo.clone(), 200, None),
        (format!("{with_method}Mcp-Session-Id: whatever\r\n"), echo.clone(), 200, None),
        // Cases of headers.
        ("Mcp-Method: echo\r\n".to_owned(), echo.clone(), 400, Some(-32020)),
        (version.to_owned(), echo.clone(), 400, Some(-32020)),
        (format!("{with_method}{version}"), echo.clone(), 400, Some(-32020)),
        (format!("{with_method}Mcp-Method: echo\r\n"), echo.clone(), 400, Some(-32020)),
        (format!("{version}Mcp-Method: Echo\r\n"), echo.clone(), 400, Some(-32020)),
        (
            "MCP-Protocol-Version: 2025-11-25\r\nMcp-Method: echo\r\n".to_owned(),
            echo.clone(),
            400,
            Some(-32020),
        ),
        (tool_headers("a", ""), tool("a", "{}"), 200, None),
        (tool_headers("=?base64?YQ==?=", ""), tool("a", "{}"), 200, None),
        (tool_headers("b", ""), tool("a", "{}"), 400, Some(-32020)),
        (tool_headers("a\r\nMcp-Name: a", ""), tool("a", "{}"), 400, Some(-32020)),
        (tool_headers("42.0", ""), tool("42", "{}"), 400, Some(-32020)),
        (format!("{version}Mcp-Method: tools/call\r\n"), tool("a", "{}"), 400, Some(-32020)),
        (
            format!("{version}Mcp-Method: resources/read\r\nMcp-Name: x://y\r\n"),
            request("1", "resources/read", &format!(r#""uri":"x://y",{META}"#)),
            200,
            None,
        ),
        (
            format!("{version}Mcp-Method: prompts/get\r\nMcp-Name: x\r\n"),
            request("1", "prompts/get", &format!(r#""name":"y",{META}"#)),
            400,
            Some(-32020),
        ),
        // Cases of versions and `_meta`.
        (
            "MCP-Protocol-Version: 2031-01-01\r\nMcp-Method: echo\r\n".to_owned(),
            request("1", "echo", &other),
            400,
            Some(-32022),
        ),
        (with_method.clone(), request("1", "echo", ""), 400, Some(-32602)),
        (with_method.clone(), call(1, "echo"), 400, Some(-32602)),
        (with_method.clone(), request("1", "echo", &format!("\"_meta\":{{{caps}}}")), 400, Some(-32602)),
        (String::new(), request("1", "echo", &format!("\"_meta\":{{{caps}}}")), 400, Some(-32602)),
        (
            with_method.clone(),
            request("1", "echo", r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#),
            400,
            Some(-32602),
        ),
        (
            with_method.clone(),
            request(
                "1",
                "echo",
                &format!(r#""_meta":{{"io.modelcontextprotocol/protocolVersion":7,{caps}}}"#),
            ),
            400,
            Some(-32602),
        ),
        // Cases of messages.
        (with_method.clone(), format!("[{echo}]"), 400, Some(-32600)),
        (with_method.clone(), request("1.5", "echo", META), 400, Some(-32600)),
        (with_method.clone(), request("null", "echo", META), 400, Some(-32600)),
        (with_method.clone(), request("1,\"id\":2", "echo", META), 400, Some(-32600)),
        (with_method.clone(), request("1", "echo", &format!("{META},{META}")), 400, Some(-32600)),
        (tool_headers("a", ""), tool("a\",\"name\":\"a", "{}"), 400, Some(-32600)),
        (
            tool_headers("a", ""),
            tool("a\",\"requestState\":\"b\",\"requestState\":\"b", "{}"),
            400,
            Some(-32600),
        ),
        twice("completion/complete", r#""ref":{"name":"a"},"ref":{"name":"b"}"#),
        twice("completion/complete", r#""ref":{"name":"a","name":"b"}"#),
        twice("completion/complete", r#""ref":{"type":"ref/prompt","type":"ref/resource","name":"b"}"#),
        twice("completion/complete", r#""ref":{"uri":"a","uri":"b"}"#),
        twice("subscriptions/listen", r#""notifications":{},"notifications":{"toolsListChanged":true}"#),
        twice("subscriptions/listen", r#""notifications":{"taskIds":[],"taskIds":["a"]}"#),
        twice("tasks/get", r#""taskId":"a","taskId":"b""#),
        (with_method.clone(), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(), 400, Some(-32600)),
        (with_method.clone(), "{".to_owned(), 400, Some(-32700)),
        (with_method.clone(), String::new(), 400, Some(-32700)),
        (with_method.clone(), deep(510), 200, None),
        (with_method.clone(), deep(511), 400, Some(-32700)),
        // Errors from the backend.
        (format!("{version}Mcp-Method: unknown\r\n"), request("1", "unknown", META), 404, Some(-32601)),
        (
            format!("{version}Mcp-Method: capability\r\n"),
            request("\"a\\\"\"", "capability", META),
            400,
            Some(-32021),
        ),
        // Notifications need no headers.
        (
            String::new(),
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{{META}}}}}"#),
            202,
            None,
        ),
        (version.to_owned(), r#"{"jsonrpc":"2.0","method":"notifications/x"}"#.to_owned(), 202, None),
    ] {
        let reply = server.ask(&post("/mcp", &headers, &body)).await;
        assert_eq!((reply.status, reply.code()), (status, code), "{headers}{body}\n{}", reply.body);
        assert_eq!(reply.header("mcp-session-id"), None);
    }
    let request = post(
        "/mcp",
        "MCP-Protocol-Version: 2031-01-01\r\nMcp-Method: echo\r\n",
        &request("7", "echo", &other),
    );
    let body: serde_json::Value = serde_json::from_str(&server.ask(&request).await.body).unwrap();
    assert_eq!(body["id"], 7);
    assert_eq!(body["error"]["data"]["requested"], "2031-01-01");
    assert_eq!(body["error"]["data"]["supported"], serde_json::json!(["2026-07-28"]));
}

#[tokio::test]
async fn the_era_of_a_request_is_the_same_as_over_stdio() {
    let server = Running::open().await;
    for (params, expected) in ERA_CASES {
        let version = ["2026-07-28", "2099-01-01"].into_iter().find(|version| params.contains(version));
        let version = version.map(|version| format!("MCP-Protocol-Version: {version}\r\n"));
        let headers = format!("{}Mcp-Method: echo\r\n", version.unwrap_or_default());
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"echo","params":{params}}}"#);
        let reply = server.ask(&post("/mcp", &headers, &body)).await;
        let expected = match expected {
            Ok(Era::Modern) => (200, None),
            // The request names no session.
            Ok(Era::Legacy) => (400, Some(-32600)),
            Err(code) => (400, Some(code)),
        };
        assert_eq!((reply.status, reply.code()), expected, "{params}: {}", reply.body);
    }
}

#[tokio::test]
async fn who_only_knocks_keeps_nobody_out() {
    let server = Running::start(serving(Vec::new()), |settings| {
        settings.max_connections = 8;
        settings.head_timeout = PATIENCE * 10;
    })
    .await;
    let mut busy = server.connect().await;
    assert_eq!(busy.ask(&modern(1, "echo", "")).await.status, 200);
    let mut knocking = Vec::new();
    for number in 0..50 {
        let mut client = server.connect().await;
        if number % 2 == 0 {
            client.send("POST /mcp HTTP/1.1\r\nHost: loc").await;
        }
        knocking.push(client);
    }
    assert_eq!(server.ask(&modern(2, "echo", "")).await.status, 200);
    assert_eq!(busy.ask(&modern(3, "echo", "")).await.status, 200);
    assert!(knocking[0].is_closed().await && knocking[1].is_closed().await);
}

#[tokio::test]
async fn there_are_as_many_connections_as_may_be_and_no_more() {
    let server = Running::start(serving(Vec::new()), |settings| settings.max_connections = 2).await;
    let mut clients = [server.connect().await, server.connect().await];
    for _ in 0..2 {
        for client in &mut clients {
            assert_eq!(client.ask(&modern(1, "echo", "")).await.status, 200);
        }
        assert!(server.connect().await.is_closed().await);
    }
}

#[tokio::test]
async fn slow_heads_are_cut() {
    let server =
        Running::start(serving(Vec::new()), |settings| settings.head_timeout = Duration::from_millis(100))
            .await;
    for start in ["", "POST /mcp HTTP/1.1\r\nHost: localhost\r\n"] {
        let mut client = server.connect().await;
        client.send(start).await;
        assert!(client.is_closed().await);
    }
    // A body that never comes is refused as well.
    let request = post("/mcp", "", "{}{}").replace("{}{}", "{}");
    assert_eq!(server.ask(&request).await.status, 408);
    // A call may take its time.
    let mut caller = server.connect().await;
    caller.send(&modern(1, "hold", "")).await;
    server.fake.noted("anybody holds 1").await;
    assert!(server.connect().await.is_closed().await);
    assert!(server.connect().await.is_closed().await);
    server.fake.take("1").send(whole_answer(b"{}"));
    assert_eq!(caller.reply().await.body, "{}");
    // A head without an end is refused, too.
    let mut client = server.connect().await;
    client.send("GET /healthz HTTP/1.1\r\n").await;
    let long = format!("X: {}\r\n", "x".repeat(8 * 1024));
    while client.0.get_mut().write_all(long.as_bytes()).await.is_ok() {}
}
