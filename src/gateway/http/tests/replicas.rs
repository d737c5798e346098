//! Two servers that are replicas over one store in this process.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::super::home::{Standing, entry_key};
use super::client::events_in;
use super::fake::notice;
use super::{ECHO, PATIENCE, Running, call, get, post, serving};
use crate::config::Secret;
use crate::replicas::Replicas;
use crate::replicas::in_process::InProcess;
use crate::replicas::store::Store;

struct Replica {
    server: Running,
    replicas: Arc<Replicas>,
}

impl Replica {
    async fn start(store: &Arc<dyn Store>) -> Self {
        let replicas = Replicas::new(store.clone(), &[Secret::new("a key of thirty-two bytes, at least")]);
        replicas.begin().await.unwrap();
        let joined = replicas.clone();
        let server = Running::start(serving(Vec::new()), |settings| settings.replicas = Some(joined)).await;
        Self { server, replicas }
    }

    /// Dies without a word.
    fn kill(&self) {
        self.replicas.stop();
        self.server.task.abort();
    }
}

async fn two() -> [Replica; 2] {
    let store: Arc<dyn Store> = Arc::new(InProcess::default());
    [Replica::start(&store).await, Replica::start(&store).await]
}

#[tokio::test]
async fn a_session_is_served_at_every_replica() {
    let [one, two] = two().await;
    let session = one.server.session("2025-06-18").await;
    for replica in [&two, &one] {
        assert_eq!(replica.server.ask(&post("/mcp", &session, &call(1, "ping"))).await.body, ECHO);
    }
    let told = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(two.server.ask(&post("/mcp", &session, told)).await.status, 202);
    one.server.fake.noted("session 0 notifications/initialized").await;
    assert!(two.server.fake.sessions.lock().is_empty(), "it lives in one place");
    // Its stream is at the other.
    let mut stream = two.server.connect().await;
    stream.send(&get("/mcp", &format!("{session}Accept: text/event-stream\r\n"))).await;
    assert!(stream.head().await.is_event_stream());
    assert_eq!(stream.chunk().await.as_deref(), Some("id: 3-0\n\n"));
    assert!(one.server.fake.unrelated(0).send(notice("{}")));
    assert_eq!(stream.events(1).await, ["3-1 {}"]);
    // The stream of an answer can be read again at either of them.
    let whole = two.server.ask(&post("/mcp", &session, &call(2, "progress"))).await;
    let events = events_in(&whole.body);
    assert_eq!(events.len(), 3, "{whole:?}");
    let first = events[0].split(' ').next().unwrap();
    for replica in [&one, &two] {
        let after = format!("{session}Last-Event-ID: {first}\r\nAccept: text/event-stream\r\n");
        let rest = replica.server.ask(&get("/mcp", &after)).await;
        assert_eq!(events_in(&rest.body), events[1..]);
    }
    let delete = get("/mcp", &session).replacen("GET", "DELETE", 1);
    assert_eq!(two.server.ask(&delete).await.status, 204);
    one.server.fake.noted("forget 0").await;
    one.server.fake.noted("close 0").await;
    for replica in [&one, &two] {
        assert_eq!(replica.server.ask(&post("/mcp", &session, &call(1, "ping"))).await.status, 404);
    }
    assert_eq!(stream.chunk().await, None, "its stream has ended properly");
}

#[tokio::test]
async fn an_answer_that_changes_the_session_comes_after_the_store_has_it_and_no_other_waits() {
    let store = Arc::new(InProcess::default());
    let one = Replica::start(&(store.clone() as Arc<dyn Store>)).await;
    let session = one.server.session("2025-06-18").await;
    let writes = store.gate.write().await;
    let mut opening = one.server.connect().await;
    opening.send(&post("/mcp", &session, &call(5, "open"))).await;
    one.server.fake.noted("session 0 opens 5").await;
    {
        let mut opened = pin!(opening.reply());
        for id in 6..9 {
            let request = post("/mcp", &session, &call(id, "ping"));
            tokio::select! {
                biased;
                answer = &mut opened => panic!("it did not wait: {answer:?}"),
                answer = one.server.ask(&request) => assert_eq!(answer.status, 200),
            }
        }
        drop(writes);
        assert_eq!(opened.await.status, 200);
    }
    // Whatever becomes of its home, the session has it open.
    one.kill();
    let two = Replica::start(&(store as Arc<dyn Store>)).await;
    assert_eq!(two.server.ask(&post("/mcp", &session, &call(1, "ping"))).await.body, ECHO);
    two.server.fake.noted(r#"restore ["5"] 2"#).await;
}

#[tokio::test]
async fn a_session_whose_home_is_silent_moves_and_what_was_in_flight_fails_once() {
    let [one, two] = two().await;
    let session = one.server.session("2025-06-18").await;
    two.server.ask(&post("/mcp", &session, &call(5, "open"))).await;
    let mut stream = two.server.connect().await;
    stream.send(&get("/mcp", &format!("{session}Accept: text/event-stream\r\n"))).await;
    assert!(stream.head().await.is_event_stream());
    stream.chunk().await;
    assert!(one.server.fake.unrelated(0).send(notice(r#"{"n":1}"#)));
    let before = stream.events(1).await;
    let mut waiting = two.server.connect().await;
    waiting.send(&post("/mcp", &session, &call(7, "hold"))).await;
    one.server.fake.noted("session 0 holds 7").await;
    one.kill();
    let failed = waiting.reply().await;
    assert_eq!(failed.code(), Some(-32000), "{failed:?}");
    two.server.fake.noted(r#"restore ["5"] 2"#).await;
    two.server.fake.noted("failed 7").await;
    assert_eq!(two.server.ask(&post("/mcp", &session, &call(1, "ping"))).await.body, ECHO);
    // The same connection goes on with the stream.
    let end = Instant::now() + PATIENCE;
    while !two.server.fake.unrelated(0).is_read() {
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(5)).await;
    }
    assert!(two.server.fake.unrelated(0).send(notice(r#"{"n":2}"#)));
    let (number, _) = before[0].split_once('-').unwrap();
    assert_eq!(stream.events(1).await, [format!(r#"{number}-2 {{"n":2}}"#)], "after {before:?}");
}

#[tokio::test]
async fn what_was_in_flight_fails_at_once_and_what_comes_next_waits_until_all_is_open_again() {
    let [one, two] = two().await;
    let session = one.server.session("2025-06-18").await;
    one.server.ask(&post("/mcp", &session, &call(5, "open"))).await;
    let mut waiting = two.server.connect().await;
    waiting.send(&post("/mcp", &session, &call(7, "hold"))).await;
    one.server.fake.noted("session 0 holds 7").await;
    let starting = two.server.fake.restoring.write().await;
    one.kill();
    let failed = waiting.reply().await;
    assert_eq!(failed.code(), Some(-32000), "{failed:?}");
    let mut next = two.server.connect().await;
    next.send(&post("/mcp", &session, &call(1, "ping"))).await;
    {
        let mut answered = pin!(next.reply());
        let healthz = get("/healthz", "");
        for _ in 0..3 {
            tokio::select! {
                biased;
                answer = &mut answered => panic!("it did not wait: {answer:?}"),
                health = two.server.ask(&healthz) => assert_eq!(health.status, 200),
            }
        }
        // A stream waits for nothing. It is stored, and should this home die as well, the next one opens all of it.
        let mut stream = two.server.connect().await;
        stream.send(&get("/mcp", &format!("{session}Accept: text/event-stream\r\n"))).await;
        assert!(stream.head().await.is_event_stream());
        let end = Instant::now() + PATIENCE;
        let standing = loop {
            assert!(Instant::now() < end);
            let entry = two.replicas.read(&entry_key(id_of(&session))).await.unwrap().unwrap();
            let standing = Standing::read(&entry.value).unwrap();
            if standing.inbox.is_some() {
                break standing;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(standing.record.open, ["5"]);
        drop(starting);
        assert_eq!(answered.await.body, ECHO);
    }
    two.server.fake.noted(r#"restore ["5"] 2"#).await;
}

#[tokio::test]
async fn a_second_stream_at_another_replica_takes_the_place_of_the_first() {
    let [one, two] = two().await;
    let session = one.server.session("2025-06-18").await;
    let mut before = None;
    for (n, replica) in [&two, &one, &two].into_iter().enumerate() {
        let mut stream = replica.server.connect().await;
        stream.send(&get("/mcp", &format!("{session}Accept: text/event-stream\r\n"))).await;
        assert!(stream.head().await.is_event_stream());
        stream.chunk().await;
        assert!(one.server.fake.unrelated(0).send(notice(format!(r#"{{"n":{n}}}"#))));
        assert!(stream.events(1).await[0].ends_with(&format!(r#" {{"n":{n}}}"#)));
        if let Some(mut old) = before.replace(stream) {
            assert_eq!(old.chunk().await, None, "the first one has ended");
        }
    }
}

#[tokio::test]
async fn an_event_is_stored_before_it_is_sent() {
    let store = Arc::new(InProcess::default());
    let one = Replica::start(&(store.clone() as Arc<dyn Store>)).await;
    let session = one.server.session("2025-06-18").await;
    let mut stream = one.server.connect().await;
    stream.send(&get("/mcp", &format!("{session}Accept: text/event-stream\r\n"))).await;
    assert!(stream.head().await.is_event_stream());
    stream.chunk().await;
    let writes = store.gate.write().await;
    assert!(one.server.fake.unrelated(0).send(notice("{}")));
    {
        let mut sent = pin!(stream.events(1));
        for id in 1..4 {
            let request = post("/mcp", &session, &call(id, "ping"));
            tokio::select! {
                biased;
                events = &mut sent => panic!("it did not wait: {events:?}"),
                answer = one.server.ask(&request) => assert_eq!(answer.status, 200),
            }
        }
        drop(writes);
        assert!(sent.await[0].ends_with(" {}"));
    }
}

#[tokio::test]
async fn a_session_leaves_no_more_streams_in_the_store_than_it_keeps_itself() {
    let store: Arc<dyn Store> = Arc::new(InProcess::default());
    let one = Replica::start(&store).await;
    let session = one.server.session("2025-06-18").await;
    let mut whole = String::new();
    for id in 1..=300 {
        whole = one.server.ask(&post("/mcp", &session, &call(id, "progress"))).await.body;
    }
    let end = Instant::now() + PATIENCE;
    let (standing, logs) = loop {
        assert!(Instant::now() < end);
        let entry = one.replicas.read(&entry_key(id_of(&session))).await.unwrap().unwrap();
        let standing = Standing::read(&entry.value).unwrap();
        let (first, last) = (standing.streams.keys().next(), standing.streams.keys().last());
        if let (Some(first), Some(last)) = (first, last)
            && standing.streams.len() < 300
        {
            let log = |number| {
                format!("log:{}:{number}", entry_key(id_of(&session)).trim_start_matches("session:"))
            };
            let events = [log(first - 1), log(*last)].map(|log| {
                let replicas = one.replicas.clone();
                async move { replicas.events(&log, 0).await.unwrap().len() }
            });
            let [before, last] = events;
            break (standing.streams.len(), [before.await, last.await]);
        }
        tokio::task::yield_now().await;
    };
    assert!((256..300).contains(&standing), "{standing}");
    assert_eq!(logs, [0, 4], "the log of a stream goes with it");
    // The last one can still be read again.
    let events = events_in(&whole);
    let first = events[0].split(' ').next().unwrap();
    let after = format!("{session}Last-Event-ID: {first}\r\nAccept: text/event-stream\r\n");
    assert_eq!(events_in(&one.server.ask(&get("/mcp", &after)).await.body), events[1..]);
}

/// The id in the header that names a session.
fn id_of(session: &str) -> &str {
    session.lines().find_map(|line| line.strip_prefix("Mcp-Session-Id: ")).expect("it names one")
}

#[tokio::test]
async fn a_replica_that_ends_leaves_its_sessions_at_once_and_finishes_its_calls() {
    let [mut one, two] = two().await;
    let session = one.server.session("2025-06-18").await;
    let mut waiting = two.server.connect().await;
    waiting.send(&post("/mcp", &session, &call(7, "hold"))).await;
    one.server.fake.noted("session 0 holds 7").await;
    one.server.end();
    one.server.fake.noted("drain").await;
    let begun = Instant::now();
    assert_eq!(two.server.ask(&post("/mcp", &session, &call(1, "ping"))).await.body, ECHO);
    two.server.fake.noted("restore [] 3").await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    one.server.fake.take("7").send(super::fake::whole_answer(r#"{"jsonrpc":"2.0","id":7,"result":"late"}"#));
    assert!(waiting.reply().await.body.contains("late"), "it had its time");
}

#[tokio::test]
async fn a_request_that_reaches_a_replica_whose_server_has_ended_is_served_elsewhere() {
    let [mut one, two] = two().await;
    let session = one.server.session("2025-06-18").await;
    // From now on the other one knows where the session is.
    assert_eq!(two.server.ask(&post("/mcp", &session, &call(1, "ping"))).await.body, ECHO);
    one.server.end();
    (&mut one.server.task).await.unwrap().unwrap();
    let answer = timeout(PATIENCE, two.server.ask(&post("/mcp", &session, &call(1, "ping")))).await;
    assert_eq!(answer.expect("it is answered").body, ECHO);
}
