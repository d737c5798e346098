//! Starts every server once, to see whether it works. `doctor` in `cli` words the findings.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{Gateway, name_for};
use crate::catalog::{Items, Kind};
use crate::config::Isolation;
use crate::core::start_error::StartError;
use crate::core::upstream::Upstream;
use crate::core::workspace::Workspace;
use crate::face::Declared;
use crate::transport::oauth::{KnownLogin, Login};

/// The full names, and the names that clients see instead.
pub type Renamed = Vec<(Arc<str>, Arc<str>)>;

/// What was found out about one server.
pub struct Finding {
    /// The server's toolbox or namespace.
    pub group: Arc<str>,
    /// The server's name in the toolbox; empty if it has only the namespace.
    pub server: String,
    /// The server's name for people.
    pub label: String,
    /// How many of the server's tools clients see, or why it cannot be used.
    pub outcome: Result<usize, StartError>,
    /// How long it took to find the outcome.
    pub took: Duration,
    /// The names that clients would not accept: in full, and as changed.
    pub renamed: Renamed,
    /// What else is worth knowing about the server.
    pub remarks: Vec<Remark>,
    /// The file that the command resolves to.
    pub program: Option<PathBuf>,
    /// Who is logged in to the server.
    pub known_login: Option<KnownLogin>,
    /// What the server waits for, if somebody has to log in first.
    pub login: Option<(String, Login)>,
    /// Items of the server that do not fit MCP's own schema.
    pub oddities: Vec<Oddity>,
    /// The names of the tools and prompts that the lock keeps from clients.
    pub withheld: Vec<Arc<str>>,
}

/// Something about a server that is no problem by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remark {
    /// The command is found only on the login shell's `PATH`.
    ByLoginShell,
    /// The server keeps something for one client, and yet may be shared.
    KeepsState,
}

/// Something that a server offers and that clients are not shown as it came.
pub enum Oddity {
    /// An item that is shown with some members mended.
    Mended {
        /// Its kind.
        kind: Kind,
        /// Its name or URI.
        key: Arc<str>,
        /// The members that had to be mended.
        members: Vec<String>,
    },
    /// Items that are not shown, because they have no name or URI.
    Nameless {
        /// Their kind.
        kind: Kind,
        /// Their number.
        count: usize,
    },
}

impl Gateway {
    /// The names of servers that are still starting, in the file's order.
    pub fn starting(&self) -> Vec<String> {
        let (face, upstreams) = (self.faces.whole(), self.engine.registry.all());
        let is_starting = |server: &Declared<'_>| {
            let mut own =
                upstreams.iter().filter(|one| *one.group == *server.group && *one.server == *server.key);
            own.any(|upstream| upstream.is_starting())
        };
        let name = |server: Declared<'_>| match server.name {
            "" => server.label,
            name => name.to_owned(),
        };
        face.servers().into_iter().filter(is_starting).map(name).collect()
    }

    /// Starts every server at once and waits until each is up or has failed. The servers run until
    /// [`Gateway::end`]. Names are made for a client called `client`.
    pub async fn examine(self: &Arc<Self>, client: &str) -> Vec<Finding> {
        let face = self.faces.whole();
        let workspace = self.engine.workspace("doctor", 0, face.clone(), None, None);
        let patients = self.upstreams_by_hand(&*face, &workspace);
        let upstreams: Vec<_> = patients.iter().map(|(_, upstream)| upstream.clone()).collect();
        workspace.change(|view| {
            name_for(view, &*face, client);
            view.add(&*face, &upstreams);
        });
        let mut starts = JoinSet::new();
        for (index, (_, upstream)) in patients.iter().enumerate() {
            let upstream = upstream.clone();
            starts.spawn(async move {
                let begun = Instant::now();
                let outcome = upstream.up().await.map(drop);
                (index, outcome, begun.elapsed())
            });
        }
        let mut outcomes: Vec<_> = patients.iter().map(|_| None).collect();
        while let Some(done) = starts.join_next().await {
            if let Ok((index, outcome, took)) = done {
                outcomes[index] = Some((outcome, took));
            }
        }
        let mut findings = Vec::new();
        for ((server, upstream), outcome) in patients.into_iter().zip(outcomes) {
            let (outcome, took) =
                outcome.unwrap_or_else(|| (Err("the attempt was cut off".into()), Duration::ZERO));
            let by_login_shell = outcome.is_ok() && self.engine.needs_login_shell(&upstream).await;
            let spec = upstream.spec();
            let keeps_state = spec.keeps_state && spec.isolation != Some(Isolation::Session);
            let remarks = [(by_login_shell, Remark::ByLoginShell), (keeps_state, Remark::KeepsState)];
            let remarks = remarks.into_iter().filter(|(is_so, _)| *is_so).map(|(_, remark)| remark).collect();
            let (tools, renamed, withheld) = exposed(&workspace, &upstream);
            findings.push(Finding {
                group: upstream.group.clone(),
                server,
                label: upstream.to_string(),
                outcome: outcome.map(|()| tools),
                took,
                renamed,
                remarks,
                program: self.engine.program(&upstream).await,
                known_login: upstream.known_login(),
                login: upstream.login().map(|login| (upstream.to_string(), login)),
                oddities: oddities(&upstream.items()),
                withheld,
            });
        }
        findings
    }
}

/// The items that clients are not shown as they came, in the order of the lists; for each kind, the nameless
/// ones come last.
fn oddities(items: &Items) -> Vec<Oddity> {
    let of_kind = |kind: Kind| {
        let mended = items.of(kind).iter().filter_map(move |item| {
            let members = item.mended();
            (!members.is_empty()).then(|| Oddity::Mended { kind, key: item.key.clone(), members })
        });
        let count = items.nameless(kind);
        mended.chain((count > 0).then_some(Oddity::Nameless { kind, count }))
    };
    Kind::ALL.into_iter().flat_map(of_kind).collect()
}

/// How many of an upstream's tools the workspace shows, which of them were renamed, and the names of the tools and
/// prompts that the lock keeps from clients.
fn exposed(workspace: &Workspace, upstream: &Arc<Upstream>) -> (usize, Renamed, Vec<Arc<str>>) {
    workspace.read(|view| {
        let Some(entry) = view.entries().find(|entry| Arc::ptr_eq(&entry.upstream, upstream)) else {
            return (0, Vec::new(), Vec::new());
        };
        let tools = entry.exposed.of(Kind::Tool).items();
        let renamed = tools.iter().filter_map(|item| Some((item.full.clone()?, item.name.clone())));
        let face = workspace.exposure();
        let withheld = [Kind::Tool, Kind::Prompt].into_iter().flat_map(|kind| entry.withheld(&*face, kind));
        (tools.len(), renamed.collect(), withheld.cloned().collect())
    })
}
