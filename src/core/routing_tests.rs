//! Routing against a simple model: whatever clients, servers and chance do, every request is answered once, by its own
//! answer or an error, and never after its cancellation.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::carrier;
use super::connection::Connection;
use super::engine::{Engine, Surroundings};
use super::reply::Reply;
use super::route::{Outgoing, Route, Sink};
use super::session::ClientSession;
use super::upstream::{Spec, Upstream};
use super::view::{Exposure, Renderer};
use super::workspace::Workspace;
use crate::catalog::{Items, Kind, NameLimits};
use crate::config::{self, Isolation, NameRule};
use crate::json::Scanner;
use crate::protocol::era::ClientHello;
use crate::protocol::message::{Id, code};
use crate::transport::lines::Line;
use crate::transport::peer::Answer;

const SESSIONS: usize = 2;
const UPSTREAMS: usize = 2;
/// Where requests are that wait with us, beside the servers.
const HERE: usize = UPSTREAMS;

/// What happens next.
#[derive(Debug, Clone)]
enum RoutingEvent {
    /// A client calls a server under an id that may be in use.
    Call { session: usize, id: usize, upstream: usize },
    /// A client asks for what waits with us, under an id that may be in use.
    Hold { session: usize, id: usize },
    /// One of those that wait with us, or waited, gets our answer.
    Release { id: u64 },
    /// A server answers one of its requests, or one that never was; the life before may still have something to say.
    Answer { upstream: usize, id: u64, error: bool, stale: bool },
    /// A client cancels a request, which it may never have made.
    Cancel { session: usize, id: usize },
    /// A server ends, and is there again.
    Crash { upstream: usize },
    /// A server writes what is no message.
    Noise { upstream: usize },
}

fn step() -> impl Strategy<Value = RoutingEvent> {
    let (session, id, upstream) = (0..SESSIONS, 0..IDS.len(), 0..UPSTREAMS);
    prop_oneof![
        6 => (session.clone(), id.clone(), upstream.clone())
            .prop_map(|(session, id, upstream)| RoutingEvent::Call { session, id, upstream }),
        2 => (session.clone(), id.clone()).prop_map(|(session, id)| RoutingEvent::Hold { session, id }),
        2 => (0..12u64).prop_map(|id| RoutingEvent::Release { id }),
        6 => (upstream.clone(), 0..12u64, any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(upstream, id, error, stale)| RoutingEvent::Answer { upstream, id, error, stale }),
        2 => (session, id).prop_map(|(session, id)| RoutingEvent::Cancel { session, id }),
        1 => upstream.clone().prop_map(|upstream| RoutingEvent::Crash { upstream }),
        1 => upstream.prop_map(|upstream| RoutingEvent::Noise { upstream }),
    ]
}

/// Ids that clients use; all of them use the same ones, and a number is not its text.
const IDS: [&str; 5] = ["1", "\"1\"", "2", "\"2\"", "3.0"];

/// What a client is told: the id, and a word for the outcome.
type Told = (String, String);

/// What should happen.
#[derive(Default)]
struct Model {
    /// Open requests of clients: where each went, and under which id.
    open: BTreeMap<(usize, usize), (usize, u64)>,
    /// The id that each server's last request has, and the number of the last that waits with us.
    last: [u64; UPSTREAMS + 1],
    told: [Vec<Told>; SESSIONS],
}

impl Model {
    fn take(&mut self, step: &RoutingEvent) {
        let mut tell =
            |session: usize, id: &str, what: String| self.told[session].push((id.to_owned(), what));
        match *step {
            RoutingEvent::Hold { session, id } => {
                self.take(&RoutingEvent::Call { session, id, upstream: HERE })
            }
            RoutingEvent::Release { id } => {
                self.take(&RoutingEvent::Answer { upstream: HERE, id, error: false, stale: false });
            }
            RoutingEvent::Call { session, id, upstream } => {
                if self.open.contains_key(&(session, id)) {
                    return tell(session, "null", format!("error {}", code::INVALID_REQUEST));
                }
                self.last[upstream] += 1;
                self.open.insert((session, id), (upstream, self.last[upstream]));
            }
            RoutingEvent::Answer { stale: true, .. } | RoutingEvent::Noise { .. } => {}
            RoutingEvent::Answer { upstream, id, error, stale: false } => {
                let found = self.open.iter().find(|(_, target)| **target == (upstream, id));
                if let Some((&(session, own), _)) = found {
                    let what = if error { format!("error {id}") } else { format!("result {upstream}-{id}") };
                    self.open.remove(&(session, own));
                    self.told[session].push((IDS[own].to_owned(), what));
                }
            }
            RoutingEvent::Cancel { session, id } => drop(self.open.remove(&(session, id))),
            RoutingEvent::Crash { upstream } => {
                self.last[upstream] = 0;
                let lost: Vec<_> = self.open.extract_if(.., |_, target| target.0 == upstream).collect();
                // In the order in which they were sent.
                let mut lost: Vec<_> = lost.into_iter().map(|(who, target)| (target.1, who)).collect();
                lost.sort_unstable();
                for (_, (session, id)) in lost {
                    tell(session, IDS[id], format!("error {}", code::UPSTREAM_LOST));
                }
            }
        }
    }
}

/// What really happens.
struct World {
    engine: Arc<Engine>,
    upstreams: Vec<Arc<Upstream>>,
    /// The life before this one.
    before: HashMap<usize, Arc<Connection>>,
    /// What waits with us, and gaps where it was answered.
    held: Vec<Option<Reply>>,
    clients: Vec<(Arc<ClientSession>, Arc<Heard>)>,
}

/// What a client has heard.
#[derive(Default)]
struct Heard(Mutex<Vec<Told>>);

impl Sink for Heard {
    fn send(&self, message: Outgoing<'_>) -> bool {
        let message: serde_json::Value = serde_json::from_slice(&message.bytes).expect("a message");
        let what = match message.get("result") {
            Some(result) => format!("result {}", result["mark"].as_str().unwrap_or("?")),
            None => format!("error {}", message["error"]["code"]),
        };
        self.0.lock().push((message["id"].to_string(), what));
        true
    }
}

impl World {
    fn new() -> Self {
        let (config, _) =
            config::load(Path::new("x"), br#"{"toolboxes":{}}"#, &config::Inputs::of(&|_| None))
                .expect("it is valid");
        let around = Surroundings::of_tests();
        let upstreams: Vec<_> = (0..UPSTREAMS).map(|n| Upstream::unreal("box", &n.to_string())).collect();
        for upstream in &upstreams {
            upstream.pretend(Some(Items::default()));
        }
        let clients = (0..SESSIONS).map(|_| {
            let heard = Arc::new(Heard::default());
            let workspace = Workspace::new("", 0, Arc::new(Unseen), None, &Arc::default());
            (ClientSession::new(workspace, Route::Stream(heard.clone())), heard)
        });
        Self {
            engine: Engine::new(config.common, around),
            upstreams,
            before: HashMap::new(),
            held: Vec::new(),
            clients: clients.collect(),
        }
    }

    fn take(&mut self, step: &RoutingEvent) {
        match *step {
            RoutingEvent::Call { session, id, upstream } => {
                self.call(session, IDS[id], upstream, |answer, reply| match answer {
                    Answer::Result(result) => reply.result(result.raw()),
                    Answer::Error(error) => reply.raw_error(error),
                    Answer::Lost(lost) => reply.error(lost.code, &lost.message, None),
                })
            }
            RoutingEvent::Hold { session, id } => {
                let reply = self.accept(session, IDS[id]);
                self.held.extend(reply.map(Some));
            }
            RoutingEvent::Release { id } => {
                let held = self.held.get_mut((id as usize).wrapping_sub(1));
                if let Some(reply) = held.and_then(Option::take) {
                    reply.result(&format!(r#"{{"mark":"{HERE}-{id}"}}"#));
                }
            }
            RoutingEvent::Answer { upstream, id, error, stale } => {
                let connection = match stale {
                    true => self.before.get(&upstream).cloned(),
                    false => self.upstreams[upstream].connection(),
                };
                let outcome = match error {
                    true => format!(r#""error":{{"code":{id},"message":"m"}}"#),
                    false => format!(r#""result":{{"mark":"{upstream}-{id}"}}"#),
                };
                if let Some(connection) = connection {
                    self.line(&connection, &format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#));
                }
            }
            RoutingEvent::Cancel { session, id } => {
                let id = Id::from_raw(IDS[id]).expect("an id");
                if let Some((connection, ours)) = self.clients[session].0.cancel(&id) {
                    connection.peer.forget(ours);
                }
            }
            RoutingEvent::Crash { upstream } => {
                let connection = self.upstreams[upstream].connection().expect("it is up");
                connection.stop("it ended");
                self.upstreams[upstream].pretend(None);
                self.upstreams[upstream].pretend(Some(Items::default()));
                self.before.insert(upstream, connection);
            }
            RoutingEvent::Noise { upstream } => {
                let connection = self.upstreams[upstream].connection().expect("it is up");
                self.line(&connection, r#"{"jsonrpc":"2.0","id":1,"method":"#);
            }
        }
    }

    fn call(
        &self,
        session: usize,
        id: &str,
        upstream: usize,
        finish: impl FnOnce(Answer<'_>, Reply) + Send + 'static,
    ) {
        let Some(reply) = self.accept(session, id) else { return };
        let mut scanner = Scanner::default();
        let params = scanner.scan_str(r#"{"name":"tool"}"#).expect("JSON").root();
        self.engine.forward(&self.upstreams[upstream], "tools/call", params, &[], reply, finish);
    }

    fn accept(&self, session: usize, id: &str) -> Option<Reply> {
        self.clients[session].0.accept(Id::from_raw(id).expect("an id"), None, None, None)
    }

    fn line(&self, connection: &Arc<Connection>, line: &str) {
        carrier::take(&self.engine, connection, &mut Scanner::default(), Line::Whole(line.as_bytes()), None);
    }

    fn told(&self) -> Vec<Vec<Told>> {
        self.clients.iter().map(|(_, heard)| heard.0.lock().clone()).collect()
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

proptest! {
    #[test]
    fn every_request_is_answered_once_by_its_own_answer(steps in prop::collection::vec(step(), 0..80)) {
        runtime().block_on(async {
            let (mut world, mut model) = (World::new(), Model::default());
            for step in &steps {
                world.take(step);
                model.take(step);
                prop_assert_eq!(world.told(), model.told.to_vec(), "after {:?}", step);
            }
            let open: Vec<_> = world.upstreams.iter().map(|upstream| upstream.connection().expect("up").peer.open_count()).collect();
            let expected: Vec<_> =
                (0..UPSTREAMS).map(|n| model.open.values().filter(|target| target.0 == n).count()).collect();
            prop_assert_eq!(open, expected, "nothing is left behind");
            Ok(())
        })?;
    }
}

#[test]
fn a_panic_over_an_answer_fails_that_request_and_nothing_else() {
    runtime().block_on(async {
        let world = World::new();
        world.call(0, "1", 0, |_, _| panic!("injected"));
        world.call(0, "2", 0, |_, reply| reply.result(r#"{"mark":"fine"}"#));
        let connection = world.upstreams[0].connection().expect("it is up");
        for id in 1..=2 {
            world.line(&connection, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
        }
        let internal = format!("error {}", code::INTERNAL);
        let expected = [("1".to_owned(), internal), ("2".to_owned(), "result fine".to_owned())];
        assert_eq!(world.told()[0], expected);
    });
}

#[test]
fn an_isolated_server_is_known_in_every_window_of_its_client() {
    runtime().block_on(async {
        let engine = World::new().engine;
        let workspace = |client| engine.workspace("", 0, Arc::new(Unseen), client, None);
        let one = workspace(None);
        let (other, stranger) = (workspace(Some(one.client)), workspace(None));
        let spec =
            Spec { isolation: Some(Isolation::Session), ..(*Upstream::unreal("box", "s").spec()).clone() };
        let upstream = engine.upstream(&one, "box", "s", "box", spec.clone());
        let known = |workspace| engine.registry.known(workspace, "box", "s", &spec);
        assert!(known(&other).is_some_and(|known| Arc::ptr_eq(&known, &upstream)));
        assert!(known(&stranger).is_none());
    });
}

#[test]
fn nothing_is_opened_for_a_client_that_is_gone() {
    runtime().block_on(async {
        let engine = World::new().engine;
        let workspace = engine.workspace("", 0, Arc::new(Unseen), None, None);
        let spec = (*Upstream::unreal("box", "s").spec()).clone();
        let upstream = engine.upstream(&workspace, "box", "s", "box", spec.clone());
        engine.discard(&workspace);
        assert!(engine.open(&workspace, "box", &[upstream]).await.is_none());
        assert!(engine.registry.known(&workspace, "box", "s", &spec).is_none(), "nobody would ever end it");
        assert_eq!(workspace.read(|view| view.entries().count()), 0);
    });
}

/// A face that shows nothing.
pub(super) struct Unseen;

impl Exposure for Unseen {
    fn full_name(&self, _: &Upstream, _: Kind, key: &str) -> String {
        key.to_owned()
    }

    fn renderer<'a>(&'a self, _: &'a Upstream, _: Kind) -> Renderer<'a> {
        Box::new(|_, definition, out| out.extend_from_slice(definition.raw().as_bytes()))
    }

    fn allows(&self, _: &Upstream, _: Kind, _: &str) -> bool {
        false
    }

    fn starts_active(&self, _: &[&str], _: &dyn Fn(&str) -> bool) -> bool {
        false
    }

    fn limits(&self, _: &str) -> NameLimits {
        NameLimits { rule: NameRule::Safe, length: 64, reserved: None }
    }

    fn lists(&self, _: Option<&ClientHello>, _: Kind) -> bool {
        false
    }
}
