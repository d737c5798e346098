//! New files and new keys, at one replica after the other.

use serde_json::{Value, json};

use super::{Cluster, KEY, echo, open, tools, until};
use crate::client::{CAN_ALL, Client, Era, Web};
use crate::harness::{Message, dev, fake};
use crate::store::Store;

const NEW_KEY: &str = "another state key of thirty-two bytes or more";
const ASK: &str = r#"{"method":"elicitation/create","params":"{\"message\":\"Who?\"}"}"#;
const ACCEPT: &str = r#"{"action":"accept","content":{"name":"Ann"}}"#;

/// Puts a file in force at a replica. A toolbox is added to it that is seen when it is.
fn put(cluster: &mut Cluster, replica: usize, mut config: Value, mark: &str) {
    config["store"] = json!(cluster.store.url());
    config["toolboxes"][mark] = json!({"description": mark, "mcpServers": {}});
    cluster.hosts[replica].rewrite(&config);
    let mut client = cluster.hosts[replica].client(Era::Modern);
    until("the file is in force", || client.request("tools/list", "{}").raw.contains(mark));
}

#[test]
fn a_session_sees_the_file_of_its_home() {
    let Some(mut cluster) = Cluster::start(tools("echo")) else { return };
    let mut old = cluster.client_of(0);
    open(&mut old);
    let mut config = tools("echo,report");
    config["stateKey"] = json!(KEY);
    put(&mut cluster, 1, config, "marked");
    let mut web = Web::new(&cluster.address(1));
    web.open_session(CAN_ALL);
    let mut new = Client::of_session(web, CAN_ALL);
    open(&mut new);
    for replica in 0..3 {
        for (client, count) in [(&mut old, 2), (&mut new, 3)] {
            client.over_http().turn_to([cluster.address(replica)]);
            assert_eq!(client.tools().len(), count, "at {replica}");
            echo(client, 1);
        }
    }
    // It moves to another file with its home.
    cluster.kill(0);
    old.over_http().turn_to([cluster.address(1)]);
    assert_eq!(old.tools().len(), 3);
}

#[test]
fn a_key_is_changed_without_loss_of_a_session_a_state_or_a_view() {
    let config = |keys: &[&str]| {
        let mut config = dev("dynamic", json!({"a": fake("--with echo,ask --era modern")}));
        config["stateKey"] = json!(keys);
        config
    };
    let Some(mut cluster) = Cluster::start(config(&[KEY])) else { return };
    let mut session = cluster.client_of(0);
    open(&mut session);
    let mut modern = cluster.client(Era::Modern);
    open(&mut modern);
    for keys in [&[KEY, NEW_KEY][..], &[NEW_KEY, KEY], &[NEW_KEY]] {
        modern.over_http().turn_to([cluster.address(0)]);
        let asked = modern.call("dev__a__ask", ASK);
        assert_eq!(asked.result()["resultType"], "input_required", "{asked:?}");
        for replica in 0..3 {
            put(&mut cluster, replica, config(keys), &format!("marked-{}-{}", keys.len(), keys[0].len()));
            session.over_http().turn_to(cluster.addresses());
            modern.over_http().turn_to(cluster.addresses());
            for n in 0..3 {
                echo(&mut session, n);
                echo(&mut modern, n);
            }
        }
        modern.over_http().turn_to([cluster.address(2)]);
        let id = modern.post_retry("dev__a__ask", ASK, &asked, ACCEPT);
        assert_eq!(modern.answer(&id).text(), format!(r#"{{"result":{ACCEPT}}}"#), "{keys:?}");
    }
    // Whoever has the new key alone finds everything in the store.
    cluster.kill(0);
    session.over_http().turn_to([cluster.address(1), cluster.address(2)]);
    for n in 0..2 {
        echo(&mut session, n);
    }
    cluster.add(config(&[NEW_KEY]));
    modern.over_http().turn_to([cluster.address(3)]);
    modern.tools();
    let running = cluster.hosts[3].lab.processes();
    assert!(
        running.iter().any(|(_, line)| line.contains("fake-upstream")),
        "what was open is open: {running:?}"
    );
}

/// Has a long result kept, and gives its id.
fn keep(client: &mut Client) -> String {
    let answer = client.call("dev__a__large", r#"{"bytes":5000}"#);
    let kept = &answer.result()["_meta"]["mcp-workbench/offloaded"];
    kept["id"].as_str().unwrap_or_else(|| panic!("no id: {answer:?}")).to_owned()
}

#[test]
fn a_kept_result_is_read_as_long_as_the_key_that_sealed_it_is_in_the_list() {
    let config = |keys: &[&str]| {
        let mut config = tools("echo,large");
        (config["offloadOver"], config["stateKey"]) = (json!(4000), json!(keys));
        config
    };
    let Some(mut cluster) = Cluster::start(config(&[KEY])) else { return };
    let mut clients = [cluster.client_of(0), cluster.client(Era::Modern)];
    clients.iter_mut().for_each(open);
    let read = |cluster: &Cluster, client: &mut Client, id: &str| {
        let read = |replica: usize| {
            client.over_http().turn_to([cluster.address(replica)]);
            client.call("read_result", json!({"id": id, "bytes": "4990-"}))
        };
        (0..3).map(read).collect::<Vec<_>>()
    };
    let is_whole = |answer: &Message| answer.result()["content"][1]["text"] == "x".repeat(10);
    let old = clients.each_mut().map(keep);
    let mut new = None;
    for keys in [&[KEY, NEW_KEY][..], &[NEW_KEY, KEY], &[NEW_KEY]] {
        for replica in 0..3 {
            put(&mut cluster, replica, config(keys), &format!("marked-{}-{}", keys.len(), keys[0].len()));
        }
        for (at, client) in clients.iter_mut().enumerate() {
            let answers = read(&cluster, client, &old[at]);
            match keys.contains(&KEY) {
                true => assert!(answers.iter().all(is_whole), "{keys:?}: {answers:?}"),
                false => assert!(
                    answers.iter().all(|answer| answer.failure().contains("No result")),
                    "{keys:?}: {answers:?}"
                ),
            }
        }
        let kept = new.get_or_insert_with(|| clients.each_mut().map(keep));
        if keys[0] == KEY {
            new = None;
            continue;
        }
        for (client, id) in clients.iter_mut().zip(kept) {
            let answers = read(&cluster, client, id);
            assert!(answers.iter().all(is_whole), "{keys:?}: {answers:?}");
        }
    }
}

#[test]
fn what_was_sealed_with_a_key_that_is_gone_is_as_good_as_absent() {
    let Some(store) = Store::start() else { return };
    let mut cluster = Cluster { store, hosts: Vec::new() };
    for key in [KEY, NEW_KEY] {
        let mut own = fake("--with echo,large");
        own["isolation"] = json!("session");
        let mut config = dev("dynamic", json!({"a": own}));
        (config["stateKey"], config["offloadOver"]) = (json!(key), json!(4000));
        cluster.add(config);
        let replica = cluster.hosts.len() - 1;
        let mut client = cluster.hosts[replica].client(Era::Modern);
        open(&mut client);
        echo(&mut client, 1);
        client.call("dev__a__large", r#"{"bytes":5000}"#).text();
        cluster.kill(replica);
    }
}
