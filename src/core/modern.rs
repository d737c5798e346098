//! Requests of the modern era: what each says of itself, how its result is completed, and who listens for changes. The
//! table of methods reads them, replies complete results by them, workspaces tell listeners.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::reply::Reply;
use super::session::ClientSession;
use super::upstream::Upstream;
use crate::catalog::Kind;
use crate::json::{Node, quote};
use crate::protocol::era::{TASKS, can_be_asked, declares_at, meta, our_info, renders_apps};
use crate::protocol::message::{Id, Refusal, Request};

/// What a modern request says of itself.
#[derive(Debug)]
pub struct ModernCall {
    /// Raw object.
    pub capabilities: String,
    /// Whether the client renders apps.
    pub renders_apps: bool,
    /// Least severity of the log messages that it wants; `None` is none at all.
    pub log_level: Option<usize>,
    /// The client's own parameters, raw, where state that the client carries is good for them alone.
    pub(super) params: Option<Box<str>>,
    /// Whether results of the method say how long they may be kept.
    cacheable: bool,
    /// Whether it brings what was asked for, so that its result is good for nobody else.
    is_retry: bool,
    /// The name under which we answer.
    server: &'static str,
}

/// A hint for those who keep results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cache {
    /// Milliseconds.
    pub ttl: u64,
    /// Whether it is the same for every caller.
    pub public: bool,
}

impl Cache {
    /// The hint of a modern upstream's result; without one it is not to be kept.
    pub fn read(result: Node<'_>) -> Self {
        Self {
            ttl: result.get("ttlMs").and_then(|ttl| ttl.raw().parse().ok()).unwrap_or(0),
            public: result.get("cacheScope").is_some_and(|scope| scope.raw() == "\"public\""),
        }
    }

    /// The hint of what is made of both.
    pub fn and(self, other: Self) -> Self {
        Self { ttl: self.ttl.min(other.ttl), public: self.public && other.public }
    }

    /// The members of a result, with a comma before them.
    fn members(self) -> String {
        format!(",\"ttlMs\":{},\"cacheScope\":{}", self.ttl, self.scope())
    }

    /// As JSON.
    fn scope(self) -> &'static str {
        if self.public { "\"public\"" } else { "\"private\"" }
    }
}

impl ModernCall {
    /// Checks the metadata of a request. `None`: it has none, so the request is of the legacy era.
    pub fn read(
        request: &Request<'_>,
        server: impl FnOnce() -> &'static str,
    ) -> Result<Option<Self>, Refusal> {
        let Some(meta) = request.meta else { return Ok(None) };
        let (capabilities, log_level) = meta.checked()?;
        let params = request.params.unwrap_or_else(Node::empty);
        let stateful = matches!(&*request.method, "tools/call" | "prompts/get" | "resources/read");
        Ok(Some(Self {
            capabilities: capabilities.raw().to_owned(),
            renders_apps: renders_apps(capabilities.raw()),
            log_level,
            params: stateful.then(|| params.raw().into()),
            cacheable: is_cacheable(&request.method),
            is_retry: ["inputResponses", "requestState"].iter().any(|key| params.get(key).is_some()),
            server: server(),
        }))
    }

    /// Whether it can be asked anything.
    pub fn can_be_asked(&self) -> bool {
        can_be_asked(&self.capabilities)
    }

    /// Whether it takes a task for an answer.
    pub fn can_wait(&self) -> bool {
        declares_at(&self.capabilities, &["extensions", TASKS])
    }

    /// Writes the result, changed like this, with what this era adds to it; what the upstream said itself stays.
    pub(super) fn complete(&self, out: &mut Vec<u8>, result: Node<'_>, changes: &[(&str, Option<&str>)]) {
        let info = our_info(self.server);
        let given = result.get("_meta").unwrap_or_else(Node::empty);
        let added = [(meta::SERVER_INFO, Some(&*info))];
        let has_info = given.get(meta::SERVER_INFO).is_some();
        let own_meta = given.with(if has_info { &[] } else { &added });
        let mut changes = changes.to_vec();
        let mut set = |key, value| {
            if !changes.iter().any(|(changed, _)| *changed == key) {
                changes.push((key, Some(value)));
            }
        };
        set("_meta", &own_meta);
        if result.get("resultType").is_none() {
            set("resultType", "\"complete\"");
        }
        let asks = result.get("resultType").is_some_and(|kind| kind.raw() == "\"input_required\"");
        if self.cacheable && !asks {
            if self.is_retry || result.get("ttlMs").is_none() {
                set("ttlMs", "0");
            }
            if self.is_retry || result.get("cacheScope").is_none() {
                set("cacheScope", Cache::default().scope());
            }
        }
        result.write_with(out, &changes);
    }

    /// Appends what this era adds to a result of our own that says nothing of it and may be kept.
    pub(super) fn write_own_members(&self, out: &mut Vec<u8>, hint: Cache) {
        let (key, info) = (meta::SERVER_INFO, our_info(self.server));
        let hint = if self.is_retry { Cache::default() } else { hint }.members();
        let members = format!(",\"_meta\":{{\"{key}\":{info}}},\"resultType\":\"complete\"{hint}");
        out.extend_from_slice(members.as_bytes());
    }
}

/// Whether results of the method carry a hint.
fn is_cacheable(method: &str) -> bool {
    matches!(
        method,
        "server/discover"
            | "tools/list"
            | "resources/list"
            | "resources/templates/list"
            | "prompts/list"
            | "resources/read"
    )
}

/// What of an upstream is watched, under its own name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watched {
    /// By URI.
    Resource(String),
    /// By id.
    Task(String),
}

/// A `subscriptions/listen` of a client.
pub struct Listener {
    session: Weak<ClientSession>,
    id: Id,
    kinds: Vec<Kind>,
    resources: Vec<String>,
    tasks: Vec<String>,
    renders_apps: bool,
    /// Those that exist, by the names that it knows, as their upstreams know them.
    pub watched: HashMap<String, (Arc<Upstream>, Watched)>,
    /// Answers when the subscription ends by our will.
    reply: Option<Reply>,
}

impl Listener {
    /// Reads the filter of a `subscriptions/listen` and acknowledges it: first thing on its stream. `None`: the client
    /// cancelled the request meanwhile.
    ///
    /// Relies on one thread: what changes between the acknowledgement and [`Engine::listen`](super::engine::Engine::listen)
    /// is not told.
    pub fn open(params: Node<'_>, reply: Reply) -> Option<Self> {
        let id = reply.id()?;
        let filter = params.get("notifications");
        let wants = |key| filter.and_then(|filter| filter.get(key)).is_some_and(|node| node.raw() == "true");
        let mut kinds = Vec::new();
        let mut granted = Vec::new();
        for (key, kind) in [
            ("toolsListChanged", Kind::Tool),
            ("promptsListChanged", Kind::Prompt),
            ("resourcesListChanged", Kind::Resource),
        ] {
            if wants(key) {
                kinds.push(kind);
                granted.push(format!("\"{key}\":true"));
            }
        }
        let resources = strings(filter, "resourceSubscriptions");
        if !resources.is_empty() {
            granted.push(format!("\"resourceSubscriptions\":[{}]", quoted(&resources)));
        }
        let session = reply.session().clone();
        let mut tasks = strings(filter, "taskIds");
        tasks.retain(|id| session.workspace.tasks.find(id).is_some());
        if !tasks.is_empty() {
            granted.push(format!("\"taskIds\":[{}]", quoted(&tasks)));
        }
        let listener = Self {
            session: Arc::downgrade(&session),
            id,
            kinds,
            resources,
            tasks,
            renders_apps: reply.renders_apps(),
            watched: HashMap::new(),
            reply: Some(reply),
        };
        listener.send(
            "notifications/subscriptions/acknowledged",
            &format!(",\"notifications\":{{{}}}", granted.join(",")),
        );
        Some(listener)
    }

    /// Whether its client renders apps.
    pub(super) fn renders_apps(&self) -> bool {
        self.renders_apps
    }

    /// The URIs that it wants to hear of.
    pub fn resources(&self) -> Vec<String> {
        self.resources.clone()
    }

    /// Whether it wants to hear of this URI.
    pub fn wants(&self, uri: &str) -> bool {
        self.resources.iter().any(|own| own == uri)
    }

    /// Tells of lists that changed, those it asked for.
    pub fn lists_changed(&self, kinds: &[Kind]) {
        let mut told = Vec::new();
        for kind in kinds {
            let method = kind.changed_method();
            let wanted = self.kinds.iter().any(|own| own.changed_method() == method);
            if wanted && !told.contains(&method) {
                told.push(method);
                self.send(method, "");
            }
        }
    }

    /// Tells of a resource, if it asked for it; `params` are the upstream's.
    pub fn resource_updated(&self, uri: &str) {
        if self.wants(uri) {
            self.send("notifications/resources/updated", &format!(",\"uri\":{}", quote(uri)));
        }
    }

    /// The tasks that it wants to hear of.
    pub fn tasks(&self) -> Vec<String> {
        self.tasks.clone()
    }

    /// Tells of a task, if it asked for it; `params` are the upstream's.
    pub fn task_changed(&self, id: &str, params: Node<'_>) {
        if !self.tasks.iter().any(|own| own == id) {
            return;
        }
        let given = params.get("_meta").unwrap_or_else(Node::empty);
        let own_meta = given.with(&[(meta::SUBSCRIPTION, Some(self.id.raw()))]);
        if let Some(session) = self.session.upgrade() {
            session.notify(self.key(), "notifications/tasks", |out| {
                params.write_with(out, &[("_meta", Some(&own_meta)), ("taskId", Some(&quote(id)))]);
            });
        }
    }

    /// Whether it is the one with this id.
    pub fn belongs_to(&self, session: &ClientSession, id: &Id) -> bool {
        self.id == *id && std::ptr::eq(self.session.as_ptr(), session)
    }

    /// Ends it by our will: the completion response.
    pub fn finish(mut self) {
        if let Some(reply) = self.reply.take() {
            reply.result(&format!("{{\"_meta\":{{\"{}\":{}}}}}", meta::SUBSCRIPTION, self.id.raw()));
        }
    }

    fn key(&self) -> Option<&Arc<str>> {
        self.reply.as_ref().map(Reply::key)
    }

    fn send(&self, method: &str, more: &str) {
        if let Some(session) = self.session.upgrade() {
            session.notify(self.key(), method, |out| {
                let params = format!("{{\"_meta\":{{\"{}\":{}}}{more}}}", meta::SUBSCRIPTION, self.id.raw());
                out.extend_from_slice(params.as_bytes());
            });
        }
    }
}

/// The texts of a member that is a list of them.
fn strings(filter: Option<Node<'_>>, key: &str) -> Vec<String> {
    let list = filter.and_then(|filter| filter.get(key));
    list.and_then(|list| serde_json::from_str(list.raw()).ok()).unwrap_or_default()
}

fn quoted(texts: &[String]) -> String {
    texts.iter().map(|text| quote(text)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Raw;
    use crate::protocol::era::Era;
    use crate::protocol::era::tests::ERA_CASES;
    use crate::protocol::message::{Malformed, Message};

    fn read(method: &str, params: &str) -> Result<Option<ModernCall>, Refusal> {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let raw = Raw::read(text).expect("JSON");
        match Message::read(raw.root()) {
            Ok(Message::Request(request)) => ModernCall::read(&request, || "toolman"),
            Ok(_) => panic!("no request: {params}"),
            Err(Malformed { why, .. }) => Err(why),
        }
    }

    #[test]
    fn metadata_decides_the_era() {
        for (params, expected) in ERA_CASES {
            let era = read("tools/list", params).map(|modern| match modern {
                Some(_) => Era::Modern,
                None => Era::Legacy,
            });
            assert_eq!(era.map_err(|why| why.code), expected, "{params}");
        }
        let modern = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}}"#;
        assert_eq!(read("tools/list", modern).unwrap().unwrap().capabilities, r#"{"roots":{}}"#);
    }

    #[test]
    fn results_are_completed_and_keep_what_they_had() {
        let complete_as = |is_retry: bool, result: &str| {
            let call = ModernCall {
                capabilities: "{}".into(),
                renders_apps: false,
                log_level: None,
                params: None,
                cacheable: true,
                is_retry,
                server: "toolman",
            };
            let mut out = Vec::new();
            call.complete(&mut out, Raw::read(result).unwrap().root(), &[]);
            String::from_utf8(out).unwrap()
        };
        let complete = |result: &str| complete_as(false, result);
        let info = our_info("toolman");
        assert_eq!(
            complete(r#"{"x":1.0}"#),
            format!(
                r#"{{"x":1.0,"_meta":{{"{}":{info}}},"resultType":"complete","ttlMs":0,"cacheScope":"private"}}"#,
                meta::SERVER_INFO
            )
        );
        assert_eq!(
            complete(
                r#"{"resultType":"task","ttlMs":9,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":7}}"#
            ),
            r#"{"resultType":"task","ttlMs":9,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":7}}"#
        );
        let kept = r#"{"resultType":"complete","ttlMs":9,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":7}}"#;
        assert_eq!(complete(kept), kept);
        let not_kept = kept.replace("9", "0").replace("public", "private");
        assert_eq!(complete_as(true, kept), not_kept, "it depends on what the retry brought");
    }

    #[test]
    fn what_is_made_of_many_is_kept_no_longer_than_any_part() {
        let read = |result: &str| Cache::read(Raw::read(result).unwrap().root());
        let [long, short] = [600, 60].map(|ttl| read(&format!(r#"{{"ttlMs":{ttl},"cacheScope":"public"}}"#)));
        assert_eq!(long.and(short), short);
        let private = read(r#"{"ttlMs":600,"cacheScope":"private"}"#);
        assert_eq!(long.and(private), private);
        for none in ["{}", r#"{"ttlMs":-1,"cacheScope":"shared"}"#, r#"{"ttlMs":"5"}"#] {
            assert_eq!(read(none), Cache::default(), "{none}");
        }
        assert_eq!(short.members(), r#","ttlMs":60,"cacheScope":"public""#);
    }
}
