//! Starting with a store: users, sockets, and stores that cannot be used.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};

use super::{echo, open};
use crate::client::{Era, Host};
use crate::harness::{Finished, Gateway, Lab, dev, fake};
use crate::store::Store;

pub(super) fn config(store: &str) -> Value {
    let mut config = dev("dynamic", json!({"a": fake("--with echo")}));
    config["store"] = json!(store);
    config
}

/// Serves with this store until that ends by itself.
fn serve(store: &str) -> Finished {
    serve_with(&Lab::new(), &config(store), |_| {})
}

/// As [`serve`], with a changed command.
pub(super) fn serve_with(lab: &Lab, config: &Value, change: impl FnOnce(&mut Command)) -> Finished {
    let path = lab.write("workbench-config.json", &lab.fill(&config.to_string()));
    let mut command = lab.command();
    command.arg("--config").arg(path).args(["serve", "--http", "127.0.0.1:0"]);
    change(&mut command);
    lab.run(&mut command)
}

#[test]
fn a_store_that_cannot_be_used_is_status_4_and_says_why_without_the_password() {
    let Some(store) = Store::start() else { return };
    store.ask(&["CONFIG", "SET", "requirepass", "right-password"]);
    let address = store.address();
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("its address");
    // A server that is one of a cluster.
    let cluster = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let moved = cluster.local_addr().expect("its address");
    std::thread::spawn(move || {
        for mut stream in cluster.incoming().flatten() {
            std::thread::spawn(move || {
                let mut request = [0; 64 * 1024];
                while stream.read(&mut request).is_ok_and(|read| read > 0) {
                    let _ = stream.write_all(b"-MOVED 1234 127.0.0.1:7001\r\n");
                }
            });
        }
    });
    for (url, address, words) in [
        (format!("redis://:wrong-password@{address}"), address.clone(), "percent-encoded"),
        (format!("redis://{address}"), address.clone(), "percent-encoded"),
        (format!("redis://:right-password@{address}/99"), address.clone(), "database"),
        (format!("redis://{moved}"), moved.to_string(), "cluster"),
        (format!("redis://:wrong-password@{nobody}"), nobody.to_string(), "start the store"),
    ] {
        let Finished { code, stdout, stderr } = serve(&url);
        assert_eq!(code, Some(4), "{url}: {stderr}");
        assert!(stderr.contains(&address) && stderr.contains(words), "{url}: {stderr}");
        assert!(!stderr.contains("-password") && stdout.is_empty(), "{stderr}");
    }
}

#[test]
fn a_user_with_few_rights_and_a_socket_suffice_on_the_oldest_store_too() {
    for store in [Store::start(), Store::oldest()].into_iter().flatten() {
        let rights = "~mcpwb:{default}:* &mcpwb:{default}:* +@all -@admin -@dangerous";
        // Redis 6.2 gives a new user every channel.
        let mut words = vec!["ACL", "SETUSER", "gateway", "on", ">p@ss word", "resetchannels"];
        words.extend(rights.split(' '));
        store.ask(&words);
        let socket = store.socket();
        for url in [
            format!("valkey://gateway:p%40ss%20word@{}/0", store.address()),
            format!("unix://{}?user=gateway&pass=p%40ss%20word&db=0", socket.display()),
        ] {
            let hosts = [(); 2].map(|()| {
                Host::new(Gateway::spawn_with(Lab::new(), config(&url), |command| {
                    command.args(["serve", "--http", "127.0.0.1:0"]);
                }))
            });
            let mut web = crate::client::Web::among([hosts[0].address.clone(), hosts[1].address.clone()]);
            web.open_session("{}");
            let mut client = crate::client::Client::of_session(web, "{}");
            open(&mut client);
            for n in 0..4 {
                echo(&mut client, n);
            }
            assert!(!hosts[0].stderr().contains("p@ss"), "{}", hosts[0].stderr());
        }
    }
}

#[test]
fn over_stdio_a_store_is_checked_and_not_used() {
    let mut gateway = Gateway::start(config("redis://127.0.0.1:1/0"));
    gateway.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
    let lab = Lab::new();
    let path = lab.write("workbench-config.json", &lab.fill(&config("http://127.0.0.1:1/0").to_string()));
    let refused = lab.run(lab.command().arg("--config").arg(path));
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("store"), "{}", refused.stderr);
}

#[test]
fn without_a_store_there_is_one_process_only() {
    let mut config = config("");
    config.as_object_mut().expect("an object").remove("store");
    let host = Host::workbench(config);
    let mut client = host.client(Era::Legacy);
    open(&mut client);
    echo(&mut client, 1);
    assert!(!host.stderr().contains("store"), "{}", host.stderr());
}
