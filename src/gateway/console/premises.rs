//! What a console looks at: one gateway, or all that the daemon has. From here come the rows of servers and of
//! clients, what is wrong, and what a row stands for when somebody wants something of it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::Gateway;
use super::chronicle::Chronicle;
use super::door::Pass;
use super::survey::Outlook;
use crate::core::engine::Engine;
use crate::core::process::ProcessTable;
use crate::core::upstream::{Upstream, by_hand};
use crate::core::workspace::Workspace;
use crate::face::{Declared, Face, Part};

/// An engine, and a gateway over it that knows the file.
#[derive(Clone)]
pub struct House {
    /// The engine.
    pub engine: Arc<Engine>,
    /// One of the gateways over it; `None` where every session of the daemon has gone.
    pub gateway: Option<Arc<Gateway>>,
    /// What is wrong with the file as it was read last.
    pub refused: Vec<FileProblem>,
}

/// Something that is wrong with a file.
#[derive(Clone)]
pub struct FileProblem {
    /// Which file, and where in it.
    pub title: String,
    /// What is wrong, and what to do.
    pub text: String,
}

impl House {
    /// The house of a gateway that is alone in it.
    pub(super) fn of(gateway: &Arc<Gateway>, refused: Vec<FileProblem>) -> Self {
        Self { engine: gateway.engine.clone(), gateway: Some(gateway.clone()), refused }
    }
}

/// A server as the console knows it.
pub(super) struct ServerEntry {
    /// What the page calls it.
    pub(super) id: String,
    pub(super) house: House,
    pub(super) upstream: Arc<Upstream>,
}

/// The workspace of the console in a house, and the face that somebody with this pass sees there.
pub(super) struct Desk {
    pub(super) gateway: Arc<Gateway>,
    pub(super) place: usize,
    pub(super) face: Arc<dyn Face>,
}

impl Desk {
    /// The desk of somebody with this pass; `None` if the house has nothing for him.
    pub(super) fn of(house: &House, pass: &Pass) -> Option<Self> {
        let gateway = house.gateway.clone()?;
        let place = gateway.faces.place_of(&Part { names: pass.groups.clone(), toolbox: None })?;
        let face = gateway.faces.at(place);
        Some(Self { gateway, place, face })
    }
}

/// The name of a server on the page.
pub(super) fn server_id(house: usize, group: &str, server: &str, instance: usize) -> String {
    json!([house, group, server, instance]).to_string()
}

/// All servers that somebody with this pass may see, in the order of the file. `workspace` is the console's own in
/// a house; a server that several clients have for themselves is there once for each of them.
pub(super) fn servers(
    houses: &[House],
    pass: &Pass,
    workspace: impl Fn(&House) -> Option<Arc<Workspace>>,
) -> Vec<ServerEntry> {
    let mut entries = Vec::new();
    for (number, house) in houses.iter().enumerate() {
        let mut left = house.engine.registry.all();
        left.retain(|upstream| pass.admits(&upstream.group));
        left.sort_by_key(|upstream| Arc::as_ptr(upstream).addr());
        let mut push = |mut instances: Vec<Arc<Upstream>>| {
            if instances.len() > 1 {
                // An instance that only the console knows says nothing beside the instances of clients.
                let is_used = |one: &Arc<Upstream>| !house.engine.audience.lookers(one).is_empty();
                if instances.iter().any(is_used) {
                    instances.retain(is_used);
                }
            }
            for (instance, upstream) in instances.into_iter().enumerate() {
                let id = server_id(number, &upstream.group, &upstream.server, instance);
                entries.push(ServerEntry { id, house: house.clone(), upstream });
            }
        };
        let mut take = |group: &str, server: &str| {
            let is_this = |upstream: &Arc<Upstream>| *upstream.group == *group && *upstream.server == *server;
            let (these, others) = std::mem::take(&mut left).into_iter().partition(is_this);
            left = others;
            these
        };
        if let (Some(gateway), Some(workspace)) = (&house.gateway, workspace(house)) {
            let face = gateway.faces.whole();
            for declared in
                face.servers().iter().filter(|declared: &&Declared<'_>| pass.admits(declared.group))
            {
                let instances: Vec<Arc<Upstream>> = take(declared.group, declared.key);
                match instances.is_empty() {
                    true => push(vec![gateway.upstream(&workspace, declared)]),
                    false => push(instances),
                }
            }
        }
        for upstream in left {
            push(vec![upstream]);
        }
    }
    entries
}

/// What the rows of the table of servers are made of, beside the servers themselves.
pub(super) struct Around<'a> {
    pub(super) record: &'a Chronicle,
    /// The processes; `None` where states come from the journal alone.
    pub(super) processes: Option<&'a ProcessTable>,
    pub(super) outlooks: &'a [Outlook],
    pub(super) toolman: bool,
}

impl ServerEntry {
    /// The name of the server in events.
    fn event_name(&self, toolman: bool) -> &str {
        if toolman { "" } else { &self.upstream.server }
    }

    /// The state, since when, and why it failed.
    pub(super) fn state(&self, around: &Around<'_>) -> (&'static str, Option<u64>, Option<String>) {
        let known = around.record.server(&self.upstream.group, self.event_name(around.toolman));
        let state = match &self.upstream {
            upstream if upstream.is_up() => "running",
            upstream if upstream.is_starting() => "starting",
            upstream if upstream.has_failed() => "failed",
            _ => "idle",
        };
        let since = known.last.as_ref().map(|last| last.time);
        match known.last {
            // The console's own process has not touched it, so the journal knows better.
            Some(last) if around.processes.is_none() && state == "idle" => {
                (last.state, since, Some(last.reason.to_string()).filter(|reason| !reason.is_empty()))
            }
            _ => (state, since, by_hand::failure(&self.upstream).map(|error| error.to_string())),
        }
    }

    /// A row of the table.
    pub(super) fn row(&self, around: &Around<'_>) -> Value {
        let Upstream { group, server, usage, .. } = &*self.upstream;
        let (state, since, _) = self.state(around);
        let known = around.record.server(group, self.event_name(around.toolman));
        let place = (group.to_string(), server.to_string());
        let pid = usage.pid().filter(|_| matches!(state, "starting" | "running"));
        let memory = around.processes.and_then(|processes| Some(processes.of_tree(pid?)));
        json!({
            "id": self.id,
            "group": &**group,
            "server": self.event_name(around.toolman),
            "state": state,
            "tools": around.outlooks.iter().find_map(|outlook| outlook.tools.get(&place)),
            "calls": known.calls,
            "errors": known.errors,
            "memory": memory,
            "since": since,
        })
    }

    /// What the region of a server shows.
    pub(super) fn details(&self, around: &Around<'_>) -> Value {
        let (state, _, why) = self.state(around);
        let live = around.processes.is_some();
        let redactor = self.house.engine.secrets_of(&self.upstream);
        let stderr: Vec<_> = match live {
            true => {
                self.upstream.usage.stderr().iter().map(|line| redactor.redact(line).into_owned()).collect()
            }
            false => Vec::new(),
        };
        let pid = self.upstream.usage.pid().filter(|_| live && matches!(state, "starting" | "running"));
        json!({"state": state, "label": self.upstream.to_string(), "pid": pid, "why": why, "stderr": stderr})
    }
}
