//! What an answer has promised holds although the replica that gave it dies right afterwards, and what reaches the model is
//! the same at every replica.

use serde_json::json;

use super::{Cluster, open, tools};
use crate::client::Era;
use crate::harness::Lab;
use crate::store::Store;

#[test]
fn what_was_opened_is_open_although_the_home_dies_right_after_its_answer() {
    let Some(mut cluster) = Cluster::start(tools("echo")) else { return };
    let mut client = cluster.client_of(0);
    client.over_http().turn_to([cluster.address(0)]);
    open(&mut client);
    cluster.kill(0);
    client.over_http().turn_to([cluster.address(1), cluster.address(2)]);
    assert!(client.tools().iter().any(|tool| tool == "dev__a__echo"), "{:?}", client.tools());
}

#[test]
fn long_results_of_a_session_outlive_its_home_and_end_with_the_session() {
    let mut config = tools("echo,large");
    config["offloadOver"] = json!(4000);
    let Some(mut cluster) = Cluster::start(config) else { return };
    let mut client = cluster.client_of(0);
    open(&mut client);
    let answer = client.call("dev__a__large", json!({"bytes": 10_000}));
    let kept = &answer.result()["_meta"]["mcp-workbench/offloaded"];
    let id = kept["id"].as_str().expect("an id").to_owned();
    let results = |cluster: &Cluster| {
        let entries = cluster.store.entries();
        entries.into_iter().filter(|entry| entry.key.contains(":result:")).collect::<Vec<_>>()
    };
    let stored = results(&cluster);
    assert_eq!(stored.len(), 2, "a list and a piece: {stored:?}");
    for entry in &stored {
        assert!(!entry.content.contains("xxxxxxxx") && !entry.content.contains(&id), "{}", entry.key);
        assert!(!entry.key.contains(&id) && (1..=3_600_000).contains(&entry.expires), "{entry:?}");
    }
    cluster.kill(0);
    client.over_http().turn_to([cluster.address(1), cluster.address(2)]);
    for _ in 0..2 {
        let read = client.call("read_result", json!({"id": id, "bytes": "9990-"}));
        assert_eq!(read.result()["content"][1]["text"], "x".repeat(10), "{read:?}");
    }
    let mut other = cluster.hosts[1].client(Era::Legacy);
    let foreign = other.call("read_result", json!({"id": id}));
    assert!(foreign.failure().contains("No result"), "{foreign:?}");
    let web = client.over_http();
    assert_eq!(web.exchange("DELETE", &web.common(), "").status, 204);
    assert_eq!(results(&cluster).len(), 0, "they end with their session");
}

#[test]
fn what_nobody_approved_is_withheld_at_every_replica() {
    let Some(store) = Store::start() else { return };
    let mut cluster = Cluster { store, hosts: Vec::new() };
    let url = cluster.store.url();
    for _ in 0..2 {
        let lab = Lab::new();
        lab.write("workbench-config.lock", r#"{"lockVersion": 1, "toolboxes": {}}"#);
        cluster.add_with(lab, tools("echo"), &url, |_| {});
    }
    for mut client in [cluster.client_of(0), cluster.client_of(1), cluster.client(Era::Modern)] {
        // Each request of the modern client comes to the other replica.
        for _ in 0..2 {
            let opened = client.call("open_toolbox", json!({"toolbox_name": "dev"})).json();
            assert_eq!(opened["tools_withheld"], 1, "{opened}");
            assert!(!client.tools().iter().any(|tool| tool.contains("echo")), "{:?}", client.tools());
            let refused = client.call("dev__a__echo", "{}");
            assert!(refused.failure().contains("approved in workbench-config.lock"), "{refused:?}");
        }
    }
}
