//! Clients that others wrote, each request of which goes to the next replica.

#![allow(deprecated, reason = "the legacy era is deprecated in rmcp")]
#![allow(clippy::disallowed_methods, reason = "tests start the programs they need")]

use std::path::{Path, PathBuf};
use std::process::Command;

use rmcp::ClientServiceExt as _;
use rmcp::model::{SubscribeRequestParams, SubscriptionFilter};
use rmcp::transport::StreamableHttpClientTransport;
use serde_json::{Value, json};
use tokio::sync::mpsc::channel;

use super::between::Balancer;
use super::{Cluster, until};
use crate::client::Era;
use crate::harness::{Lab, dev, fake};
use crate::independent::{Ears, Heard, QUESTION, beginning, params, within};
use crate::npm;
use crate::store::skipped;

const URI: &str = "workbench://dev/a/fake://resource/1";

/// Replicas with a server for each session or caller, behind a balancer.
fn balanced() -> Option<(Cluster, Balancer)> {
    let mut server = fake("--with echo,update,ask --resources 1");
    server["isolation"] = json!("session");
    let cluster = Cluster::start(dev("dynamic", json!({"a": server})))?;
    let balancer = Balancer::before(cluster.addresses());
    Some((cluster, balancer))
}

/// Every replica was asked, and nothing is left of the session.
fn check_end(cluster: &Cluster, balancer: &Balancer) {
    let served = balancer.served();
    assert!(served.iter().all(|count| *count >= 3), "{served:?}");
    until("the session has ended", || {
        let entries = cluster.store.entries();
        let sessions: Vec<_> = entries.iter().filter(|entry| entry.key.contains(":session:")).collect();
        sessions.len() == 1 && sessions[0].expires <= 60_000 && cluster.upstreams() == 0
    });
}

async fn drive_rmcp(url: String, era: Era) {
    let (mouth, mut heard) = channel(100);
    let transport = StreamableHttpClientTransport::from_uri(url);
    let begun = within(Ears(mouth.clone()).serve_with_lifecycle(transport, beginning(era))).await;
    let mut client = begun.expect("they understand each other");
    let call = async |tool: &str, arguments: Value| {
        let result = within(client.call_tool(params(tool, &arguments))).await.expect("an answer");
        let result = serde_json::to_value(result).expect("it came as JSON");
        assert_ne!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().expect("a text").to_owned()
    };
    call("open_toolbox", json!({"toolbox_name": "dev"})).await;
    match era {
        Era::Legacy => {
            assert_eq!(within(heard.recv()).await, Some(Heard::ToolsChanged));
            within(client.subscribe(SubscribeRequestParams::new(URI))).await.expect("subscribed");
        }
        Era::Modern => {
            let filter = SubscriptionFilter::builder().resource_subscription(URI).build();
            let mut subscription = within(client.listen(filter)).await.expect("subscribed");
            tokio::spawn(async move {
                while let Ok(Some(_)) = subscription.next().await {
                    drop(mouth.send(Heard::Updated(URI.to_owned())).await);
                }
            });
        }
    }
    for n in 0..6 {
        assert!(call("dev__a__echo", json!({"n": n})).await.contains(&format!(r#""n":{n}"#)));
    }
    let asked = json!({"method": "elicitation/create", "params": QUESTION});
    assert!(call("dev__a__ask", asked).await.contains(r#""name":"Ann""#));
    while heard.is_empty() {
        // The server's own subscription is made beside the answer to ours.
        call("dev__a__update", json!({"uri": "fake://resource/1"})).await;
    }
    assert_eq!(heard.recv().await, Some(Heard::Updated(URI.to_owned())));
    within(client.close()).await.expect("no panic");
}

#[test]
fn rmcp_meets_one_server_in_either_era() {
    for era in [Era::Legacy, Era::Modern] {
        let Some((cluster, balancer)) = balanced() else { return };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(drive_rmcp(balancer.url.clone(), era));
        match era {
            Era::Legacy => check_end(&cluster, &balancer),
            Era::Modern => assert!(balancer.served().iter().all(|count| *count >= 3)),
        }
    }
}

#[test]
fn the_sdk_for_typescript_meets_one_server() {
    let Some((cluster, balancer)) = balanced() else { return };
    npm::install("tests/sdks");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdks/session.mjs");
    let lab = Lab::new();
    let finished = lab.run(Command::new("node").args([script, &balancer.url, URI]).current_dir(&lab.dir));
    assert_eq!((finished.code, finished.stdout.trim()), (Some(0), "all is well"), "{}", finished.stderr);
    check_end(&cluster, &balancer);
}

/// The SDK for Python, as its committed list says, or why there is none. It is installed once for all runs of a checkout.
fn python_sdk() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (place, list) = (root.join("target/wheels/sdk-2"), root.join("tests/sdks/requirements-2.txt"));
    let wanted = std::fs::read_to_string(&list).expect("it is committed");
    let is_installed = || std::fs::read_to_string(place.join("installed-from")).is_ok_and(|it| it == wanted);
    if is_installed() {
        return Ok(place);
    }
    let lab = Lab::new();
    let aside = root.join(format!("target/wheels/sdk-2.{}", std::process::id()));
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary=:all:",
        "--target",
    ]);
    let output = pip.arg(&aside).arg("--requirement").arg(list).current_dir(&lab.dir).output();
    let output = output.map_err(|error| format!("python3: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    std::fs::write(aside.join("installed-from"), &wanted).map_err(|error| error.to_string())?;
    // Of another list, or not there.
    let _ = std::fs::remove_dir_all(&place);
    std::fs::rename(&aside, &place).map_err(|error| error.to_string())?;
    Ok(place)
}

#[test]
fn the_sdk_for_python_meets_one_server_in_either_era() {
    let sdk = match python_sdk() {
        Ok(sdk) => sdk,
        Err(reason) => return skipped(&format!("no SDK for Python: {reason}")),
    };
    for mode in ["legacy", "auto"] {
        let Some((cluster, balancer)) = balanced() else { return };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdks/session.py");
        let lab = Lab::new();
        let mut command = Command::new("python3");
        command.args([script, &balancer.url, URI, mode]).env("PYTHONPATH", &sdk).current_dir(&lab.dir);
        let finished = lab.run(&mut command);
        assert_eq!((finished.code, finished.stdout.trim()), (Some(0), "all is well"), "{}", finished.stderr);
        match mode {
            "legacy" => check_end(&cluster, &balancer),
            _ => assert!(balancer.served().iter().all(|count| *count >= 3)),
        }
    }
}
