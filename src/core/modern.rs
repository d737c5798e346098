//! Requests of the modern era: their metadata, the completion of their results, and the listeners for
//! changes. The gateway's table of methods reads the metadata, replies complete results with it, and
//! workspaces notify listeners.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use parking_lot::Mutex;

use super::reply::Reply;
use super::session::{ClientSession, Ticket};
use super::upstream::Upstream;
use crate::catalog::Kind;
use crate::json::{Changes, MemberChange, Node, quote};
use crate::protocol::era::{ModernMeta, TASKS, can_be_asked, declares_at, meta, our_info, renders_apps};
use crate::protocol::message::{Id, Refusal, Request};

/// What a modern client says about itself in each of its requests, read once while it says the same.
#[derive(Debug)]
pub struct ModernClient {
    /// What the client calls itself; empty if it does not say.
    pub name: Box<str>,
    /// The version that the client says it has; empty if it does not say.
    pub client_version: Box<str>,
    /// When the client was first heard of.
    pub since: SystemTime,
    /// The raw capabilities object.
    pub capabilities: Box<str>,
    /// Whether the client renders apps.
    pub renders_apps: bool,
    /// Whether the client accepts any kind of question.
    pub can_be_asked: bool,
    /// The name under which we answer.
    server: &'static str,
    /// The `_meta` of a result that has none of its own, which says who we are.
    result_meta: String,
}

impl ModernClient {
    fn new(name: &str, client_version: &str, capabilities: &str, server: &'static str) -> Self {
        Self {
            name: name.into(),
            client_version: client_version.into(),
            since: SystemTime::now(),
            capabilities: capabilities.into(),
            renders_apps: renders_apps(capabilities),
            can_be_asked: can_be_asked(capabilities),
            server,
            result_meta: format!("{{\"{}\":{}}}", meta::SERVER_INFO, our_info(server)),
        }
    }

    /// Whether the client accepts a task as an answer.
    pub fn can_wait(&self) -> bool {
        declares_at(&self.capabilities, &["extensions", TASKS])
    }
}

/// The modern client that spoke last. Most requests come from one that has spoken before.
#[derive(Default)]
pub struct LastModern(Mutex<Option<Spoken>>);

/// The longest `_meta` that is kept.
const LONGEST_META: usize = 2048;

/// What the last modern request said.
struct Spoken {
    /// The whole `_meta`, which was checked.
    meta: String,
    /// What most requests with this `_meta` amount to.
    call: Arc<ModernCall>,
}

impl LastModern {
    /// The client that spoke last.
    pub fn last(&self) -> Option<Arc<ModernClient>> {
        self.0.lock().as_ref().map(|spoken| spoken.call.client.clone())
    }

    /// What a request with this `_meta` amounts to, if it is no retry and its result cannot be cached.
    fn call(
        &self,
        meta: ModernMeta<'_>,
        server: impl FnOnce() -> &'static str,
    ) -> Result<Arc<ModernCall>, Refusal> {
        let mut last = self.0.lock();
        if let Some(spoken) = last.as_ref().filter(|spoken| spoken.meta == meta.raw()) {
            return Ok(spoken.call.clone());
        }
        let (capabilities, log_level) = meta.checked()?;
        let (name, capabilities) = (meta.client_name(), capabilities.raw());
        let is_same = |client: &ModernClient| *client.name == *name && *client.capabilities == *capabilities;
        let (mut known, client) = match last.take() {
            Some(Spoken { meta, call }) if is_same(&call.client) => (meta, call.client.clone()),
            _ => {
                let version = meta.client_version();
                (String::new(), Arc::new(ModernClient::new(&name, &version, capabilities, server())))
            }
        };
        known.clear();
        // No object is empty, so nothing equals what was too long to be kept.
        known.push_str(if meta.raw().len() <= LONGEST_META { meta.raw() } else { "" });
        let wants_progress = meta.wants_progress();
        let call =
            Arc::new(ModernCall { client, log_level, wants_progress, cacheable: false, is_retry: false });
        *last = Some(Spoken { meta: known, call: call.clone() });
        Ok(call)
    }
}

/// The metadata of a modern request.
#[derive(Debug)]
pub struct ModernCall {
    /// The client.
    pub client: Arc<ModernClient>,
    /// The lowest severity of log messages that the client wants; `None` means no messages.
    pub log_level: Option<usize>,
    /// Whether the request asks for progress.
    pub(super) wants_progress: bool,
    /// Whether results of the method say how long they may be cached.
    cacheable: bool,
    /// Whether the request brings answers that were asked for, so that its result is of no use to anybody
    /// else.
    pub is_retry: bool,
}

/// A hint on caching a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cache {
    /// The lifetime in milliseconds.
    pub ttl: u64,
    /// Whether the result is the same for every caller.
    pub public: bool,
}

impl Cache {
    /// The hint in a modern upstream's result. A result without one may not be cached.
    pub fn read(result: Node<'_>) -> Self {
        Self {
            ttl: result.get("ttlMs").and_then(|ttl| ttl.raw().parse().ok()).unwrap_or(0),
            public: result.get("cacheScope").is_some_and(|scope| scope.raw() == "\"public\""),
        }
    }

    /// The hint for a result made from both.
    pub fn and(self, other: Self) -> Self {
        Self { ttl: self.ttl.min(other.ttl), public: self.public && other.public }
    }

    /// The members of a result, after a comma.
    fn members(self) -> String {
        format!(",\"ttlMs\":{},\"cacheScope\":{}", self.ttl, self.scope())
    }

    /// The scope as JSON.
    fn scope(self) -> &'static str {
        if self.public { "\"public\"" } else { "\"private\"" }
    }
}

impl ModernCall {
    /// Checks the metadata of a request; `None` for a legacy request, which has none. `server` is the name
    /// under which we answer, which is the same for all requests of a workspace.
    pub fn read(
        request: &Request<'_>,
        last: &LastModern,
        server: impl FnOnce() -> &'static str,
    ) -> Result<Option<Arc<Self>>, Refusal> {
        let Some(meta) = request.meta else { return Ok(None) };
        let call = last.call(meta, server)?;
        let params = request.params.unwrap_or_else(Node::empty);
        let cacheable = is_cacheable(&request.method);
        let is_retry = params.has_any(&["inputResponses", "requestState"]);
        Ok(Some(match cacheable || is_retry {
            true => Arc::new(Self { client: call.client.clone(), cacheable, is_retry, ..*call }),
            false => call,
        }))
    }

    /// Writes the result with these changes and with what the modern era adds. Values from the upstream are
    /// kept.
    pub(super) fn complete(&self, out: &mut Vec<u8>, result: Node<'_>, changes: &[MemberChange<'_>]) {
        let (info, with_info);
        let own_meta = match result.get("_meta") {
            None => Some(&*self.client.result_meta),
            Some(given) if given.get(meta::SERVER_INFO).is_some() => None,
            Some(given) => {
                info = our_info(self.client.server);
                with_info = given.with(&[(meta::SERVER_INFO, Some(&info))]);
                Some(&*with_info)
            }
        };
        let mut changes = Changes::new(changes);
        if own_meta.is_some() {
            changes.add("_meta", own_meta);
        }
        let kind = result.get("resultType");
        if kind.is_none() {
            changes.add("resultType", Some("\"complete\""));
        }
        let asks = kind.is_some_and(|kind| kind.is(b"\"input_required\""));
        if self.cacheable && !asks {
            if self.is_retry || result.get("ttlMs").is_none() {
                changes.add("ttlMs", Some("0"));
            }
            if self.is_retry || result.get("cacheScope").is_none() {
                changes.add("cacheScope", Some(Cache::default().scope()));
            }
        }
        result.write_with(out, &changes);
    }

    /// Appends what the modern era adds to a result of our own that lacks it and may be cached.
    pub(super) fn write_own_members(&self, out: &mut Vec<u8>, hint: Cache) {
        let hint = if self.is_retry { Cache::default() } else { hint }.members();
        let members = format!(",\"_meta\":{},\"resultType\":\"complete\"{hint}", self.client.result_meta);
        out.extend_from_slice(members.as_bytes());
    }
}

/// Whether results of the method carry a hint on caching.
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

/// Something that is watched at an upstream, under the upstream's own name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watched {
    /// A resource, by its URI.
    Resource(String),
    /// A task, by its id.
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
    /// The watched things that exist: by the client's name for each, its upstream and the upstream's name.
    pub watched: HashMap<String, (Arc<Upstream>, Watched)>,
    /// Sends the answer when we end the subscription.
    reply: Option<Reply>,
}

impl Listener {
    /// Reads the filter of a `subscriptions/listen` and acknowledges it as the first message on its stream;
    /// `None` if the client has cancelled the request in the meantime.
    ///
    /// Invariant: this relies on one thread. A change between the acknowledgement and
    /// [`Workspace::listen`](super::workspace::Workspace::listen) would not be reported.
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

    /// Whether the client renders apps.
    pub(super) fn renders_apps(&self) -> bool {
        self.renders_apps
    }

    /// The URIs that the client wants to hear about.
    pub fn resources(&self) -> Vec<String> {
        self.resources.clone()
    }

    /// Whether the client wants to hear about this URI.
    pub fn wants(&self, uri: &str) -> bool {
        self.resources.iter().any(|own| own == uri)
    }

    /// Notifies the client of changed lists, as far as it asked for them.
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

    /// Notifies the client of an updated resource, if it asked for it.
    pub fn resource_updated(&self, uri: &str) {
        if self.wants(uri) {
            self.send("notifications/resources/updated", &format!(",\"uri\":{}", quote(uri)));
        }
    }

    /// The tasks that the client wants to hear about.
    pub fn tasks(&self) -> Vec<String> {
        self.tasks.clone()
    }

    /// Notifies the client of a changed task, if it asked for it. `params` are the upstream's.
    pub fn task_changed(&self, id: &str, params: Node<'_>) {
        if !self.tasks.iter().any(|own| own == id) {
            return;
        }
        let given = params.get("_meta").unwrap_or_else(Node::empty);
        let own_meta = given.with(&[(meta::SUBSCRIPTION, Some(&self.id.raw()))]);
        if let Some(session) = self.session.upgrade() {
            session.notify(self.key(), "notifications/tasks", |out| {
                params.write_with(out, &[("_meta", Some(&own_meta)), ("taskId", Some(&quote(id)))]);
            });
        }
    }

    /// Whether this is the listener with this id.
    pub fn belongs_to(&self, session: &ClientSession, id: &Id) -> bool {
        self.id == *id && std::ptr::eq(self.session.as_ptr(), session)
    }

    /// Ends the subscription from our side, with the completion response.
    pub fn finish(mut self) {
        if let Some(reply) = self.reply.take() {
            reply.result(&format!("{{\"_meta\":{{\"{}\":{}}}}}", meta::SUBSCRIPTION, self.id.raw()));
        }
    }

    fn key(&self) -> Option<Ticket> {
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

/// The strings in a member that is a list of them.
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

    fn read(method: &str, params: &str) -> Result<Option<Arc<ModernCall>>, Refusal> {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let raw = Raw::read(text).expect("JSON");
        match Message::read(raw.root()) {
            Ok(Message::Request(request)) => ModernCall::read(&request, &LastModern::default(), || "toolman"),
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
        assert_eq!(&*read("tools/list", modern).unwrap().unwrap().client.capabilities, r#"{"roots":{}}"#);
    }

    #[test]
    fn results_are_completed_and_keep_what_they_had() {
        let complete_as = |is_retry: bool, result: &str| {
            let call = ModernCall {
                client: Arc::new(ModernClient::new("", "", "{}", "toolman")),
                log_level: None,
                wants_progress: false,
                cacheable: true,
                is_retry,
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
    fn a_client_is_known_again_and_what_changes_is_read_again() {
        let last = LastModern::default();
        let spoken = |version: &str, name: &str, more: &str| {
            let params = format!(
                r#"{{"_meta":{{"{}":"{version}","{}":{{"name":"{name}"}},"{}":{{}}{more}}}}}"#,
                meta::VERSION,
                meta::CLIENT_INFO,
                meta::CAPABILITIES,
            );
            let params = Raw::read(params).unwrap();
            let meta = ModernMeta::read(Some(params.root())).unwrap().expect("it is modern");
            let call = last.call(meta, || "toolman").ok()?;
            Some((call.client.clone(), call.log_level))
        };
        let level = |level: &str| format!(",\"{}\":\"{level}\"", meta::LOG_LEVEL);
        let (first, none) = spoken("2026-07-28", "a", "").expect("it is valid");
        assert_eq!(none, None);
        let long = format!(",\"x\":\"{}\"", "x".repeat(LONGEST_META));
        for (more, expected) in [
            (String::new(), None),
            (",\"progressToken\":1".to_owned(), None),
            (level("debug"), Some(0)),
            (level("error"), Some(4)),
            (long, None),
            (String::new(), None),
        ] {
            for _ in 0..2 {
                let (client, level) = spoken("2026-07-28", "a", &more).expect("it is valid");
                assert_eq!(level, expected, "{more}");
                assert!(Arc::ptr_eq(&client, &first), "it is the same client, which has said more: {more}");
            }
            assert!(last.0.lock().as_ref().unwrap().meta.len() <= LONGEST_META);
        }
        for _ in 0..2 {
            assert!(spoken("2099-01-01", "a", "").is_none(), "what is refused is refused again");
            assert!(spoken("2026-07-28", "a", &level("loud")).is_none());
        }
        let (other, _) = spoken("2026-07-28", "b", "").expect("it is valid");
        assert_eq!((&*other.name, &*last.last().unwrap().name), ("b", "b"));
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
