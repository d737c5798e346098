//! One replica alone that cannot reach the store.

use serde_json::json;

use super::between::Line;
use super::{Cluster, echo, open, own_tools, ping, until};
use crate::client::{CAN_ALL, Client, Web};
use crate::harness::TOOLS_CHANGED;
use crate::store::Store;

/// The process that serves a session at this replica.
fn process(cluster: &Cluster, replica: usize, session: Option<&str>) -> u64 {
    let mut web = Web::new(&cluster.address(replica));
    web.session = session.map(str::to_owned);
    let mut client = Client::of_session(web, CAN_ALL);
    client.call("dev__a__report", "{}").json()["pid"].as_u64().expect("a number")
}

#[test]
fn a_replica_without_the_store_goes_on_until_the_higher_epoch_counts() {
    let Some(store) = Store::start() else { return };
    let line = Line::to(store.port());
    let mut cluster = Cluster { store, hosts: Vec::new() };
    let config = own_tools("echo,report,slow,started,release");
    cluster.add_at(config.clone(), &line.url());
    cluster.add(config.clone());
    cluster.add(config);
    let mut client = cluster.client_of(0);
    let session = client.over_http().session.clone();
    let mut web = Web::new(&cluster.address(0));
    web.session.clone_from(&session);
    web.listen();
    let mut at_home = Client::of_session(web, CAN_ALL);
    open(&mut at_home);
    at_home.notification(TOOLS_CHANGED);
    // So that no two requests in flight have the same id.
    (0..9).for_each(|n| echo(&mut client, n));
    let first = process(&cluster, 0, session.as_deref());
    assert_eq!(process(&cluster, 1, session.as_deref()), first);
    // One call waits at its home, another one elsewhere.
    let near = at_home.post_call("dev__a__slow", r#"{"key":"near"}"#);
    let far = client.post_call("dev__a__slow", r#"{"key":"far"}"#);
    for key in ["near", "far"] {
        at_home.call("dev__a__started", json!({"key": key})).text();
    }

    line.cut();
    until("it notices", || cluster.get(0, "/readyz").body.contains("degraded"));
    assert!(!cluster.get(1, "/readyz").body.contains("degraded"), "the others have the store");
    assert_eq!(process(&cluster, 0, session.as_deref()), first, "it goes on for its homes");
    let failed = client.answer(&far);
    assert!(failed.raw.contains("may or may not have taken effect"), "{failed:?}");
    // The others take the session over; the replica that is cut off does not know.
    let second = process(&cluster, 1, session.as_deref());
    assert_ne!(second, first);
    assert_eq!(process(&cluster, 2, session.as_deref()), second);
    assert_eq!(process(&cluster, 0, session.as_deref()), first);
    at_home.call("dev__a__release", r#"{"key":"near"}"#).text();
    assert_eq!(at_home.answer(&near).text(), "slow", "it was answered where it was asked");

    line.mend();
    until("it has the store again", || !cluster.get(0, "/readyz").body.contains("degraded"));
    for replica in [0, 1, 2] {
        assert_eq!(process(&cluster, replica, session.as_deref()), second, "at {replica}");
    }
    until("its own process is gone", || cluster.upstreams() == 1);
    assert_eq!(cluster.starts(), 2, "nobody took it back");
    for n in 0..4 {
        echo(&mut client, n);
    }
    for (client, id) in [(&mut at_home, near), (&mut client, far)] {
        let again = client.left().iter().filter(|message| message.id() == id).count();
        assert_eq!(again, 0, "{id} was answered once");
    }
    assert_eq!(ping(&cluster, 0, session.as_deref()), 200);
}
