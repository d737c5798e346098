//! Starting with a store: users, sockets, and stores that cannot be used.

#![allow(clippy::disallowed_methods, reason = "tests start the programs they test")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{echo, open, until};
use crate::client::{Client, Era, Host, Web};
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
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    std::thread::spawn(move || {
        for mut stream in cluster.incoming().flatten() {
            counted.fetch_add(1, Ordering::Relaxed);
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
    assert_eq!(tries.load(Ordering::Relaxed), 1, "whoever refuses is not asked again");
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
            let mut web = Web::among([hosts[0].address.clone(), hosts[1].address.clone()]);
            web.open_session("{}");
            let mut client = Client::of_session(web, "{}");
            open(&mut client);
            for n in 0..4 {
                echo(&mut client, n);
            }
            assert!(!hosts[0].stderr().contains("p@ss"), "{}", hosts[0].stderr());
        }
    }
}

#[test]
fn a_store_that_comes_up_late_is_waited_for() {
    let Some(mut store) = Store::start() else { return };
    store.kill();
    let gateway = Gateway::spawn_with(Lab::new(), config(&store.url()), |command| {
        command.args(["-v", "serve", "--http", "127.0.0.1:0"]);
    });
    store.restart();
    let host = Host::new(gateway);
    let mut client = host.client(Era::Legacy);
    open(&mut client);
    echo(&mut client, 1);
}

#[test]
fn no_output_ever_holds_the_password() {
    const PASSWORD: &str = "p@ss/w0rd+50%";
    const ENCODED: &str = "p%40ss%2Fw0rd%2B50%25";
    let Some(store) = Store::start() else { return };
    let give = |password: &str| {
        let password = format!(">{password}");
        store.ask(&["ACL", "SETUSER", "gateway", "reset", "on", &password, "~*", "&*", "+@all"]);
    };
    give(PASSWORD);
    for url in [
        format!("redis://gateway:{ENCODED}@{}/0", store.address()),
        format!("unix://{}?user=gateway&pass={ENCODED}", store.socket().display()),
    ] {
        let lab = Lab::new();
        let path = lab.write("workbench-config.json", &lab.fill(&config(&url).to_string()));
        let mut said: Vec<String> = Vec::new();
        for verb in [["check", "--json"], ["doctor", "--json"]] {
            let finished = lab.run(lab.command().arg("--config").arg(&path).arg("-vv").args(verb));
            said.extend([finished.stdout, finished.stderr]);
        }
        let host = Host::new(Gateway::spawn_with(lab, config(&url), |command| {
            command.args(["-vv", "serve", "--http", "127.0.0.1:0", "--metrics", "--console"]);
        }));
        let mut client = host.client(Era::Legacy);
        open(&mut client);
        echo(&mut client, 1);
        // The password does not count any more, and connections are made anew.
        give("another-password");
        store.drop_connections();
        let mut web = Web::new(&host.address);
        web.path = "/readyz".to_owned();
        until("it is refused", || web.exchange("GET", "", "").body.contains("degraded"));
        said.push(host.stderr_with("the store is away"));
        web.path = "/metrics".to_owned();
        said.push(web.exchange("GET", "", "").body);
        let started = host.stderr();
        let (_, key) = started.split_once("/console#key=").expect("the address of the console");
        let mut tab = Web::new(&host.address);
        (tab.path, tab.token) =
            ("/console/api/events".to_owned(), key.split_whitespace().next().map(str::to_owned));
        tab.listen();
        said.push(Client::of_session(tab, "{}").take("what a tab is told", |_| true).raw);
        for text in &said {
            for secret in [PASSWORD, ENCODED, "another-password"] {
                assert!(!text.contains(secret), "{secret} in {text}");
            }
        }
        give(PASSWORD);
        until("it is let in again", || {
            web.path = "/readyz".to_owned();
            !web.exchange("GET", "", "").body.contains("degraded")
        });
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
