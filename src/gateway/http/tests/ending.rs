//! Tests of readiness and shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::super::Calls;
use super::client::events_in;
use super::fake::{notice, whole_answer};
use super::{PATIENCE, Running, call, get, initialize, modern, post, serving};

#[tokio::test]
async fn readiness_has_a_reason() {
    let server = Running::open().await;
    assert_eq!(server.ask(&get("/readyz", "")).await.status, 200);
    *server.fake.not_ready.lock() = Some("2 servers still start".to_owned());
    let reply = server.ask(&get("/readyz", "")).await;
    assert_eq!((reply.status, &*reply.body), (503, "2 servers still start\n"));
    assert_eq!(server.ask(&get("/healthz", "")).await.status, 200);
}

#[tokio::test]
async fn ending_lets_calls_finish_and_takes_no_new_ones() {
    let mut server = Running::start(serving(Vec::new()), |settings| settings.drain = PATIENCE).await;
    let session = server.session("2025-11-25").await;
    let mut listener = server.connect().await;
    listener.send(&get("/mcp", &session)).await;
    listener.head().await;
    listener.chunk().await;
    let mut caller = server.connect().await;
    caller.send(&post("/mcp", &session, &call(1, "hold"))).await;
    server.fake.noted("session 0 holds 1").await;
    server.end();
    server.fake.noted("drain").await;
    for request in [
        modern(1, "echo", ""),
        post("/mcp", "", &initialize("2025-11-25")),
        post("/mcp", &session, &call(2, "echo")),
        get("/mcp", &session),
        get("/mcp", &session).replace("GET", "DELETE"),
    ] {
        let mut client = server.connect().await;
        let reply = client.ask(&request).await;
        assert_eq!((reply.status, reply.header("connection")), (503, Some("close")), "{request}");
        assert!(client.is_closed().await);
    }
    assert_eq!(server.ask(&get("/healthz", "")).await.status, 200);
    assert_eq!(server.ask(&get("/readyz", "")).await.status, 503);
    // The answer to a question of the call in flight is not a new request.
    let answer = post("/mcp", &session, r#"{"jsonrpc":"2.0","id":9,"result":{}}"#);
    assert_eq!(server.ask(&answer).await.status, 202);
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":2}"#;
    server.fake.take("1").send(whole_answer(answer));
    assert_eq!(caller.reply().await.body, answer);
    assert_eq!(listener.chunk().await, None);
    timeout(PATIENCE, server.task).await.expect("it ends").unwrap().unwrap();
    server.fake.noted("close 0").await;
    assert!(!server.fake.log.lock().contains(&"abandon".to_owned()));
}

#[tokio::test]
async fn calls_that_take_too_long_fail_at_the_end() {
    let mut server =
        Running::start(serving(Vec::new()), |settings| settings.drain = Duration::from_millis(50)).await;
    let mut plain = server.connect().await;
    plain.send(&modern(1, "hold", "")).await;
    server.fake.noted("anybody holds 1").await;
    let mut events = server.connect().await;
    events.send(&modern(2, "hold", "")).await;
    server.fake.noted("anybody holds 2").await;
    server.fake.held.lock()[1].1.send(notice(b"{}"));
    server.end();
    assert_eq!(plain.reply().await.code(), Some(-32000));
    let reply = events.reply().await;
    assert!(events_in(&reply.body)[1].contains("-32000"), "{reply:?}");
    timeout(PATIENCE, server.task).await.expect("it ends").unwrap().unwrap();
}

#[tokio::test]
async fn memory_is_given_back_once_after_each_time_that_calls_came() {
    let (calls, pause_ends, rests) = (Arc::new(Calls::default()), Notify::new(), AtomicUsize::new(0));
    let rest = || {
        rests.fetch_add(1, Ordering::Relaxed);
    };
    let calling = async {
        // The follower comes first whenever this yields.
        let pause_is_over = async || {
            pause_ends.notify_one();
            tokio::task::yield_now().await;
            rests.load(Ordering::Relaxed)
        };
        tokio::task::yield_now().await;
        for already in 0..2 {
            drop(calls.begin());
            tokio::task::yield_now().await;
            drop(calls.begin());
            assert_eq!(pause_is_over().await, already, "another call came");
            assert_eq!(pause_is_over().await, already + 1, "no other came");
        }
        assert_eq!(pause_is_over().await, 2, "none came since the last time");
    };
    tokio::select! {
        biased;
        () = calls.each_rest(|| pause_ends.notified(), rest) => unreachable!("it never ends"),
        () = calling => {}
    }
}
