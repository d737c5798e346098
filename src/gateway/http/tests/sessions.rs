//! Legacy sessions: their owners, their ends, and batches.

use std::time::Duration;

use super::client::events_in;
use super::{Running, call, get, initialize, post, serving, token};
use crate::config::{Secret, Serving, Token};

#[tokio::test]
async fn sessions_are_named_bound_and_ended() {
    let server = Running::start(serving(vec![token("a", None), token("b", None)]), |_| ()).await;
    let (a, b) = ("Authorization: Bearer a-secret\r\n", "Authorization: Bearer b-secret\r\n");
    let reply = server.ask(&post("/mcp", a, &initialize("2025-06-18"))).await;
    let id = reply.header("mcp-session-id").unwrap().to_owned();
    assert!(id.len() >= 32, "{id}");
    let session = format!("Mcp-Session-Id: {id}\r\n");
    let ping = call(1, "ping");
    for (path, headers, expected) in [
        ("/mcp", format!("{a}{session}"), 200),
        ("/mcp", format!("{a}{session}MCP-Protocol-Version: 2025-03-26\r\n"), 200),
        ("/mcp", format!("{a}{session}MCP-Protocol-Version: 1999-01-01\r\n"), 400),
        ("/mcp", a.to_owned(), 400),
        ("/mcp", format!("{a}{session}{session}"), 400),
        ("/mcp", format!("{a}Mcp-Session-Id: {}\r\n", "0".repeat(id.len())), 404),
        ("/mcp", format!("{a}Mcp-Session-Id: 0\r\nMCP-Protocol-Version: 1999-01-01\r\n"), 404),
        ("/mcp", format!("{a}Mcp-Session-Id: 0\r\nAccept: text/html\r\nContent-Type: text/plain\r\n"), 404),
        ("/mcp", format!("{b}{session}"), 404),
        ("/mcp/dev", format!("{a}{session}"), 404),
    ] {
        assert_eq!(server.ask(&post(path, &headers, &ping)).await.status, expected, "{path} {headers}");
        if expected != 200 {
            let reply = server.ask(&get(path, &headers)).await;
            assert_eq!(reply.status, expected, "GET {path} {headers}");
            let reply = server.ask(&get(path, &headers).replacen("GET", "DELETE", 1)).await;
            assert_eq!(reply.status, expected, "DELETE {path} {headers}");
        }
    }
    for (body, expected) in [
        (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, "session 0 notifications/initialized"),
        (r#"{"jsonrpc":"2.0","id":9,"result":{}}"#, "session 0 response"),
    ] {
        assert_eq!(server.ask(&post("/mcp", &format!("{a}{session}"), body)).await.status, 202);
        server.fake.noted(expected).await;
    }
    let reply = server.ask(&get("/mcp", &format!("{a}{session}")).replacen("GET", "DELETE", 1)).await;
    assert_eq!(reply.status, 204);
    server.fake.noted("close 0").await;
    assert_eq!(server.ask(&post("/mcp", &format!("{a}{session}"), &ping)).await.status, 404);
    // The sessions of a toolbox belong to it alone.
    let reply = server.ask(&post("/mcp/my%20box", a, &initialize("2025-06-18"))).await;
    let session = format!("{a}Mcp-Session-Id: {}\r\n", reply.header("mcp-session-id").unwrap());
    server.fake.noted("open Some(\"my box\")").await;
    assert_eq!(server.ask(&post("/mcp/my%20box", &session, &ping)).await.status, 200);
    assert_eq!(server.ask(&post("/mcp", &session, &ping)).await.status, 404);
    // This session is refused.
    let failing = initialize("2025-06-18").replace("{\"prot", "{\"fail\":1,\"prot");
    let reply = server.ask(&post("/mcp", a, &failing)).await;
    assert_eq!((reply.code(), reply.header("mcp-session-id")), (Some(-32602), None));
    server.fake.noted("close 2").await;
}

#[tokio::test]
async fn a_token_that_a_reload_removes_ends_its_sessions() {
    let server = Running::start(serving(vec![token("a", None), token("b", None)]), |_| ()).await;
    for name in ["a", "b"] {
        let auth = format!("Authorization: Bearer {name}-secret\r\n");
        assert_eq!(server.ask(&post("/mcp", &auth, &initialize("2025-06-18"))).await.status, 200);
    }
    server.rules.replace(&serving(vec![token("b", None)]));
    server.fake.noted("close 0").await;
    assert!(!server.fake.log.lock().contains(&"close 1".to_owned()));
    let auth = "Authorization: Bearer a-secret\r\n";
    assert_eq!(server.ask(&post("/mcp", auth, &initialize("2025-06-18"))).await.status, 401);
    // A new token under the same name is a different token.
    let renewed = Token { token: Secret::new("other-secret"), ..token("b", None) };
    server.rules.replace(&serving(vec![renewed]));
    server.fake.noted("close 1").await;
}

#[tokio::test]
async fn idle_sessions_end_and_those_with_a_stream_or_a_request_stay() {
    let idle = Serving { session_idle_timeout: Duration::from_millis(300), ..serving(Vec::new()) };
    let server = Running::start(idle, |_| ()).await;
    let with_stream = server.session("2025-11-25").await;
    let with_request = server.session("2025-11-25").await;
    let mut stream = server.connect().await;
    stream.send(&get("/mcp", &with_stream)).await;
    assert!(stream.head().await.is_event_stream());
    let mut request = server.connect().await;
    request.send(&post("/mcp", &with_request, &call(1, "hold"))).await;
    server.fake.noted("session 1 holds 1").await;
    drop(request);
    server.session("2025-11-25").await;
    server.fake.noted("close 2").await;
    for session in [&with_stream, &with_request] {
        assert_eq!(server.ask(&post("/mcp", session, &call(2, "ping"))).await.status, 200);
    }
    drop(server.fake.take("1"));
    drop(stream);
    server.fake.noted("close 0").await;
    server.fake.noted("close 1").await;
}

#[tokio::test]
async fn in_a_full_table_the_oldest_that_was_never_used_gives_way() {
    let server = Running::start(serving(Vec::new()), |settings| settings.max_sessions = 5).await;
    let ping = call(1, "ping");
    let mut sessions = Vec::new();
    for _ in 0..5 {
        sessions.push(server.session("2025-11-25").await);
    }
    // A request, a notification and a stream each count as use.
    assert_eq!(server.ask(&post("/mcp", &sessions[0], &ping)).await.status, 200);
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(server.ask(&post("/mcp", &sessions[1], note)).await.status, 202);
    let mut stream = server.connect().await;
    stream.send(&get("/mcp", &sessions[3])).await;
    assert!(stream.head().await.is_event_stream());
    for unused in [2, 4] {
        sessions.push(server.session("2025-11-25").await);
        server.fake.noted(&format!("close {unused}")).await;
        assert_eq!(server.ask(&post("/mcp", &sessions[unused], &ping)).await.status, 404);
        let newest = sessions.last().unwrap();
        assert_eq!(server.ask(&post("/mcp", newest, &ping)).await.status, 200);
    }
    let reply = server.ask(&post("/mcp", "", &initialize("2025-11-25"))).await;
    assert_eq!(reply.status, 503, "all are in use");
    for used in [0, 1, 3, 5, 6] {
        assert_eq!(server.ask(&post("/mcp", &sessions[used], &ping)).await.status, 200, "{used}");
    }
}

#[tokio::test]
async fn batches_belong_to_one_version() {
    let server = Running::open().await;
    let march = server.session("2025-03-26").await;
    let june = server.session("2025-06-18").await;
    let note = r#"{"jsonrpc":"2.0","method":"n"}"#;
    let answer = |id: u32, body: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{body}}}"#);
    let two = format!("[{},{note},{}]", call(1, "echo"), call(2, "echo"));
    let reply = server.ask(&post("/mcp", &march, &two)).await;
    assert_eq!(reply.body, format!("[{},{}]", answer(1, "\"session 0\""), answer(2, "\"session 0\"")));
    server.fake.noted("session 0 n").await;
    // Messages before the answers are sent ahead. Requests without an answer are left out, and parts that are
    // not messages are answered.
    let mixed = format!("[{},{},7]", call(1, "progress"), call(2, "drop"));
    let reply = server.ask(&post("/mcp", &march, &mixed)).await;
    let events = events_in(&reply.body);
    assert_eq!(events.len(), 3, "{events:?}");
    assert!(events[2].contains(&answer(1, "{}")) && events[2].contains("-32600"), "{events:?}");
    for (session, body, status, code) in [
        (&march, format!("[{note}]"), 202, None),
        (&march, "[]".to_owned(), 400, Some(-32600)),
        (&june, two.clone(), 400, Some(-32600)),
        (&String::new(), two, 400, Some(-32600)),
    ] {
        let reply = server.ask(&post("/mcp", session, &body)).await;
        assert_eq!((reply.status, reply.code()), (status, code), "{session}{body}");
    }
}
