//! What all servers offer, as far as it is known, and the names by which people find it.

use std::sync::Arc;

use crate::catalog::{Items, Kind, nearest};
use crate::cli::advice::lost;
use crate::cli::failure::{Failure, FailureKind};
use crate::config::locate::FaceKind;
use crate::config::{Transport, locate};
use crate::core::start_error::StartError;
use crate::core::upstream::Upstream;
use crate::core::view::{Exposure, View};
use crate::gateway::shell::Shell;
use crate::json::{Node, Scanner};
use crate::transport::oauth::Login;

/// The most candidates shown for a name that fits several things.
const CANDIDATES: usize = 10;

/// What all servers offer, as far as it is known. `search` ranks its rows of tools.
pub(super) struct Catalog {
    /// The servers in the order of the file.
    pub(super) servers: Vec<Known>,
    /// The rows in the order of the file, kind by kind.
    pub(super) rows: Vec<Row>,
    /// What a client would see of the catalog.
    pub(super) view: View,
    exposure: Arc<dyn Exposure + Send + Sync>,
    face: FaceKind,
}

/// One server.
pub(super) struct Known {
    pub(super) upstream: Arc<Upstream>,
    /// What the server offers, or why it failed; `None` if it was not asked.
    pub(super) items: Option<Result<Arc<Items>, StartError>>,
    /// Why the server was not asked: it failed a short while ago.
    pub(super) failed_before: Option<StartError>,
}

/// What makes servers be asked although something is remembered of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asking {
    /// Nothing: what is remembered counts.
    Unknown,
    /// They failed when they were last asked.
    Failed,
    /// Whatever is remembered of them.
    All,
}

/// One thing that a server offers.
pub(super) struct Row {
    /// The index of its server in the catalog.
    pub(super) server: usize,
    pub(super) kind: Kind,
    /// The server's own name for the thing.
    pub(super) key: String,
    /// The name by which clients know the thing.
    pub(super) registered: String,
    pub(super) full: String,
    /// The definition as the server wrote it.
    pub(super) definition: String,
}

impl Catalog {
    /// Takes what is remembered as far as it counts, and asks the wanted servers for the rest.
    pub(super) async fn gather(
        shell: &Shell,
        face: FaceKind,
        asking: Asking,
        wanted: &dyn Fn(&Upstream) -> bool,
    ) -> Self {
        let mut servers: Vec<Known> = Vec::new();
        for upstream in shell.upstreams() {
            let is_wanted = wanted(upstream);
            let is_known = asking != Asking::All || !is_wanted;
            let remembered = if is_known { shell.remembered(upstream) } else { None };
            let trusts_failures = asking == Asking::Unknown && is_wanted;
            let failed_before = if trusts_failures { shell.remembered_failure(upstream) } else { None };
            let items = remembered.map(|items| Ok(Arc::new(items)));
            let items = items.or_else(|| failed_before.clone().map(Err));
            servers.push(Known { upstream: upstream.clone(), items, failed_before });
        }
        let asked: Vec<usize> = (0..servers.len())
            .filter(|n| servers[*n].items.is_none() && wanted(&servers[*n].upstream))
            .collect();
        let starts: Vec<_> = asked.iter().map(|n| servers[*n].upstream.start()).collect();
        for (n, start) in asked.into_iter().zip(starts) {
            let upstream = servers[n].upstream.clone();
            let outcome = match start {
                Ok(phase) => upstream.settled(phase).await.map(|_| upstream.items()),
                Err(refused) => Err(refused),
            };
            servers[n].items = Some(outcome);
        }
        Self::new(shell, face, servers)
    }

    fn new(shell: &Shell, face: FaceKind, servers: Vec<Known>) -> Self {
        let known: Vec<_> = servers
            .iter()
            .filter_map(|server| match &server.items {
                Some(Ok(items)) => Some((server.upstream.clone(), items.clone())),
                _ => None,
            })
            .collect();
        let view = shell.view(&known);
        let mut rows = Vec::new();
        for kind in Kind::ALL {
            for (entry, item) in view.items(kind) {
                let at = servers.iter().position(|server| Arc::ptr_eq(&server.upstream, &entry.upstream));
                let server = at.expect("the view was made of these servers");
                rows.push(Row {
                    server,
                    kind,
                    key: item.own.key.to_string(),
                    registered: item.name.to_string(),
                    full: item.full_name().to_string(),
                    definition: item.own.raw().to_owned(),
                });
            }
        }
        Self { servers, rows, view, exposure: shell.exposure(), face }
    }

    /// The servers that were not asked because they failed a short while ago, and why they did.
    pub(super) fn failed_before(&self) -> impl Iterator<Item = (String, &StartError)> {
        let servers = self.servers.iter();
        servers.filter_map(|server| Some((server.upstream.to_string(), server.failed_before.as_ref()?)))
    }

    /// The servers that failed, and why.
    pub(super) fn failures(&self) -> impl Iterator<Item = (String, &StartError)> {
        self.servers.iter().filter_map(|server| match &server.items {
            Some(Err(error)) => Some((server.upstream.to_string(), error)),
            _ => None,
        })
    }

    /// The logins that failed servers wait for, if somebody can be asked to log in.
    pub(super) fn logins(&self) -> impl Iterator<Item = (String, Login)> {
        let failed = self.servers.iter().filter(|server| matches!(server.items, Some(Err(_))));
        failed.filter_map(|server| Some((server.upstream.to_string(), server.upstream.login()?)))
    }

    /// The exit status of a list, which depends on whether any server was available.
    pub(super) fn status(&self) -> u8 {
        match self.failures().count() {
            0 => 0,
            failed if failed < self.servers.len() => 0,
            _ => FailureKind::Unreachable.status(),
        }
    }

    /// The things of one kind.
    pub(super) fn of(&self, kind: Kind) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.kind == kind)
    }

    /// The server that a row is from.
    pub(super) fn server(&self, row: &Row) -> &Arc<Upstream> {
        &self.servers[row.server].upstream
    }

    /// The address of a row, as people write it.
    pub(super) fn address(&self, row: &Row) -> String {
        let upstream = self.server(row);
        match self.face {
            FaceKind::Workbench => format!("{}/{}/{}", upstream.group, upstream.server, row.key),
            FaceKind::Toolman if upstream.group.is_empty() => row.key.clone(),
            FaceKind::Toolman => format!("{}/{}", upstream.group, row.key),
        }
    }

    /// The names by which people find tools: addresses, and the tools' own names where these are unique.
    pub(super) fn names(&self) -> Vec<String> {
        let keys: Vec<&str> = self.of(Kind::Tool).map(|row| &*row.key).collect();
        let is_unique = |key: &&str| keys.iter().filter(|other| *other == key).count() == 1;
        let addresses = self.of(Kind::Tool).map(|row| self.address(row));
        let short = keys.iter().filter(|key| is_unique(key)).map(|key| (*key).to_owned());
        addresses.chain(short).collect()
    }

    /// The one thing that a person means, of the first kind that has a match.
    pub(super) fn find(&self, name: &str, kinds: &[Kind]) -> Result<&Row, Failure> {
        for kind in kinds {
            for form in [Self::is_whole, Self::is_short, Self::is_loose] {
                let found: Vec<&Row> = self.of(*kind).filter(|row| form(self, row, name)).collect();
                match &found[..] {
                    [] => {}
                    [row] => return Ok(row),
                    several => return Err(self.ambiguous(name, several)),
                }
            }
        }
        // Some client may know a tool by this name.
        let target =
            if kinds.contains(&Kind::Tool) { self.view.find_tool(&*self.exposure, name) } else { None };
        let meant = target.and_then(|target| {
            let is_meant =
                |row: &&Row| Arc::ptr_eq(self.server(row), &target.upstream) && row.key == target.own_name();
            self.of(Kind::Tool).find(is_meant)
        });
        meant.ok_or_else(|| self.unknown(name, kinds))
    }

    fn is_whole(&self, row: &Row, name: &str) -> bool {
        row.registered == name || row.full == name || self.address(row) == name
    }

    fn is_short(&self, row: &Row, name: &str) -> bool {
        let with_server = || {
            name.strip_suffix(&row.key).and_then(|rest| rest.strip_suffix('/'))
                == Some(&self.server(row).server)
        };
        row.key == name || (self.face == FaceKind::Workbench && with_server())
    }

    /// Whether the name is the toolbox and the tool, without the server between them.
    fn is_loose(&self, row: &Row, name: &str) -> bool {
        name.strip_suffix(&row.key).and_then(|rest| rest.strip_suffix('/')) == Some(&self.server(row).group)
    }

    fn ambiguous(&self, name: &str, rows: &[&Row]) -> Failure {
        let mut lines: Vec<String> =
            rows.iter().take(CANDIDATES).map(|row| format!("  {}", self.unique_name(row))).collect();
        if rows.len() > CANDIDATES {
            lines.push(format!("  … and {} more", rows.len() - CANDIDATES));
        }
        Failure::usage(
            format!("`{name}` may be any of {}", rows.len()),
            format!("say which one:\n{}", lines.join("\n")),
        )
    }

    /// The address, or the registered name if two servers share a namespace.
    fn unique_name(&self, row: &Row) -> String {
        let address = self.address(row);
        let same = self.of(row.kind).filter(|other| self.address(other) == address).count();
        if same > 1 { row.registered.clone() } else { address }
    }

    /// Why the lock keeps the thing that a person means from everybody, if it does.
    fn why_withheld(&self, kind: Kind, name: &str) -> Option<String> {
        let exposure = &*self.exposure;
        let addressed = self.view.entries().find_map(|entry| {
            let Upstream { group, server, .. } = &*entry.upstream;
            let places = [format!("{group}/{server}"), server.to_string(), group.to_string()];
            let key = places.iter().find_map(|place| name.strip_prefix(place.as_str())?.strip_prefix('/'))?;
            entry.why_withheld(exposure, kind, key)
        });
        addressed.or_else(|| self.view.why_withheld(exposure, None, kind, name))
    }

    fn unknown(&self, name: &str, kinds: &[Kind]) -> Failure {
        // The name may be right and its server unavailable.
        let all_failed = self.failures().count() == self.servers.len();
        let meant = self.servers.iter().find_map(|known| match &known.items {
            Some(Err(error)) if all_failed || may_have(self.face, &known.upstream, name) => {
                Some((known, error))
            }
            _ => None,
        });
        if let Some((known, error)) = meant {
            let label = known.upstream.to_string();
            let mut failure = lost(&label, &label, error);
            if known.failed_before.is_some() {
                failure.hint.push_str("\nit failed a short while ago and was not asked; --fresh asks again");
            }
            return failure;
        }
        if let Some(why) = kinds.iter().find_map(|kind| self.why_withheld(*kind, name)) {
            return Failure::configuration(why, "");
        }
        let rows = || self.rows.iter().filter(|row| kinds.contains(&row.kind));
        let addresses: Vec<String> = rows().map(|row| self.address(row)).collect();
        let keys: Vec<&str> = rows().map(|row| &*row.key).collect();
        let last = name.rsplit('/').next().unwrap_or(name);
        let mut near: Vec<&str> = Vec::new();
        for key in nearest(last, keys.iter().copied(), 3) {
            near.extend(
                keys.iter().zip(&addresses).filter(|(own, _)| **own == key).map(|(_, address)| &**address),
            );
        }
        near.truncate(3);
        let suggestion = match &near[..] {
            [] => String::new(),
            near => format!("did you mean {}?\n", near.join(", ")),
        };
        let failed: Vec<String> = self.failures().map(|(label, _)| label).collect();
        let failed = match failed.is_empty() {
            true => String::new(),
            false => format!("it may belong to a server that failed: {}\n", failed.join(", ")),
        };
        let program = self.face.program();
        let what = if kinds == [Kind::Tool] { "tool" } else { "tool, prompt or resource" };
        Failure::usage(
            format!("there is no {what} `{name}`"),
            format!("{suggestion}{failed}`{program} list tools` shows all; --fresh asks the servers again"),
        )
    }
}

impl Known {
    /// The server's transport, in a word.
    pub(super) fn transport(&self) -> &'static str {
        match &self.upstream.spec().transport {
            Transport::Stdio(_) => "stdio",
            Transport::Http(http) if http.sse => "sse",
            Transport::Http(_) => "http",
            Transport::Unset(unset) => unset.transport,
        }
    }
}

impl Row {
    /// The description, or other text of the definition that is meant for a person.
    pub(super) fn description(&self) -> String {
        let mut scanner = Scanner::default();
        let Ok(doc) = scanner.scan_str(&self.definition) else { return String::new() };
        let text = |key| doc.root().get(key).and_then(Node::as_str).filter(|text| !text.is_empty());
        let found = text("description").or_else(|| text("title"));
        let found = found.or_else(|| if self.kind == Kind::Tool { None } else { text("name") });
        found.unwrap_or_default().into_owned()
    }
}

/// Whether a name can belong to this server.
pub(super) fn may_have(face: locate::FaceKind, upstream: &Upstream, name: &str) -> bool {
    let (group, server) = (&*upstream.group, &*upstream.server);
    let starts = |prefix: &[&str]| {
        let rest = prefix.iter().try_fold(name, |rest, part| rest.strip_prefix(*part));
        rest.is_some_and(|rest| !rest.is_empty())
    };
    match face {
        FaceKind::Workbench => {
            starts(&[group, "/", server, "/"])
                || starts(&[server, "/"])
                || starts(&[group, "__", server, "__"])
                || (group == server && starts(&[server, "__"]))
                || (starts(&[group, "/"]) && name.matches('/').count() == 1)
        }
        FaceKind::Toolman => !group.is_empty() && (starts(&[group, "/"]) || starts(&[group, "_"])),
    }
}
