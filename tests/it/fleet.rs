//! Several replicas of one gateway over one store, and clients that come to another one with each request.

use serde_json::{Value, json};

use crate::client::{CAN_ALL, Client, Era, Host, Web};
use crate::harness::{Gateway, Lab, Message};
use crate::store::Store;

/// What the replicas run.
#[derive(Debug, Clone)]
pub(crate) enum Config {
    /// `workbench-config.json`.
    Workbench(Value),
    /// `tools.toml`.
    Toolman(String),
}

/// Replicas, in the order of their start.
pub(crate) struct Fleet {
    pub(crate) hosts: Vec<Host>,
    pub(crate) store: Store,
    config: Config,
}

impl Fleet {
    /// Three replicas; nothing where no store can be had.
    #[track_caller]
    pub(crate) fn start(config: Config) -> Option<Self> {
        Self::over(Store::start()?, config, 3)
    }

    /// So many replicas over a store.
    #[track_caller]
    pub(crate) fn over(store: Store, config: Config, count: usize) -> Option<Self> {
        let mut fleet = Self { hosts: Vec::new(), store, config };
        (0..count).for_each(|_| fleet.add());
        Some(fleet)
    }

    /// Starts one more.
    #[track_caller]
    pub(crate) fn add(&mut self) {
        let serve = |command: &mut std::process::Command| {
            command.args(["serve", "--http", "127.0.0.1:0"]);
        };
        let gateway = match &self.config {
            Config::Workbench(file) => {
                let mut file = file.clone();
                file["store"] = json!(self.store.url());
                Gateway::spawn_with(Lab::new(), file, serve)
            }
            Config::Toolman(file) => {
                let file = format!("store = \"{}\"\n{file}", self.store.url());
                Gateway::spawn_toolman(Lab::new(), file, serve)
            }
        };
        self.hosts.push(Host::new(gateway));
    }

    /// Ends a replica as no program can prevent.
    #[track_caller]
    pub(crate) fn kill(&mut self, at: usize) {
        self.hosts[at].signal("KILL");
        self.hosts[at].wait();
    }

    /// A modern client that can be asked everything, of the first replica.
    #[track_caller]
    pub(crate) fn modern(&self) -> Client {
        Client::web(Era::Modern, Web::new(&self.hosts[0].address), CAN_ALL)
    }

    /// As [`Self::modern`], with a token.
    #[track_caller]
    pub(crate) fn modern_with(&self, token: &str) -> Client {
        self.hosts[0].client_with(Era::Modern, token)
    }

    /// Lets the requests of a client go to this replica from now on.
    pub(crate) fn turn<'c>(&self, client: &'c mut Client, at: usize) -> &'c mut Client {
        client.over_http().turn_to([self.hosts[at].address.clone()]);
        client
    }

    /// Calls a tool at a replica.
    #[track_caller]
    pub(crate) fn call(
        &self,
        client: &mut Client,
        at: usize,
        tool: &str,
        arguments: impl std::fmt::Display,
    ) -> Message {
        self.turn(client, at).call(tool, arguments)
    }
}
