//! Streams of sessions at any replica: messages, questions, cancellations, and resuming.

use serde_json::json;

use super::{Cluster, open, tools};
use crate::client::{CAN_ALL, Client, Era, Web};
use crate::harness::{Message, TOOLS_CHANGED};

pub(super) const PROGRESS: &str = "notifications/progress";

#[test]
fn what_belongs_to_no_request_reaches_the_stream_wherever_it_is() {
    let Some(cluster) = Cluster::start(tools("change,notify")) else { return };
    // The session's home is the first, its stream is at each in turn.
    for replica in 0..3 {
        let mut web = Web::new(&cluster.address(0));
        web.open_session(CAN_ALL);
        web.turn_to([cluster.address(replica)]);
        web.listen();
        let mut client = Client::of_session(web, CAN_ALL);
        open(&mut client);
        client.notification(TOOLS_CHANGED);
        // A second stream at another replica takes the place of the first.
        client.over_http().turn_to([cluster.address((replica + 1) % 3)]);
        client.over_http().listen();
        client.over_http().turn_to(cluster.addresses());
        let add = json!({"add": [json!({"name": format!("more-{replica}"), "inputSchema": {"type": "object"}}).to_string()]});
        client.call("dev__a__change", add).text();
        client.notification(TOOLS_CHANGED);
        assert!(client.left().is_empty(), "nothing came twice: {:?}", client.left());
    }
}

#[test]
fn questions_are_answered_and_calls_cancelled_at_any_replica() {
    let Some(cluster) = Cluster::start(tools("ask")) else { return };
    let mut client = cluster.client(Era::Legacy);
    open(&mut client);
    let ask = r#"{"method":"roots/list"}"#;
    for _ in 0..6 {
        let (questions, answer) = client.call_and_answer("dev__a__ask", ask, r#"{"roots":[]}"#);
        assert_eq!(questions.len(), 1);
        assert!(answer.text().contains("roots"), "{answer:?}");
    }
    // A server that has asked is given one call at a time, so another one is cancelled.
    let Some(cluster) = Cluster::start(tools("slow,started,cancelled")) else { return };
    let mut client = cluster.client(Era::Legacy);
    open(&mut client);
    for n in 1..=3 {
        let slow = client.post_call("dev__a__slow", json!({"key": n.to_string()}));
        client.call("dev__a__started", json!({"key": n.to_string()})).text();
        client.cancel(&slow);
        client.call("dev__a__cancelled", json!({"count": n})).text();
    }
}

/// The numbers of the progress that has come, in its order, until the call is answered.
fn progress_until(client: &mut Client, id: &str) -> Vec<u64> {
    let answered = client.answer(id);
    assert_eq!(answered.text(), "progress");
    progress_of(client)
}

/// The numbers of the progress that has come and was not taken, in its order; now it is.
pub(super) fn progress_of(client: &mut Client) -> Vec<u64> {
    let count = client.left().iter().filter(|message| message.method() == PROGRESS).count();
    (0..count).map(|_| number(&client.notification(PROGRESS))).collect()
}

fn number(progress: &Message) -> u64 {
    progress.value()["params"]["progress"].as_u64().expect("a number")
}

#[test]
fn a_broken_stream_is_resumed_at_any_replica_without_loss_or_repetition() {
    let Some(cluster) = Cluster::start(tools("progress")) else { return };
    let mut opener = cluster.client_of(0);
    open(&mut opener);
    let session = opener.over_http().session.clone();
    for (front, back) in [(0, 1), (1, 2), (2, 0), (1, 1), (0, 0)] {
        let mut web = Web::new(&cluster.address(front));
        web.session = session.clone();
        let mut client = Client::of_session(web, CAN_ALL);
        let params = r#"{"name":"dev__a__progress","arguments":{"n":30,"ms":10}}"#;
        let id = client.post_with("tools/call", params, r#""progressToken":"p""#);
        let mut seen = Vec::new();
        for _ in 0..10 {
            seen.push(number(&client.notification(PROGRESS)));
        }
        client.over_http().hang_up(&id);
        // What had come before the connection broke is read first.
        client.over_http().wait_for_ends();
        let last = client.over_http().last_event();
        client.over_http().turn_to([cluster.address(back)]);
        client.over_http().listen_after(&last);
        seen.extend(progress_until(&mut client, &id));
        assert_eq!(seen, (1..=30).collect::<Vec<_>>(), "from {front} to {back}");
    }
}

#[test]
fn a_stream_whose_front_is_killed_again_and_again_loses_and_repeats_nothing() {
    const FRONTS: usize = 8;
    let Some(mut cluster) = Cluster::of(1 + FRONTS, tools("progress")) else { return };
    let mut client = cluster.client_of(0);
    open(&mut client);
    let params = r#"{"name":"dev__a__progress","arguments":{"n":90,"ms":20}}"#;
    client.over_http().turn_to([cluster.address(1)]);
    let id = client.post_with("tools/call", params, r#""progressToken":"p""#);
    let mut seen = Vec::new();
    for front in 1..=FRONTS {
        for _ in 0..10 {
            seen.push(number(&client.notification(PROGRESS)));
        }
        cluster.kill(front);
        client.over_http().wait_for_ends();
        let last = client.over_http().last_event();
        // The last part goes through the home itself.
        client.over_http().turn_to([cluster.address((front + 1) % (1 + FRONTS))]);
        client.over_http().listen_after(&last);
    }
    seen.extend(progress_until(&mut client, &id));
    assert_eq!(seen, (1..=90).collect::<Vec<_>>());
}
