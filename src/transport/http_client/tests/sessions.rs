//! Legacy sessions: opened, lost, opened again, ended; streams that break and go on.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, watch};

use super::server::{Asked, BodyStep, Reply, Server};
use super::{Client, HELLO, RENEWED, error, result};

/// Answers the handshake with a session of this name, and everything else with `rest`.
fn handshake(asked: &Asked, session: &str, rest: impl FnOnce() -> Reply) -> Reply {
    match asked.rpc.as_str() {
        "initialize" => Reply::json(HELLO).with("mcp-session-id", session),
        "notifications/initialized" => Reply::status(202),
        _ if asked.method == "DELETE" => Reply::status(200),
        _ => rest(),
    }
}

#[tokio::test]
async fn a_session_is_carried_from_the_first_answer_to_the_end() {
    // The answer comes once as JSON and once as a stream.
    for stream in [false, true] {
        let (open, wait) = watch::channel(false);
        let (say, said) = mpsc::channel(1);
        let said = parking_lot::Mutex::new(Some(said));
        let server = Server::start(move |asked| match asked.rpc.as_str() {
            "initialize" if stream => {
                Reply::events(format!("id: 1\ndata:\n\ndata: {HELLO}\n\n")).with("mcp-session-id", "s")
            }
            // No other message may overtake this one.
            "notifications/initialized" => Reply::status(202).when(wait.clone()),
            _ => handshake(asked, "s", || match asked.method.as_str() {
                "GET" => Reply::events("").then(BodyStep::From(said.lock().take().unwrap())),
                _ if asked.rpc == "tools/list" => Reply::json(result(asked.id, "a")),
                _ => Reply::status(202),
            }),
        })
        .await;
        let mut client = Client::of(&server);
        client.greet().await;
        client.call(2, "tools/list").await;
        let question = r#"{"jsonrpc":"2.0","id":"q","method":"ping"}"#;
        open.send_replace(true);
        client.expect(&format!("2 {}", result(2, "a"))).await;
        say.send(format!("data: {question}\n\n")).await.unwrap();
        client.expect(&format!("- {question}")).await;
        client.send(r#"{"jsonrpc":"2.0","id":"q","result":{}}"#).await;
        client.send(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#).await;
        assert_eq!(client.close().await, (Ok(()), Vec::new()));
        let mut log = server.log();
        assert_eq!(
            log[..2],
            ["POST initialize", "POST notifications/initialized session=s version=2025-11-25"]
        );
        assert_eq!(log.last().unwrap(), "DELETE session=s version=2025-11-25");
        log.sort();
        let rest = ["GET", "POST answer", "POST notifications/roots/list_changed", "POST tools/list"];
        for line in rest {
            assert!(log.contains(&format!("{line} session=s version=2025-11-25")), "{line} in {log:?}");
        }
        assert_eq!(log.len(), 7);
    }
}

#[tokio::test]
async fn a_server_without_session_and_stream_is_served_as_well() {
    let server = Server::start(|asked| match asked.rpc.as_str() {
        "initialize" => Reply::json(HELLO),
        "notifications/initialized" => Reply::status(202),
        "" => Reply::status(405),
        _ => Reply::json(result(asked.id, "a")),
    })
    .await;
    let mut client = Client::of(&server);
    client.greet().await;
    client.call(2, "tools/list").await;
    client.expect(&format!("2 {}", result(2, "a"))).await;
    assert_eq!(client.close().await, (Ok(()), Vec::new()));
    let log = server.log();
    assert!(!log.iter().any(|line| line.contains("session") || line.starts_with("DELETE")), "{log:?}");
    assert!(log.iter().filter(|line| line.starts_with("GET")).count() <= 1, "{log:?}");
}

#[tokio::test]
async fn a_lost_session_is_opened_again_and_the_call_sent_again() {
    let no_session = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#;
    lost_session(move || Reply::status(404)).await;
    lost_session(move || Reply::status(404).kind("application/json").text(no_session)).await;
    lost_session(move || Reply::status(400).kind("application/json").text(no_session)).await;
}

/// Tests a server that restarts and then refuses a session it does not know.
async fn lost_session(refuse: impl Fn() -> Reply + Send + Sync + 'static) {
    let opened = AtomicUsize::new(0);
    let server = Server::start(move |asked| {
        if asked.rpc == "initialize" {
            opened.fetch_add(1, Ordering::Relaxed);
        }
        let current = format!("s{}", opened.load(Ordering::Relaxed));
        if asked.rpc == "restart" {
            opened.fetch_add(1, Ordering::Relaxed);
        }
        handshake(asked, &current, || match asked.method.as_str() {
            "GET" => Reply::status(405),
            _ if asked.header("mcp-session-id") == current => Reply::json(result(asked.id, &current)),
            _ => refuse(),
        })
    })
    .await;
    let mut client = Client::of(&server);
    client.greet().await;
    client.call(2, "restart").await;
    client.expect(&format!("2 {}", result(2, "s1"))).await;
    client.call(3, "tools/list").await;
    client.expect(RENEWED).await;
    client.expect(&format!("3 {}", result(3, "s3"))).await;
    assert_eq!(client.close().await, (Ok(()), Vec::new()));
    let posts: Vec<_> = server.log().into_iter().filter(|line| !line.starts_with("GET")).collect();
    assert_eq!(
        posts,
        [
            "POST initialize",
            "POST notifications/initialized session=s1 version=2025-11-25",
            "POST restart session=s1 version=2025-11-25",
            "POST tools/list session=s1 version=2025-11-25",
            "POST initialize",
            "POST notifications/initialized session=s3 version=2025-11-25",
            "POST tools/list session=s3 version=2025-11-25",
            "DELETE session=s3 version=2025-11-25",
        ]
    );
}

#[tokio::test]
async fn what_else_was_in_flight_when_the_session_was_lost() {
    let (say, said) = mpsc::channel(1);
    let said = parking_lot::Mutex::new(Some(said));
    let (_never, silence) = watch::channel(false);
    let opened = AtomicUsize::new(0);
    let server = Server::start(move |asked| {
        if asked.rpc == "initialize" {
            opened.fetch_add(1, Ordering::Relaxed);
        }
        let current = format!("s{}", opened.load(Ordering::Relaxed));
        handshake(asked, &current, || match asked.rpc.as_str() {
            "streaming" => Reply::events("data: {\"jsonrpc\":\"2.0\",\"method\":\"started\"}\n\n")
                .then(BodyStep::From(said.lock().take().unwrap())),
            "silent" => Reply::status(200).when(silence.clone()),
            "call" if current == "s1" => Reply::status(404),
            "call" => Reply::json(result(asked.id, "a")),
            _ => Reply::status(405),
        })
    })
    .await;
    let mut client = Client::of(&server);
    client.greet().await;
    client.call(2, "streaming").await;
    client.expect(r#"2 {"jsonrpc":"2.0","method":"started"}"#).await;
    client.call(3, "silent").await;
    for id in 4..8 {
        client.call(id, "call").await;
    }
    client.expect(RENEWED).await;
    let mut answers = Vec::new();
    for _ in 3..8 {
        answers.push(client.next().await);
    }
    answers.sort();
    let mut expected: Vec<_> = (4..8).map(|id| format!("{id} {}", result(id, "a"))).collect();
    expected.insert(0, error(3, "the server lost the session while the call was under way", None));
    assert_eq!(answers, expected);
    say.send(format!("data: {}\n\n", result(2, "late"))).await.unwrap();
    client.expect(&format!("2 {}", result(2, "late"))).await;
    assert_eq!(client.close().await, (Ok(()), Vec::new()));
    let log = server.log();
    assert_eq!(log.iter().filter(|line| *line == "POST initialize").count(), 2, "{log:?}");
    assert_eq!(log.iter().filter(|line| line.contains("silent")).count(), 1, "{log:?}");
}

#[tokio::test]
async fn a_session_that_cannot_be_opened_again_is_the_end() {
    let opened = AtomicUsize::new(0);
    let server = Server::start(move |asked| match asked.rpc.as_str() {
        "initialize" if opened.fetch_add(1, Ordering::Relaxed) > 0 => Reply::status(503),
        _ => handshake(asked, "s", || Reply::status(if asked.method == "GET" { 405 } else { 404 })),
    })
    .await;
    let mut client = Client::of(&server);
    client.greet().await;
    client.call(2, "tools/list").await;
    let reason =
        "the server lost the session and opened no new one: the server answered HTTP 503 Service Unavailable";
    client.expect(&error(2, reason, Some(503))).await;
    assert_eq!(client.end().await, (Err(reason.to_owned()), Vec::new()));
}

#[tokio::test]
async fn a_session_with_a_server_that_is_not_to_be_had_any_more_is_the_end() {
    let opened = AtomicUsize::new(0);
    let server = Server::start(move |asked| match asked.rpc.as_str() {
        "initialize" if opened.fetch_add(1, Ordering::Relaxed) > 0 => {
            Reply::json(HELLO.replace("2025-11-25", "1999-01-01")).with("mcp-session-id", "s")
        }
        _ => handshake(asked, "s", || Reply::status(if asked.method == "GET" { 405 } else { 404 })),
    })
    .await;
    let mut client = Client::of(&server);
    client.greet().await;
    client.call(2, "tools/list").await;
    client.expect(&RENEWED.replace("2025-11-25", "1999-01-01")).await;
    let reason = "the server lost the session and opened no new one: too old";
    client.expect(&error(2, reason, None)).await;
    assert_eq!(client.end().await, (Err(reason.to_owned()), Vec::new()));
}

#[tokio::test]
async fn a_call_that_is_always_answered_404_fails() {
    let server = Server::start(|asked| {
        handshake(asked, "s", || Reply::status(if asked.method == "GET" { 405 } else { 404 }))
    })
    .await;
    let mut client = Client::of(&server);
    client.greet().await;
    client.call(2, "tools/list").await;
    client.expect(RENEWED).await;
    client.expect(&error(2, "the server answered HTTP 404 Not Found", Some(404))).await;
    assert_eq!(server.log().iter().filter(|line| line.starts_with("POST tools/list")).count(), 2);
}

#[tokio::test]
async fn a_broken_stream_goes_on_behind_its_last_event() {
    let server = Server::start(|asked| {
        handshake(asked, "s", || match (asked.rpc.as_str(), asked.header("last-event-id")) {
            ("call", _) => Reply::events("id: c1\nretry: 3\ndata:\n\n"),
            ("broken", _) => {
                Reply::events("id: b1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"one\"}\n\nid: b2\ndata: lost")
                    .then(BodyStep::Break)
            }
            ("refused", _) => Reply::events("id: r1\ndata:\n\n"),
            (_, "c1") => Reply::events("id: c2\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"two\"}\n\n"),
            (_, "c2") => Reply::events(format!("id: c3\ndata: {}\n\n", result(2, "c"))),
            (_, "b1") => Reply::events(format!("id: b2\ndata: {}\n\n", result(3, "b"))),
            (_, "r1") => Reply::status(400),
            _ => Reply::status(405),
        })
    })
    .await;
    let mut client = Client::of(&server);
    client.greet().await;
    client.call(2, "call").await;
    client.expect(r#"2 {"jsonrpc":"2.0","method":"two"}"#).await;
    client.expect(&format!("2 {}", result(2, "c"))).await;
    client.call(3, "broken").await;
    client.expect(r#"3 {"jsonrpc":"2.0","method":"one"}"#).await;
    client.expect(&format!("3 {}", result(3, "b"))).await;
    client.call(4, "refused").await;
    let reason = "the stream broke and cannot be resumed: the server answered HTTP 400 Bad Request";
    client.expect(&error(4, reason, Some(400))).await;
    assert_eq!(client.close().await, (Ok(()), Vec::new()));
    let log = server.log();
    assert_eq!(
        log.iter().filter(|line| line.starts_with("POST")).count(),
        5,
        "nothing is sent twice: {log:?}"
    );
    assert!(log.contains(&"GET session=s version=2025-11-25 last=c2".to_owned()), "{log:?}");
}

#[tokio::test]
async fn the_stream_for_everything_else_goes_on_as_well() {
    let gets = AtomicUsize::new(0);
    let server =
        Server::start(move |asked| {
            handshake(asked, "s", || {
                match (gets.fetch_add(1, Ordering::Relaxed), asked.header("last-event-id")) {
                    (0, "-") => {
                        Reply::events("id: 1\nretry: 2\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"one\"}\n\n")
                    }
                    (1, "1") => Reply::events("data: {\"jsonrpc\":\"2.0\",\"method\":\"two\"}\n\n")
                        .then(BodyStep::Break),
                    (2, "1") => Reply::status(503),
                    (3, "1") => Reply::events("data: {\"jsonrpc\":\"2.0\",\"method\":\"three\"}\n\n")
                        .then(BodyStep::Hold),
                    other => unreachable!("{other:?}"),
                }
            })
        })
        .await;
    let mut client = Client::of(&server);
    client.greet().await;
    let message = |method: &str| format!(r#"- {{"jsonrpc":"2.0","method":"{method}"}}"#);
    client.expect(&message("one")).await;
    for method in ["two", "three"] {
        client.expect("[missed]").await;
        client.expect(&message(method)).await;
    }
    assert_eq!(client.close().await, (Ok(()), Vec::new()));
}

#[tokio::test]
async fn a_stream_that_finds_its_session_lost_opens_a_new_one() {
    for refusal in [400, 404] {
        stream_without_session(refusal).await;
    }
}

/// Tests a server that ends the stream and then refuses a session it does not know.
async fn stream_without_session(refusal: u16) {
    let (opened, gets) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let server = Server::start(move |asked| {
        if asked.rpc == "initialize" {
            opened.fetch_add(1, Ordering::Relaxed);
        }
        let current = format!("s{}", opened.load(Ordering::Relaxed));
        handshake(asked, &current, || match gets.fetch_add(1, Ordering::Relaxed) {
            0 => Reply::events("id: 1\ndata:\n\n"),
            1 => Reply::status(refusal),
            _ => Reply::events("data: {\"jsonrpc\":\"2.0\",\"method\":\"new\"}\n\n").then(BodyStep::Hold),
        })
    })
    .await;
    let mut client = Client::of(&server);
    client.greet().await;
    client.expect(RENEWED).await;
    client.expect(r#"- {"jsonrpc":"2.0","method":"new"}"#).await;
    assert_eq!(client.close().await, (Ok(()), Vec::new()));
    let log = server.log();
    assert!(log.contains(&"GET session=s2 version=2025-11-25".to_owned()), "{log:?}");
}

#[tokio::test]
async fn cancelling_a_legacy_call_is_a_message() {
    let (cancelled, wait) = watch::channel(false);
    let server = Server::start(move |asked| {
        handshake(asked, "s", || match asked.rpc.as_str() {
            "call" => {
                Reply::events("data: {\"jsonrpc\":\"2.0\",\"method\":\"started\"}\n\n").then(BodyStep::Hold)
            }
            "notifications/cancelled" => {
                cancelled.send_replace(true);
                Reply::status(202)
            }
            _ => Reply::status(405),
        })
    })
    .await;
    let mut client = Client::of(&server);
    client.greet().await;
    client.call(2, "call").await;
    client.expect(r#"2 {"jsonrpc":"2.0","method":"started"}"#).await;
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#).await;
    wait.clone().wait_for(|cancelled| *cancelled).await.unwrap();
    assert_eq!(client.close().await, (Ok(()), Vec::new()));
}
