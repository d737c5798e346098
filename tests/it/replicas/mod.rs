//! Several gateways over one real Valkey or Redis server, behind a balancer that sends each request to the next of them.

mod between;
mod cut_off;
mod faults;
mod keys;
mod reload;
mod results;
mod sdks;
mod sessions;
mod start;
mod store_away;
mod streams;
mod tls;

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{CAN_ALL, Client, Era, Exchanged, Host, Web};
use crate::harness::{DEADLINE, Gateway, Lab, Message, dev, fake};
use crate::store::Store;

const KEY: &str = "a state key of thirty-two bytes or more";

/// Replicas of one gateway.
struct Cluster {
    store: Store,
    hosts: Vec<Host>,
}

impl Cluster {
    /// Three replicas with this file, or none where there is no store to be had.
    fn start(config: Value) -> Option<Self> {
        Self::of(3, config)
    }

    fn of(count: usize, config: Value) -> Option<Self> {
        let store = Store::start()?;
        let mut cluster = Self { store, hosts: Vec::new() };
        for _ in 0..count {
            cluster.add(config.clone());
        }
        Some(cluster)
    }

    /// One more replica.
    fn add(&mut self, config: Value) {
        let url = self.store.url();
        self.add_at(config, &url);
    }

    /// One more replica, which reaches the store by this URL.
    fn add_at(&mut self, config: Value, url: &str) {
        self.add_with(Lab::new(), config, url, |_| {});
    }

    fn add_with(&mut self, lab: Lab, mut config: Value, url: &str, change: impl FnOnce(&mut Command)) {
        config["store"] = json!(url);
        if config["stateKey"] == json!("none") {
            config.as_object_mut().expect("an object").remove("stateKey");
        } else if config.get("stateKey").is_none() {
            config["stateKey"] = json!(KEY);
        }
        self.hosts.push(Host::new(Gateway::spawn_with(lab, config, |command| {
            command.args(["serve", "--http", "127.0.0.1:0"]);
            change(command);
        })));
    }

    fn address(&self, replica: usize) -> String {
        self.hosts[replica].address.clone()
    }

    fn addresses(&self) -> Vec<String> {
        (0..self.hosts.len()).map(|replica| self.address(replica)).collect()
    }

    /// A legacy client whose session is opened at this replica, without a stream; all else goes to the others in turn.
    fn client_of(&self, home: usize) -> Client {
        let mut web = Web::new(&self.address(home));
        web.open_session(CAN_ALL);
        let others: Vec<_> = (0..self.hosts.len()).filter(|replica| *replica != home).collect();
        web.turn_to(others.iter().map(|replica| self.address(*replica)).collect::<Vec<_>>());
        Client::of_session(web, CAN_ALL)
    }

    /// A client of either era behind the balancer.
    fn client(&self, era: Era) -> Client {
        Client::web(era, Web::among(self.addresses()), CAN_ALL)
    }

    /// Ends a replica at once.
    fn kill(&mut self, replica: usize) {
        self.hosts[replica].signal("KILL");
        self.hosts[replica].wait();
    }

    /// How many processes of the fake upstream there are at all replicas.
    fn upstreams(&self) -> usize {
        let of = |host: &Host| {
            let all = host.lab.processes();
            all.iter().filter(|(_, line)| line.contains("fake-upstream") && line.contains("--with")).count()
        };
        self.hosts.iter().map(of).sum()
    }

    /// How many times the server of [`own_tools`] was started, at all replicas.
    fn starts(&self) -> usize {
        self.hosts.iter().map(|host| host.lab.starts("starts")).sum()
    }

    /// A request for a path of one replica.
    fn get(&self, replica: usize, path: &str) -> Exchanged {
        let mut web = Web::new(&self.address(replica));
        web.path = path.to_owned();
        web.exchange("GET", "", "")
    }
}

/// One toolbox with a server that has these tools.
fn tools(names: &str) -> Value {
    dev("dynamic", json!({"a": fake(&format!("--with {names}"))}))
}

/// The same with a server for each session.
fn own_tools(names: &str) -> Value {
    let mut server = fake(&format!("--with {names} --count @dir/starts"));
    server["isolation"] = json!("session");
    dev("dynamic", json!({"a": server}))
}

fn open(client: &mut Client) {
    client.call("open_toolbox", r#"{"toolbox_name":"dev"}"#).text();
}

/// Calls a tool that answers with what it was sent.
#[track_caller]
fn echo(client: &mut Client, n: u32) {
    assert_eq!(client.call("dev__a__echo", json!({"n": n})).json()["arguments"], json!({"n": n}));
}

const PING: &str = r#"{"jsonrpc":"2.0","id":"ping","method":"ping"}"#;

/// The status of a ping in this session at one replica.
fn ping(cluster: &Cluster, replica: usize, session: Option<&str>) -> u16 {
    let mut web = Web::new(&cluster.address(replica));
    web.session = session.map(str::to_owned);
    web.exchange("POST", &web.common(), PING).status
}

/// Waits until something holds that no message announces, and returns how long that took.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < DEADLINE, "it never came true: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    begun.elapsed()
}

/// The text of an answer that may be an error of either kind.
fn said(answer: &Message) -> String {
    answer.raw.clone()
}
