//! Replicas that are killed, drained or paused.

use serde_json::json;

use super::{Cluster, echo, open, own_tools, ping, said, tools, until};
use crate::client::{CAN_ALL, Client, Era, Web};
use crate::harness::{Message, TOOLS_CHANGED, dev, fake};

const SLOW: &str = r#"{"key":"k"}"#;

fn died(answer: &Message) -> bool {
    said(answer).contains("may or may not have taken effect")
}

#[test]
fn when_its_home_is_killed_a_session_goes_on_elsewhere_and_only_calls_in_flight_fail_once() {
    let Some(mut cluster) = Cluster::start(own_tools("echo,slow,started")) else { return };
    let mut client = cluster.client_of(0);
    client.over_http().listen();
    open(&mut client);
    client.notification(TOOLS_CHANGED);
    let before = client.tools();
    // One call waits for plain JSON, at another replica than the home.
    let slow = client.post_call("dev__a__slow", SLOW);
    client.call("dev__a__started", SLOW).text();
    cluster.kill(0);
    let failed = client.answer(&slow);
    assert!(failed.is_error() && died(&failed), "{failed:?}");
    // Where its server takes long to start, the call has the name by which it was called.
    let by_name = ["[dev/a/slow] ", "[dev__a__slow] "].map(|name| failed.text_block(0).starts_with(name));
    assert!(by_name.contains(&true), "as if its server had died: {failed:?}");
    assert_eq!(client.tools(), before, "what was open is open, under the same names");
    echo(&mut client, 1);
    assert_eq!(cluster.starts(), 2, "its server was started once more");
    let twice = client.left().iter().filter(|message| message.id() == slow).count();
    assert_eq!(twice, 0, "it failed once");
    // The stream that was at another replica goes on as well.
    client.call("dev__a__echo", "{}").text();
    let session = client.over_http().session.clone();
    for replica in [1, 2] {
        assert_eq!(ping(&cluster, replica, session.as_deref()), 200);
    }
}

#[test]
fn a_replica_that_holds_the_stream_of_a_session_becomes_its_home_at_once() {
    let Some(mut cluster) = Cluster::start(own_tools("echo")) else { return };
    let mut client = cluster.client_of(0);
    client.over_http().turn_to([cluster.address(1)]);
    client.over_http().listen();
    let entries = cluster.store.entries();
    let entry = entries.iter().find(|entry| entry.key.contains(":session:")).expect("one session");
    let owner = |cluster: &Cluster| cluster.store.ask(&["HGET", &entry.key, "owner"]);
    let first = owner(&cluster);
    cluster.kill(0);
    // Nobody asks for anything, and nothing has come on the stream.
    until("it has another home", || owner(&cluster) != first);
    client.over_http().turn_to([cluster.address(2)]);
    open(&mut client);
    client.notification(TOOLS_CHANGED);
    assert_eq!(cluster.hosts[1].lab.starts("starts"), 1, "its server runs where its stream is");
}

#[test]
fn a_request_that_comes_after_the_death_waits_for_the_new_home_and_is_served() {
    let Some(mut cluster) = Cluster::start(tools("echo")) else { return };
    let mut client = cluster.client_of(0);
    open(&mut client);
    cluster.kill(0);
    for n in 0..4 {
        echo(&mut client, n);
    }
}

#[test]
fn a_stream_whose_home_is_killed_ends_with_the_failure_of_its_call_wherever_it_is_resumed() {
    for resumed in [false, true] {
        let Some(mut cluster) = Cluster::start(tools("ask,slow,started")) else { return };
        let mut client = cluster.client_of(0);
        open(&mut client);
        if resumed {
            client.over_http().turn_to([cluster.address(0)]);
        }
        let asking = client.post_call("dev__a__ask", r#"{"method":"roots/list"}"#);
        let question = client.take("a question", |message| message.method() == "roots/list");
        cluster.kill(0);
        client.over_http().turn_to([cluster.address(1), cluster.address(2)]);
        if resumed {
            let last = client.over_http().last_event();
            client.over_http().listen_after(&last);
        }
        let failed = client.answer(&asking);
        assert!(died(&failed), "{failed:?}");
        assert!(client.left().is_empty(), "nothing came twice: {:?}", client.left());
        client.reply(&question, r#""result":{"roots":[]}"#);
        assert_eq!(client.request("ping", "{}").result(), json!({}));
    }
}

#[test]
fn a_draining_replica_finishes_its_calls_and_loses_no_session() {
    let Some(mut cluster) = Cluster::start(tools("slow,started,release,echo")) else { return };
    let mut clients: Vec<Client> = (0..3).map(|_| cluster.client_of(0)).collect();
    clients.iter_mut().for_each(open);
    let mut reader = cluster.client_of(0);
    reader.over_http().turn_to([cluster.address(0)]);
    reader.over_http().listen();
    let slow: Vec<_> = clients
        .iter_mut()
        .map(|client| {
            let slow = client.post_call("dev__a__slow", r#"{"key":"k","ms":1000}"#);
            client.call("dev__a__started", r#"{"key":"k"}"#).text();
            slow
        })
        .collect();
    cluster.hosts[0].signal("TERM");
    until("it drains", || cluster.get(0, "/readyz").status == 503);
    // Its streams end, and are resumed elsewhere.
    reader.over_http().wait_for_ends();
    reader.over_http().turn_to([cluster.address(1)]);
    let last = reader.over_http().last_event();
    reader.over_http().listen_after(&last);
    open(&mut reader);
    reader.notification(TOOLS_CHANGED);
    // The sessions are elsewhere at once.
    for client in &mut clients {
        echo(client, 1);
    }
    for (client, slow) in clients.iter_mut().zip(&slow) {
        assert_eq!(client.answer(slow).text(), "slow", "it had its time");
    }
    assert_eq!(cluster.hosts[0].wait().code(), Some(0));
    for client in &mut clients {
        echo(client, 2);
    }
}

#[test]
fn a_rolling_restart_loses_no_session_and_fails_no_call() {
    let config = tools("slow,started,release,echo");
    let Some(mut cluster) = Cluster::start(config.clone()) else { return };
    let mut clients: Vec<Client> = (0..3).map(|home| cluster.client_of(home)).collect();
    clients.iter_mut().for_each(open);
    for old in 0..3 {
        cluster.add(config.clone());
        let key = json!({"key": old.to_string()});
        let slow: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                client.over_http().turn_to(cluster.addresses().split_off(old));
                let slow = client.post_call("dev__a__slow", json!({"key": old.to_string(), "ms": 1000}));
                client.call("dev__a__started", &key).text();
                slow
            })
            .collect();
        cluster.hosts[old].signal("TERM");
        until("it drains", || cluster.get(old, "/readyz").status == 503);
        for (client, slow) in clients.iter_mut().zip(&slow) {
            client.over_http().turn_to(cluster.addresses().split_off(old + 1));
            (0..3).for_each(|n| echo(client, n));
            assert_eq!(client.answer(slow).text(), "slow");
        }
        assert_eq!(cluster.hosts[old].wait().code(), Some(0));
    }
}

#[test]
fn a_replica_that_was_paused_gives_up_what_others_have_taken() {
    let Some(cluster) = Cluster::start(own_tools("echo")) else { return };
    let mut client = cluster.client_of(0);
    open(&mut client);
    let session = client.over_http().session.clone();
    let one = cluster.upstreams();
    cluster.hosts[0].signal("STOP");
    // Another becomes the home.
    echo(&mut client, 1);
    // A request waits at the paused one, which is the first thing that it sees.
    let mut web = Web::new(&cluster.address(0));
    web.session.clone_from(&session);
    let mut late = Client::of_session(web, CAN_ALL);
    let id = late.post_call("dev__a__echo", r#"{"n":2}"#);
    cluster.hosts[0].signal("CONT");
    assert_eq!(late.answer(&id).json()["arguments"], json!({"n": 2}));
    until("its own server is gone", || cluster.upstreams() == one);
    let statuses: Vec<_> = (0..3).map(|replica| ping(&cluster, replica, session.as_deref())).collect();
    assert_eq!(statuses, [200, 200, 200]);
}

#[test]
fn a_new_home_opens_in_the_same_order_sets_the_log_level_and_subscribes() {
    let own = |resources: u8| {
        let mut server = fake(&format!("--with report --resources {resources}"));
        server["isolation"] = json!("session");
        json!({"mcpServers": {"a": server}})
    };
    let config =
        json!({"toolMode": "dynamic", "toolboxes": {"first": own(1), "second": own(2), "third": own(0)}});
    let Some(mut cluster) = Cluster::start(config) else { return };
    let mut client = cluster.client_of(0);
    for toolbox in ["third", "first", "second"] {
        client.call("open_toolbox", json!({"toolbox_name": toolbox})).text();
    }
    assert_eq!(client.request("logging/setLevel", r#"{"level":"warning"}"#).result(), json!({}));
    let resources = client.request("resources/list", "{}").names("resources").len();
    assert_eq!(resources, 3);
    for uri in ["workbench://second/a/fake://resource/2", "workbench://first/a/fake://resource/1"] {
        client.subscribe(uri);
    }
    let report = |client: &mut Client, toolbox: &str| {
        let report = client.call(&format!("{toolbox}__a__report"), "{}").json();
        (report["level"].clone(), report["subscriptions"].clone())
    };
    let tools = client.tools();
    assert!(tools[1].starts_with("third") && tools[3].starts_with("second"), "{tools:?}");
    let before = ["first", "second"].map(|toolbox| report(&mut client, toolbox));
    assert_eq!(before[0], (json!({"level": "warning"}), json!(["fake://resource/1"])));
    assert_eq!(before[1].1, json!(["fake://resource/2"]));
    for (killed, rest) in [(0, &[1, 2][..]), (1, &[2])] {
        // Whichever of them is asked first becomes the home.
        client.over_http().turn_to([cluster.address(rest[0])]);
        cluster.kill(killed);
        assert_eq!(client.tools(), tools);
        for (toolbox, before) in ["first", "second"].iter().zip(&before) {
            client.until("it is told as the first one was", |client| report(client, toolbox) == *before);
        }
    }
}

#[test]
fn subscriptions_move_with_the_session() {
    let config = dev("dynamic", json!({"a": fake("--with echo,update --resources 1")}));
    let Some(mut cluster) = Cluster::start(config) else { return };
    let mut client = cluster.client(Era::Legacy);
    open(&mut client);
    let uri = client.request("resources/list", "{}").result()["resources"][0]["uri"].clone();
    let uri = uri.as_str().expect("a text");
    client.subscribe(uri);
    // Whichever is the home, the session outlives the first two.
    for replica in [0, 1] {
        cluster.kill(replica);
        let rest = (replica + 1..3).map(|replica| cluster.address(replica)).collect::<Vec<_>>();
        client.over_http().turn_to(rest);
        echo(&mut client, 1);
    }
    client.over_http().listen();
    let own = uri.strip_prefix("workbench://dev/a/").expect("our prefix");
    client.call("dev__a__update", json!({"uri": own})).text();
    let updated = client.notification("notifications/resources/updated");
    assert_eq!(updated.value()["params"]["uri"], uri);
}
