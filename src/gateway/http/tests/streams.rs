//! Answers as JSON and as events, streams that break, and streams that nobody reads.

use std::time::Duration;

use tokio::time::timeout;

use super::client::events_in;
use super::fake::{notice, whole_answer};
use super::{ECHO, PATIENCE, Running, call, get, modern, post, serving};
use crate::core::route::{Outgoing, OutgoingKind};

#[tokio::test]
async fn an_answer_is_json_or_events_as_the_client_takes_them() {
    let server = Running::open().await;
    let session = server.session("2025-11-25").await;
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    for (modern_era, accept, method, expected) in [
        (true, "*/*", "progress", &[" {\"p\":1}", " {\"p\":2}", " A"][..]),
        (true, "application/json", "progress", &[]),
        (true, "text/event-stream", "echo", &[" E"]),
        (true, "*/*", "echo", &[]),
        (false, "*/*", "progress", &["0-1 {\"p\":1}", "0-2 {\"p\":2}", "0-3 A"]),
        (false, "application/json", "progress", &[]),
        (false, "text/event-stream", "echo", &["0-1 E"]),
        (false, "*/*", "echo", &[]),
    ] {
        let accept = format!("Accept: {accept}\r\n");
        let request = match modern_era {
            true => modern(1, method, &accept),
            false => post("/mcp", &format!("{session}{accept}"), &call(1, method)),
        };
        let reply = server.ask(&request).await;
        let echo = ECHO.replace("session 0", if modern_era { "anybody" } else { "session 0" });
        if expected.is_empty() {
            assert_eq!(reply.header("content-type"), Some("application/json"), "{request}");
            assert_eq!(reply.body, if method == "echo" { echo } else { answer.to_owned() });
        } else {
            assert!(reply.is_event_stream(), "{request}");
            assert_eq!(reply.header("x-accel-buffering"), Some("no"));
            let expected: Vec<_> =
                expected.iter().map(|event| event.replace('A', answer).replace('E', &echo)).collect();
            // The numbers of streams increase within a session.
            let events: Vec<_> = events_in(&reply.body)
                .iter()
                .map(|event| match event.split_once('-') {
                    Some((number, rest)) if number.parse::<u64>().is_ok() => format!("0-{rest}"),
                    _ => event.clone(),
                })
                .collect();
            assert_eq!(events, expected);
        }
    }
    // An answer with an HTTP status of its own keeps it, whatever form the client wants.
    for accept in ["*/*", "application/json", "text/event-stream"] {
        for (method, status, code) in [("unknown", 404, -32601), ("capability", 400, -32021)] {
            let reply = server.ask(&modern(1, method, &format!("Accept: {accept}\r\n"))).await;
            assert_eq!((reply.status, reply.code()), (status, Some(code)), "{accept}: {reply:?}");
        }
    }
    // A subscription must be a stream.
    let reply = server.ask(&modern(1, "subscriptions/listen", "Accept: application/json\r\n")).await;
    assert_eq!((reply.status, reply.code()), (406, Some(-32600)), "{reply:?}");
    // A request that never gets an answer leaves nobody waiting.
    assert_eq!(server.ask(&modern(1, "drop", "")).await.status, 202);
}

#[tokio::test]
async fn closing_the_stream_cancels_a_modern_request_and_no_other() {
    let server = Running::open().await;
    // The client leaves before anything was answered.
    let mut client = server.connect().await;
    client.send(&modern(5, "hold", "")).await;
    server.fake.noted("anybody holds 5").await;
    drop(client);
    server.fake.noted("released 5").await;
    assert!(!server.fake.take("5").send(whole_answer(b"{}")));
    // The client leaves in the middle of the events; another request with the same id goes on.
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    one.send(&modern(6, "hold", "")).await;
    server.fake.noted("anybody holds 6").await;
    let first = server.fake.take("6");
    two.send(&modern(6, "hold", "")).await;
    first.send(notice(br#"{"p":1}"#));
    assert!(one.head().await.is_event_stream());
    assert_eq!(one.events(1).await, [r#" {"p":1}"#]);
    drop(one);
    server.fake.noted("released 6").await;
    let answer = r#"{"jsonrpc":"2.0","id":6,"result":2}"#;
    while server.fake.held.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(server.fake.take("6").send(whole_answer(answer)));
    assert_eq!(two.reply().await.body, answer);
    // A legacy request goes on although its client hung up.
    let session = server.session("2025-11-25").await;
    let mut client = server.connect().await;
    client.send(&post("/mcp", &session, &call(7, "hold"))).await;
    server.fake.noted("session 0 holds 7").await;
    let stream = server.fake.take("7");
    stream.send(notice(br#"{"p":1}"#));
    assert!(client.head().await.is_event_stream());
    drop(client);
    assert!(stream.send(whole_answer(br#"{"jsonrpc":"2.0","id":7,"result":2}"#)));
}

#[tokio::test]
async fn one_stream_carries_what_belongs_to_no_request() {
    let server = Running::open().await;
    let session = server.session("2025-11-25").await;
    let unrelated = server.fake.unrelated(0);
    let changed = |kind: &str| format!(r#"{{"jsonrpc":"2.0","method":"notifications/{kind}/list_changed"}}"#);
    // Nobody listens yet, so `list_changed` waits, once per kind, and nothing else does.
    let long = changed("long").replace('{', &format!("{{\"x\":\"{}\",", "x".repeat(2000)));
    for (kind, message) in [
        ("tools/list_changed", changed("tools")),
        ("tools/list_changed", changed("tools")),
        ("long/list_changed", long),
        ("prompts/list_changed", changed("prompts")),
        ("other", r#"{"method":"other"}"#.to_owned()),
    ] {
        let method = format!("notifications/{kind}");
        unrelated.send(Outgoing { kind: OutgoingKind::Notice(&method), bytes: message.into() });
    }
    let mut one = server.connect().await;
    one.send(&get("/mcp", &session)).await;
    assert!(one.head().await.is_event_stream());
    let data = |events: Vec<String>| -> Vec<_> {
        events.iter().map(|event| event.split_once(' ').unwrap().1.to_owned()).collect()
    };
    assert_eq!(data(one.events(2).await), [changed("tools"), changed("prompts")]);
    unrelated.send(notice(b"1"));
    assert_eq!(data(one.events(1).await), ["1"]);
    // A second stream replaces the first.
    let mut two = server.connect().await;
    two.send(&get("/mcp", &session)).await;
    assert!(two.head().await.is_event_stream());
    assert_eq!(one.chunk().await, None);
    unrelated.send(notice(b"2"));
    assert_eq!(data(two.events(1).await), ["2"]);
    // The end of the session ends the stream.
    server.ask(&get("/mcp", &session).replacen("GET", "DELETE", 1)).await;
    assert_eq!(two.chunk().await, None);
    assert!(!unrelated.send(notice(b"3")));
}

#[tokio::test]
async fn broken_streams_are_resumed_without_loss_or_repetition() {
    let server = Running::open().await;
    let session = server.session("2025-11-25").await;
    let mut listener = server.connect().await;
    listener.send(&get("/mcp", &session)).await;
    listener.head().await;
    let mut caller = server.connect().await;
    caller.send(&post("/mcp", &session, &call(1, "hold"))).await;
    server.fake.noted("session 0 holds 1").await;
    let stream = server.fake.take("1");
    stream.send(notice(b"1"));
    stream.send(notice(b"2"));
    assert!(caller.head().await.is_event_stream());
    let events = caller.events(2).await;
    let id = |event: &str| event.split_once(' ').unwrap().0.to_owned();
    drop(caller);
    stream.send(notice(b"3"));
    stream.send(whole_answer(b"4"));
    for (last, expected) in [(0, &["2", "3", "4"][..]), (1, &["3", "4"])] {
        let last = id(&events[last]);
        let reply = server.ask(&get("/mcp", &format!("{session}Last-Event-ID: {last}\r\n"))).await;
        let data: Vec<_> =
            events_in(&reply.body).iter().map(|event| event.split_once(' ').unwrap().1.to_owned()).collect();
        assert_eq!(data, expected);
    }
    // The session's own stream was left alone and can be resumed as well.
    server.fake.unrelated(0).send(notice(b"5"));
    let events = listener.events(1).await;
    drop(listener);
    server.fake.unrelated(0).send(notice(b"6"));
    for last in [id(&events[0]), "unknown".to_owned(), "99-1".to_owned(), "0-99".to_owned()] {
        let mut listener = server.connect().await;
        listener.send(&get("/mcp", &format!("{session}Last-Event-ID: {last}\r\n"))).await;
        assert!(listener.head().await.is_event_stream(), "{last}");
        if last == id(&events[0]) {
            assert!(listener.events(1).await[0].ends_with(" 6"));
        } else {
            // An unknown id is ignored, and a new stream begins.
            let mut start = listener.chunk().await.unwrap();
            server.fake.unrelated(0).send(notice(b"7"));
            start.push_str(&listener.chunk().await.unwrap());
            assert!(start.ends_with("-1\ndata: 7\n\n"), "{start}");
        }
    }
}

#[tokio::test]
async fn a_stream_that_has_given_way_is_as_good_as_unknown() {
    let server = Running::start(serving(Vec::new()), |settings| settings.keeping.bytes = 1000).await;
    let session = server.session("2025-11-25").await;
    let mut ids = Vec::new();
    for (id, bytes) in [(1, 600), (2, 600)] {
        let mut caller = server.connect().await;
        caller.send(&post("/mcp", &session, &call(id, "hold"))).await;
        server.fake.noted(&format!("session 0 holds {id}")).await;
        let stream = server.fake.take(&id.to_string());
        stream.send(notice(b"1"));
        assert!(caller.head().await.is_event_stream());
        ids.push(caller.events(1).await[0].split_once(' ').unwrap().0.to_owned());
        stream.send(whole_answer(format!("\"{}\"", "x".repeat(bytes))));
        caller.events(1).await;
    }
    // The second event is still kept.
    let reply = server.ask(&get("/mcp", &format!("{session}Last-Event-ID: {}\r\n", ids[1]))).await;
    assert!(reply.body.contains("xxx\"\n\n"), "{}", reply.body);
    let mut listener = server.connect().await;
    listener.send(&get("/mcp", &format!("{session}Last-Event-ID: {}\r\n", ids[0]))).await;
    assert!(listener.head().await.is_event_stream());
    let start = listener.chunk().await.unwrap();
    assert!(start.starts_with("id: ") && start.ends_with("-0\n\n"), "a new stream: {start}");
    server.fake.unrelated(0).send(notice(b"7"));
    assert!(listener.events(1).await[0].ends_with(" 7"));
}

#[tokio::test]
async fn streams_are_forgotten_after_their_time() {
    let server = Running::start(serving(Vec::new()), |settings| settings.keeping.time = Duration::ZERO).await;
    let session = server.session("2025-11-25").await;
    let reply = server.ask(&post("/mcp", &session, &call(1, "progress"))).await;
    let first = events_in(&reply.body)[0].split_once(' ').unwrap().0.to_owned();
    let mut client = server.connect().await;
    client.send(&get("/mcp", &format!("{session}Last-Event-ID: {first}\r\n"))).await;
    assert!(client.head().await.is_event_stream());
    server.fake.unrelated(0).send(notice(b"new"));
    assert!(client.events(1).await[0].ends_with(" new"));
}

#[tokio::test]
async fn quiet_streams_show_that_they_are_alive() {
    let server =
        Running::start(serving(Vec::new()), |settings| settings.keep_alive = Duration::from_millis(20)).await;
    let session = server.session("2025-11-25").await;
    let mut client = server.connect().await;
    client.send(&get("/mcp", &session)).await;
    client.head().await;
    assert!(client.chunk().await.unwrap().starts_with("id: "));
    assert_eq!(client.chunk().await.unwrap(), ":\n\n");
    assert_eq!(client.chunk().await.unwrap(), ":\n\n");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let server = Running::open().await;
    let mut client = server.connect().await;
    client.send(&modern(1, "hold", "")).await;
    server.fake.noted("anybody holds 1").await;
    let stream = server.fake.take("1");
    let message = format!("\"{}\"", "x".repeat(500_000));
    let flood = async {
        while stream.send(notice(&*message)) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, flood).await.expect("it is cut off");
    server.fake.noted("released 1").await;
}
