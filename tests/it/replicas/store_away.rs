//! A store that is away, paused, full or has forgotten everything, and connections that drop.

use std::time::{Duration, Instant};

use serde_json::json;

use super::between::Line;
use super::streams::{PROGRESS, progress_of};
use super::{Cluster, PING, echo, open, ping, tools, until};
use crate::client::{CAN_ALL, Client, Era, Exchanged, Host, Web};
use crate::harness::TOOLS_CHANGED;
use crate::store::Store;

/// A request of a session at one replica.
fn post(cluster: &Cluster, replica: usize, client: &mut Client, body: &str) -> Exchanged {
    let mut web = Web::new(&cluster.address(replica));
    web.session = client.over_http().session.clone();
    web.exchange("POST", &web.common(), body)
}

fn is_refused(answer: &Exchanged) -> bool {
    answer.status == 503 && answer.headers.get("retry-after").map(String::as_str) == Some("1")
}

/// What holds while the store is away: the session's home is the first replica.
fn check_away(cluster: &Cluster, client: &mut Client, modern: &mut Client) {
    for replica in 0..3 {
        let what = format!("replica {replica} notices");
        until(&what, || cluster.get(replica, "/readyz").body.contains("degraded"));
        assert_eq!(
            (cluster.get(replica, "/readyz").status, cluster.get(replica, "/healthz").status),
            (200, 200)
        );
    }
    let begun = Instant::now();
    for _ in 0..20 {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"dev__a__echo","arguments":{"n":1}}}"#;
        let answer = post(cluster, 0, client, call);
        assert!(answer.status == 200 && !answer.body.contains("isError\":true"), "{answer:?}");
        modern.call("use_tool", json!({"tool": {"toolbox": "dev", "server": "a", "tool": "echo"}})).text();
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "nobody waits for the store: {:?}", begun.elapsed());
    for replica in [1, 2] {
        assert!(is_refused(&post(cluster, replica, client, PING)), "a session of another home");
        let mut web = Web::new(&cluster.address(replica));
        web.session = client.over_http().session.clone();
        let resume = format!("{}Last-Event-ID: 1-1\r\n", web.common());
        assert!(is_refused(&web.exchange("GET", &resume, "")), "its streams cannot be resumed elsewhere");
    }
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"n","version":"1"}}}"#;
    let web = Web::new(&cluster.address(0));
    assert!(is_refused(&web.exchange("POST", "", initialize)));
    let mut web = Web::new(&cluster.address(0));
    web.session = client.over_http().session.clone();
    assert!(is_refused(&web.exchange("DELETE", &web.common(), "")));
    assert_eq!(post(cluster, 0, client, PING).status, 200, "it has not ended");
}

/// Waits until every replica has the store again.
fn until_back(cluster: &Cluster) {
    let took = until("it is back", || {
        (0..3).all(|replica| !cluster.get(replica, "/readyz").body.contains("degraded"))
    });
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn while_the_store_is_silent_homes_go_on_and_afterwards_everything_does() {
    let Some(cluster) = Cluster::start(tools("echo,slow,started")) else { return };
    let mut client = cluster.client_of(0);
    open(&mut client);
    let mut modern = cluster.hosts[0].client(Era::Modern);
    open(&mut modern);
    cluster.store.pause();
    check_away(&cluster, &mut client, &mut modern);
    cluster.store.resume();
    until_back(&cluster);
    for replica in 0..3 {
        assert_eq!(post(&cluster, replica, &mut client, PING).status, 200, "replica {replica}");
    }
    echo(&mut client, 2);
}

#[test]
fn a_store_that_is_full_or_answers_with_errors_is_away_and_costs_no_session() {
    let Some(store) = Store::start() else { return };
    let line = Line::to(store.port());
    let mut cluster = Cluster { store, hosts: Vec::new() };
    (0..3).for_each(|_| cluster.add_at(tools("echo,progress,change"), &line.url()));
    let mut client = cluster.client_of(0);
    client.over_http().turn_to([cluster.address(0)]);
    client.over_http().listen();
    open(&mut client);
    client.notification(TOOLS_CHANGED);
    let mut modern = cluster.hosts[0].client(Era::Modern);
    open(&mut modern);
    let tell = |words: &str| drop(cluster.store.ask(&words.split(' ').collect::<Vec<_>>()));
    let ways = ["it is full", "it can only be read", "it is loading"];
    for (round, what) in ways.into_iter().enumerate() {
        // A stream that is written all the while meets every moment of it.
        let params = r#"{"name":"dev__a__progress","arguments":{"n":60,"ms":10}}"#;
        let id = client.post_with("tools/call", params, r#""progressToken":"p""#);
        client.notification(PROGRESS);
        match round {
            0 => tell("CONFIG SET maxmemory 1 maxmemory-policy noeviction"),
            1 => tell("REPLICAOF 127.0.0.1 1"),
            _ => line.refuse("LOADING the dataset is loading in memory"),
        }
        let tool = json!({"name": format!("more-{round}"), "inputSchema": {"type": "object"}});
        client.call("dev__a__change", json!({"add": [tool.to_string()]})).text();
        client.notification(TOOLS_CHANGED);
        assert_eq!(client.answer(&id).text(), "progress", "{what}");
        assert_eq!(progress_of(&mut client), (2..=60).collect::<Vec<_>>(), "{what}");
        check_away(&cluster, &mut client, &mut modern);
        match round {
            0 => tell("CONFIG SET maxmemory 0"),
            1 => tell("REPLICAOF NO ONE"),
            _ => line.mend(),
        }
        until_back(&cluster);
        for replica in 0..3 {
            assert_eq!(post(&cluster, replica, &mut client, PING).status, 200, "{what}: replica {replica}");
        }
        let mut elsewhere = Web::new(&cluster.address(1));
        elsewhere.session = client.over_http().session.clone();
        echo(&mut Client::of_session(elsewhere, CAN_ALL), 1);
    }
}

/// Waits until every replica has noticed so many times that the store forgot everything; what was on its way then has failed.
fn until_noticed(cluster: &Cluster, times: usize) {
    let count = |host: &Host| host.stderr().matches("the store has lost its data").count();
    until("every replica has noticed", || cluster.hosts.iter().all(|host| count(host) == times));
}

#[test]
fn a_store_that_forgets_ends_the_sessions_and_nothing_else() {
    let mut config = tools("echo,slow,started");
    config["stateKey"] = json!("none");
    let Some(mut cluster) = Cluster::start(config) else { return };
    let mut client = cluster.client_of(0);
    open(&mut client);
    let mut modern = cluster.hosts[0].client(Era::Modern);
    open(&mut modern);
    client.over_http().listen();
    cluster.store.kill();
    check_away(&cluster, &mut client, &mut modern);
    cluster.store.restart();
    until_back(&cluster);
    client.over_http().wait_for_ends();
    until_noticed(&cluster, 1);
    let session = client.over_http().session.clone();
    let took =
        until("it is unknown", || (0..3).all(|replica| ping(&cluster, replica, session.as_deref()) == 404));
    assert!(took < Duration::from_secs(5), "{took:?}");
    // Clients begin anew, also after the data alone was forgotten.
    for round in 0..2 {
        let mut client = cluster.client(Era::Legacy);
        open(&mut client);
        for n in 0..6 {
            echo(&mut client, n);
        }
        cluster.store.flush();
        let session = client.over_http().session.clone();
        let took = until("it is unknown", || {
            (0..3).all(|replica| ping(&cluster, replica, session.as_deref()) == 404)
        });
        assert!(took < Duration::from_secs(5), "{took:?}");
        until_noticed(&cluster, 2 + round);
    }
    modern.call("use_tool", json!({"tool": {"toolbox": "dev", "server": "a", "tool": "echo"}})).text();
}

#[test]
fn a_connection_that_drops_is_made_anew_and_no_client_notices() {
    let Some(cluster) = Cluster::start(tools("echo")) else { return };
    let mut client = cluster.client(Era::Legacy);
    open(&mut client);
    for n in 0..30 {
        if n % 3 == 0 {
            cluster.store.drop_connections();
        }
        echo(&mut client, n);
    }
}

#[test]
fn no_memory_grows_while_the_store_is_away() {
    const MEGABYTE: u64 = 1024 * 1024;
    let Some(cluster) = Cluster::start(tools("echo,progress,change")) else { return };
    let mut client = cluster.client_of(0);
    open(&mut client);
    client.over_http().turn_to([cluster.address(0)]);
    let mut modern = cluster.hosts[0].client(Era::Modern);
    open(&mut modern);
    cluster.store.pause();
    for replica in 0..3 {
        until("it notices", || cluster.get(replica, "/readyz").body.contains("degraded"));
    }
    // Half a megabyte each time: what is refused at other replicas, and what a stream carries at the home.
    let padding = "x".repeat(128 * 1024);
    let refused = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"padding":"{padding}"}}}}"#);
    let params = json!({"name": "dev__a__progress", "arguments": {"n": 3, "extra": format!(r#","padding":"{padding}""#)}});
    let mut work = |rounds: u32| {
        for round in 0..rounds {
            for replica in [1, 2] {
                assert!(is_refused(&post(&cluster, replica, &mut client, &refused)));
            }
            let id = client.post_with("tools/call", &params, r#""progressToken":"p""#);
            assert_eq!(client.answer(&id).text(), "progress");
            assert_eq!(progress_of(&mut client), [1, 2, 3]);
            client.over_http().listen();
            echo(&mut modern, round);
        }
        [0, 1, 2].map(|replica| cluster.hosts[replica].memory())
    };
    // More than what is kept for streams that may be resumed.
    let before = work(40);
    let after = work(80);
    for (replica, (before, after)) in before.iter().zip(after).enumerate() {
        let grown = after.saturating_sub(*before) / MEGABYTE;
        assert!(grown < 16, "replica {replica} has grown by {grown} MB over {} MB", before / MEGABYTE);
    }
    cluster.store.resume();
    until_back(&cluster);
    assert_eq!(post(&cluster, 1, &mut client, PING).status, 200);
}
