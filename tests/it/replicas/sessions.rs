//! Legacy sessions at any replica: opened, used, ended, owned and forgotten.

use std::time::Duration;

use serde_json::json;

use super::{Cluster, PING, echo, open, own_tools, ping, tools, until};
use crate::client::{Client, Era, Web};
use crate::harness::{TOOLS_CHANGED, dev, fake};
use crate::store::Store;

#[test]
fn a_session_is_one_at_all_replicas_and_has_its_own_server_once() {
    let Some(cluster) = Cluster::start(own_tools("echo,report,notify")) else { return };
    let mut client = cluster.client(Era::Legacy);
    open(&mut client);
    client.notification(TOOLS_CHANGED);
    assert_eq!(client.tools().len(), 4, "the meta-tool and three");
    // Whatever the server remembers, it remembers for every request.
    for n in 0..9 {
        echo(&mut client, n);
    }
    assert_eq!(cluster.starts(), 1, "it runs once, at its session's home");
    let mut other = cluster.client(Era::Legacy);
    assert_eq!(other.tools().len(), 1, "another session has nothing open");
    // Ended at one, it is unknown at every other.
    let web = client.over_http();
    let session = web.session.clone();
    assert_eq!(web.exchange("DELETE", &web.common(), "").status, 204);
    for replica in 0..3 {
        assert_eq!(ping(&cluster, replica, session.as_deref()), 404, "replica {replica}");
    }
    until("its server is gone", || cluster.upstreams() == 0);
    assert_eq!(other.request("ping", "{}").result(), json!({}));
}

#[test]
fn a_session_belongs_to_its_token_and_path_at_every_replica() {
    let mut config = tools("echo");
    config["auth"] =
        json!({"tokens": [{"name": "a", "token": "token-of-a"}, {"name": "b", "token": "token-of-b"}]});
    let Some(cluster) = Cluster::start(config) else { return };
    let mut owner = cluster.hosts[0].client_with(Era::Legacy, "token-of-a");
    for replica in 0..3 {
        for (token, path, expected) in [
            ("token-of-a", "/mcp", 200),
            ("token-of-b", "/mcp", 404),
            ("token-of-a", "/mcp/dev", 404),
            ("token-of-c", "/mcp", 401),
        ] {
            let mut web = Web::new(&cluster.address(replica));
            (web.token, web.path) = (Some(token.to_owned()), path.to_owned());
            web.session = owner.over_http().session.clone();
            let status = web.exchange("POST", &web.common(), PING).status;
            assert_eq!(status, expected, "{token} {path} at {replica}");
        }
    }
    let stored: String =
        cluster.store.entries().iter().map(|entry| format!("{}{}", entry.key, entry.content)).collect();
    assert!(!stored.contains("token-of"));
}

#[test]
fn an_id_in_flight_is_refused_at_every_replica() {
    let Some(cluster) = Cluster::start(tools("slow,started,release")) else { return };
    let mut client = cluster.client(Era::Legacy);
    open(&mut client);
    let slow = client.post_call("dev__a__slow", r#"{"key":"k"}"#);
    client.call("dev__a__started", r#"{"key":"k"}"#).text();
    let again = format!(r#"{{"jsonrpc":"2.0","id":{slow},"method":"ping"}}"#);
    for _ in 0..3 {
        let web = client.over_http();
        let refused = web.exchange("POST", &web.common(), &again);
        assert!(refused.body.contains(r#""id":null"#), "{refused:?}");
    }
    client.call("dev__a__release", r#"{"key":"k"}"#).text();
    assert_eq!(client.answer(&slow).text(), "slow");
}

#[test]
fn what_any_replica_hears_keeps_a_session_alive_and_silence_everywhere_ends_it() {
    let mut config = tools("echo");
    config["sessionIdleTimeout"] = json!(3);
    let Some(cluster) = Cluster::start(config) else { return };
    let mut client: Client = cluster.client_of(0);
    let session = client.over_http().session.clone();
    // Another one has a stream elsewhere, and says nothing.
    let mut reader = cluster.client_of(0);
    reader.over_http().listen();
    // Five seconds of requests that all arrive elsewhere.
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(client.request("ping", "{}").result(), json!({}));
    }
    // To ask whether it has ended would keep it alive.
    std::thread::sleep(Duration::from_secs(5));
    let gone = (0..3).map(|replica| ping(&cluster, replica, session.as_deref()));
    assert_eq!(gone.collect::<Vec<_>>(), [404, 404, 404]);
    assert_eq!(reader.request("ping", "{}").result(), json!({}));
}

#[test]
fn gateways_with_other_prefixes_share_a_store_and_nothing_else() {
    let Some(store) = Store::start() else { return };
    let mut cluster = Cluster { store, hosts: Vec::new() };
    for prefix in ["one", "two", "one"] {
        let mut config = tools("echo");
        config["storePrefix"] = json!(prefix);
        cluster.add(config);
    }
    let mut web = Web::new(&cluster.address(0));
    web.open_session("{}");
    let statuses = [0, 1, 2].map(|replica| ping(&cluster, replica, web.session.as_deref()));
    assert_eq!(statuses, [200, 404, 200]);
    let entries = cluster.store.entries();
    let of = |prefix: &str| entries.iter().filter(|entry| entry.key.starts_with(prefix)).count();
    assert_eq!(of("mcpwb:{one}:") + of("mcpwb:{two}:"), entries.len(), "{entries:?}");
    assert!(of("mcpwb:{two}:") > 0);
}

#[test]
fn the_store_shows_ids_of_replicas_counters_and_times_and_nothing_else() {
    let Some(cluster) = Cluster::start(dev("dynamic", json!({"secretive": fake("--with echo,progress")})))
    else {
        return;
    };
    let mut client = cluster.client(Era::Legacy);
    open(&mut client);
    for n in 0..6 {
        client.call("dev__secretive__echo", json!({"hidden": n})).text();
    }
    let meta = r#""progressToken":"p""#;
    let id =
        client.post_with("tools/call", r#"{"name":"dev__secretive__progress","arguments":{"n":3}}"#, meta);
    client.answer(&id);
    let session = client.over_http().session.clone().expect("one");
    let entries = cluster.store.entries();
    assert!(entries.iter().any(|entry| entry.key.starts_with("mcpwb:{default}:session:")), "{entries:?}");
    assert!(!entries.iter().any(|entry| entry.key.ends_with(":key")), "the file has one: {entries:?}");
    for entry in &entries {
        assert!(entry.key.starts_with("mcpwb:{default}:"), "{entry:?}");
        assert!((1..=30 * 24 * 60 * 60 * 1000).contains(&entry.expires), "{entry:?}");
        for word in [&*session, "secretive", "hidden", "progress", "dev__", "test-client", super::KEY] {
            assert!(!entry.content.contains(word) && !entry.key.contains(word), "{word}: {entry:?}");
        }
    }
    let web = client.over_http();
    assert_eq!(web.exchange("DELETE", &web.common(), "").status, 204);
    until("its keys are gone", || {
        let left = cluster.store.entries();
        let of_session =
            |entry: &&crate::store::Entry| entry.key.contains(":session:") || entry.key.contains(":log:");
        let left: Vec<_> = left.iter().filter(of_session).collect();
        left.len() == 1 && left[0].expires <= 60_000
    });
}

#[test]
fn replicas_without_a_key_agree_on_one() {
    let mut config = tools("echo");
    config["stateKey"] = json!("none");
    let Some(cluster) = Cluster::start(config) else { return };
    let mut client = cluster.client(Era::Legacy);
    open(&mut client);
    for n in 0..6 {
        echo(&mut client, n);
    }
}
