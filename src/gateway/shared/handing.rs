//! Requests that only one replica can serve, and how they get there: the replica that a request came to hands it to the
//! home and passes the answer on, with everything that comes before it.
//!
//! Invariant: a request that may have been served is not sent again. If its home is gone, it fails once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::super::Gateway;
use super::super::http::{Caller, Outgoing, Sink};
use super::{CallerKey, Shared};
use crate::config::{Secret, Token};
use crate::core::route::OutgoingKind;
use crate::core::tasks::{TaskNote, home_in};
use crate::core::view::View;
use crate::face::{ToolCall, Wording};
use crate::json::{Node, Raw, quote};
use crate::protocol::message::{Id, Message, Refusal, Request, code, write_result};
use crate::replicas::post::{Arrival, Subject};
use crate::replicas::store::{Away, LONGEST_LIFE};
use crate::replicas::{Handed, Replicas};

/// The most messages of a request that may wait for the replica that handed it. Others than the answer are left out
/// beyond that.
const MOST_PARTS: usize = 1024;
/// How often a request looks for its home before it is refused.
const MOST_TRIES: usize = 50;
/// The pause before it looks again.
const PAUSE: Duration = Duration::from_millis(50);

const AWAY: &str = "the store is away, and this request needs it; try again in a second";
const GONE: &str = "the replica of the gateway that served the call is gone";

/// The tokens whose own servers run here, with the epochs of their entries.
#[derive(Default)]
pub(super) struct Homes(Mutex<HashMap<String, u64>>);

impl Homes {
    fn has(&self, principal: &str) -> bool {
        self.0.lock().contains_key(principal)
    }
}

/// Where a request is to be served.
enum Destination {
    Here,
    /// Here, after the caller's view stands as it does elsewhere.
    HereAfterwards,
    /// At this replica.
    At(String),
    /// Where the caller's own servers are.
    WithOwnServers,
}

/// A request on its way to its home.
#[derive(Serialize, Deserialize)]
struct Traveller {
    key: CallerKey,
    message: String,
    headers: Vec<(String, String)>,
    /// Whether it goes where the caller's own servers are.
    with_own_servers: bool,
}

/// Serves a modern request, here or at its home.
pub(in crate::gateway) fn modern(
    gateway: &Arc<Gateway>,
    shared: &Arc<Shared>,
    caller: Caller,
    message: Message<'_>,
    mirrored: HeaderMap,
    stream: Arc<dyn Sink>,
) -> Box<dyn Send> {
    let Message::Request(request) = &message else {
        return gateway.modern_here(caller, message, mirrored, stream);
    };
    let key = caller.key();
    let place = place_of(gateway, shared, &caller, &key, request);
    if let Destination::Here = place {
        return gateway.modern_here(caller, message, mirrored, stream);
    }
    let headers = mirrored
        .iter()
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())));
    let traveller = Traveller {
        key,
        message: format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":{},\"params\":{}}}",
            request.id.raw(),
            quote(&request.method),
            request.params.map_or("{}", Node::raw)
        ),
        headers: headers.collect(),
        with_own_servers: matches!(place, Destination::WithOwnServers),
    };
    let (gateway, shared) = (gateway.clone(), shared.clone());
    let task = tokio::spawn(async move { route(&gateway, &shared, caller, traveller, place, &stream).await });
    Box::new(Journey(task.abort_handle()))
}

/// A request on its way, given up when this is dropped.
struct Journey(AbortHandle);

impl Drop for Journey {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn place_of(
    gateway: &Arc<Gateway>,
    shared: &Shared,
    caller: &Caller,
    key: &CallerKey,
    request: &Request<'_>,
) -> Destination {
    if shared.has_own_servers(gateway, caller, key) {
        let is_home = shared.homes.has(&key.0) && shared.replicas.is_settled() && shared.is_current(key);
        return if is_home { Destination::Here } else { Destination::WithOwnServers };
    }
    let text = |name| request.params.and_then(|params| params.get(name)).and_then(Node::as_str);
    let home = match &*request.method {
        method if method.starts_with("tasks/") => {
            text("taskId").and_then(|id| home_in(&id).map(str::to_owned))
        }
        _ => text("requestState").and_then(|state| gateway.engine.bridge.parked_at(&state)),
    };
    match home {
        Some(home) if *home != *shared.replicas.id => Destination::At(home),
        _ if shared.is_current(key) => Destination::Here,
        _ => Destination::HereAfterwards,
    }
}

async fn route(
    gateway: &Arc<Gateway>,
    shared: &Shared,
    caller: Caller,
    traveller: Traveller,
    place: Destination,
    stream: &Arc<dyn Sink>,
) {
    let body = serde_json::to_vec(&traveller).expect("plain data");
    for _ in 0..MOST_TRIES {
        let home = match &place {
            Destination::Here | Destination::HereAfterwards => Ok(None),
            Destination::At(home) => match shared.replicas.is_there(home).await {
                Ok(there) => Ok(there.then(|| home.clone())),
                Err(away) => Err(away),
            },
            Destination::WithOwnServers => shared.home_of_own_servers(&traveller.key.0).await,
        };
        let Ok(home) = home else { break };
        let Some(home) = home else {
            if let Destination::At(_) = place {
                shared.adopt_task(gateway, &caller, &traveller).await;
            }
            let Some(_guard) = serve_here(gateway, shared, caller, &traveller, stream.clone()).await else {
                return;
            };
            // It is given up when the client is.
            return std::future::pending().await;
        };
        match hand_over(shared, &home, &body, stream).await {
            Ok(Arrival::Answer(..)) => return,
            Ok(Arrival::Lost | Arrival::CutOff) => return fail(gateway, &caller, &traveller, stream),
            Ok(Arrival::Bounced) => sleep(PAUSE).await,
            Err(_) => break,
        }
    }
    refuse(&traveller, stream, &Refusal::new(code::STORE_AWAY, AWAY));
}

/// Serves a request at this replica. What is returned cancels it when it is dropped.
async fn serve_here(
    gateway: &Arc<Gateway>,
    shared: &Shared,
    caller: Caller,
    traveller: &Traveller,
    stream: Arc<dyn Sink>,
) -> Option<Box<dyn Send>> {
    let workspace = gateway.shared_workspace(&caller)?;
    shared.bring_up_to_date(gateway, &traveller.key, &workspace).await;
    let raw = Raw::read(&*traveller.message).ok()?;
    let message = Message::read(raw.root()).ok()?;
    let headers = traveller.headers.iter().filter_map(|(name, value)| {
        Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
    });
    Some(gateway.modern_here(caller, message, headers.collect(), stream))
}

/// Hands a request to its home and passes on what comes of it, to the last part.
async fn hand_over(
    shared: &Shared,
    home: &str,
    body: &[u8],
    stream: &Arc<dyn Sink>,
) -> Result<Arrival, Away> {
    let mut asking = shared.replicas.ask(home, Subject::Modern, body).await?;
    loop {
        match asking.next().await {
            Arrival::Answer(bytes, last) => {
                if let Some(message) = unpack(&bytes) {
                    stream.send(message);
                }
                if last {
                    return Ok(Arrival::Answer(Vec::new(), true));
                }
            }
            end => return Ok(end),
        }
    }
}

/// Serves a request that another replica handed us.
pub(super) fn serve(gateway: Arc<Gateway>, handed: Handed) {
    tokio::spawn(async move {
        let Some(shared) = gateway.shared.get() else { return handed.bounce().await };
        let traveller = serde_json::from_slice::<Traveller>(&handed.body).ok();
        let Some((traveller, caller)) = traveller.and_then(|traveller| {
            let caller = caller(&gateway, &traveller.key)?;
            Some((traveller, caller))
        }) else {
            return handed.bounce().await;
        };
        shared.replicas.settled().await;
        if traveller.with_own_servers && !shared.homes.has(&traveller.key.0) {
            return handed.bounce().await;
        }
        let (parts, mut waiting) = mpsc::channel(MOST_PARTS);
        let guard = serve_here(&gateway, shared, caller, &traveller, Arc::new(Back(parts))).await;
        if guard.is_none() {
            return handed.bounce().await;
        }
        loop {
            tokio::select! {
                part = waiting.recv() => {
                    // A stream that ends without an answer ends so everywhere.
                    let (part, last) = part.unwrap_or_else(|| (Vec::new(), true));
                    if !handed.part(&part, last).await || last {
                        return;
                    }
                }
                () = handed.gone() => return,
            }
        }
    });
}

/// The caller that another replica let in.
pub(super) fn caller(gateway: &Gateway, (principal, toolbox): &CallerKey) -> Option<Caller> {
    let settings = gateway.engine.settings();
    let known = settings.serving.tokens.iter().find(|token| token.name == *principal);
    let token = match (principal.as_str(), known) {
        ("", _) => None,
        (_, Some(token)) => Some(Arc::new(token.clone())),
        // The only token that does not stand in the file.
        (name, None) => {
            let of_command_line = name == "--auth-token-file";
            Some(Arc::new(of_command_line.then(|| Token {
                name: name.to_owned(),
                token: Secret::new(""),
                scope: None,
            })?))
        }
    };
    Some(Caller { toolbox: toolbox.as_deref().map(Arc::from), token })
}

/// Where messages about a request go that another replica handed us.
struct Back(mpsc::Sender<(Vec<u8>, bool)>);

impl Sink for Back {
    fn send(&self, message: Outgoing<'_>) -> bool {
        let is_answer = message.kind.is_answer();
        // The last place is the answer's.
        (is_answer || self.0.capacity() > 1) && self.0.try_send((pack(&message), is_answer)).is_ok()
    }
}

/// A message as it travels: its kind, and its bytes.
fn pack(message: &Outgoing<'_>) -> Vec<u8> {
    let (kind, code, method) = match message.kind {
        OutgoingKind::Result => (0, 0, ""),
        OutgoingKind::Error(code) => (1, code, ""),
        OutgoingKind::Batch => (2, 0, ""),
        OutgoingKind::Notice(method) => (3, 0, method),
        OutgoingKind::Question => (4, 0, ""),
    };
    let mut packed = vec![kind];
    packed.extend_from_slice(&code.to_le_bytes());
    packed.extend_from_slice(method.as_bytes());
    packed.push(0);
    packed.extend_from_slice(&message.bytes);
    packed
}

fn unpack(packed: &[u8]) -> Option<Outgoing<'_>> {
    let ([kind], rest) = packed.split_first_chunk::<1>()?;
    let (code, rest) = rest.split_first_chunk::<8>()?;
    let at = memchr::memchr(0, rest)?;
    let kind = match kind {
        0 => OutgoingKind::Result,
        1 => OutgoingKind::Error(i64::from_le_bytes(*code)),
        2 => OutgoingKind::Batch,
        3 => OutgoingKind::Notice(str::from_utf8(&rest[..at]).ok()?),
        4 => OutgoingKind::Question,
        _ => return None,
    };
    Some(Outgoing { kind, bytes: rest[at + 1..].to_vec() })
}

fn refuse(traveller: &Traveller, stream: &Arc<dyn Sink>, why: &Refusal) {
    let mut bytes = Vec::new();
    why.write(&mut bytes, id_of(traveller).as_ref());
    stream.send(Outgoing { kind: OutgoingKind::Error(why.code), bytes });
}

fn id_of(traveller: &Traveller) -> Option<Id> {
    Raw::read(&*traveller.message).ok()?.root().get("id").and_then(Id::from_node)
}

/// Fails a request whose home is gone, as if its server had died.
fn fail(gateway: &Gateway, caller: &Caller, traveller: &Traveller, stream: &Arc<dyn Sink>) {
    let (Ok(raw), Some(id)) = (Raw::read(&*traveller.message), id_of(traveller)) else { return };
    let text = |name| raw.root().get("params")?.get(name).and_then(Node::as_str);
    let face = gateway.faces.at(gateway.faces.place_of(&caller.part()).unwrap_or(0));
    let wording = match (raw.root().get("method").map(Node::raw), text("name")) {
        (Some("\"tools/call\""), Some(name)) => {
            let arguments = raw.root().get("params").and_then(|params| params.get("arguments"));
            face.too_late(&View::default(), &ToolCall { name: &name, arguments }, GONE)
        }
        _ => Wording::Error(face.refusal(code::UPSTREAM_LOST, GONE)),
    };
    match wording {
        Wording::Result(result) => {
            let mut bytes = Vec::new();
            let result = Raw::own(result).root().with(&[("resultType", Some("\"complete\""))]);
            write_result(&mut bytes, &id, |out| out.extend_from_slice(result.as_bytes()));
            stream.send(Outgoing { kind: OutgoingKind::Result, bytes });
        }
        Wording::Error(why) => refuse(traveller, stream, &why),
        Wording::AsItCame => refuse(traveller, stream, &Refusal::new(code::UPSTREAM_LOST, GONE)),
    }
}

impl Shared {
    /// The replica that runs a caller's own servers; `None` if it is this one, from now on if need be.
    async fn home_of_own_servers(&self, principal: &str) -> Result<Option<String>, Away> {
        let key = own_servers(principal);
        for _ in 0..MOST_TRIES {
            let (seen, entry) = self.replicas.look(&key).await?;
            match entry {
                Some(entry) if *entry.owner == *self.replicas.id => {
                    self.homes.0.lock().insert(principal.to_owned(), entry.epoch);
                    return Ok(None);
                }
                Some(entry) if self.replicas.is_there(&entry.owner).await? => return Ok(Some(entry.owner)),
                _ => {}
            }
            if let Some(epoch) = self.replicas.swap(&key, seen, &self.replicas.id, &[], LONGEST_LIFE).await? {
                self.homes.0.lock().insert(principal.to_owned(), epoch);
                return Ok(None);
            }
        }
        Err(Away("nobody can say where the caller's own servers are".to_owned()))
    }

    /// Seals what says that homes are here with the key that is in force now.
    pub(super) async fn seal_homes_anew(&self) -> Result<(), Away> {
        let homes: Vec<(String, u64)> =
            self.homes.0.lock().iter().map(|(principal, epoch)| (own_servers(principal), *epoch)).collect();
        for (key, epoch) in homes {
            self.replicas.write(&key, epoch, &[], LONGEST_LIFE).await?;
        }
        Ok(())
    }

    /// Lets others have the homes that are here, since this replica ends.
    pub(in crate::gateway) fn leave_homes(self: &Arc<Self>) {
        let homes: Vec<String> =
            self.homes.0.lock().drain().map(|(principal, _)| own_servers(&principal)).collect();
        if !homes.is_empty() {
            let shared = self.clone();
            tokio::spawn(async move { shared.replicas.remove(&homes).await });
        }
    }

    /// Takes a task over that was begun at a replica which is gone, if its server is one that outlives replicas.
    async fn adopt_task(&self, gateway: &Arc<Gateway>, caller: &Caller, traveller: &Traveller) {
        let Ok(raw) = Raw::read(&*traveller.message) else { return };
        let id = raw.root().get("params").and_then(|params| params.get("taskId")).and_then(Node::as_str);
        let (Some(id), Some(workspace)) = (id, gateway.shared_workspace(caller)) else { return };
        self.bring_up_to_date(gateway, &traveller.key, &workspace).await;
        let entry = self.replicas.read(&task_entry(&traveller.key, &id)).await;
        let note =
            entry.ok().flatten().and_then(|entry| serde_json::from_slice::<TaskNote>(&entry.value).ok());
        let Some(note) = note else { return };
        let upstream =
            workspace.read(|view| view.server(&note.group, &note.server).map(|entry| entry.upstream.clone()));
        if let Some(upstream) = upstream {
            workspace.tasks.adopt(&note, &upstream);
        }
    }

    /// Lets every replica know of a task whose server outlives this one.
    pub(in crate::gateway) fn note_task(self: &Arc<Self>, key: &CallerKey, note: &TaskNote, life: Duration) {
        let (shared, entry) = (self.clone(), task_entry(key, &note.id));
        let value = serde_json::to_vec(note).expect("plain data");
        tokio::spawn(async move { shared.replicas.swap(&entry, 0, "", &value, life).await });
    }
}

fn own_servers(principal: &str) -> String {
    format!("own:{}", Replicas::digest(&[principal]))
}

fn task_entry((principal, toolbox): &CallerKey, id: &str) -> String {
    format!("task:{}", Replicas::digest(&[principal, toolbox.as_deref().unwrap_or("/"), id]))
}

/// Gives up the homes that others have taken, and claims again those that the store has forgotten.
pub(super) async fn give_up_lost_homes(gateway: &Gateway, shared: &Shared) -> Result<(), Away> {
    let homes: Vec<(String, u64)> =
        shared.homes.0.lock().iter().map(|(principal, epoch)| (principal.clone(), *epoch)).collect();
    let keys: Vec<String> = homes.iter().map(|(principal, _)| own_servers(principal)).collect();
    let epochs = shared.replicas.epochs(&keys).await?;
    for ((principal, epoch), now) in homes.into_iter().zip(epochs) {
        if now == epoch {
            continue;
        }
        shared.homes.0.lock().remove(&principal);
        if now == 0 && shared.home_of_own_servers(&principal).await?.is_none() {
            continue;
        }
        gateway.let_go(|(other, _)| *other == principal);
        shared.views.retain(|view| view.workspace.owner.principal != principal);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_as_it_was_sent() {
        for kind in [
            OutgoingKind::Result,
            OutgoingKind::Error(-32000),
            OutgoingKind::Batch,
            OutgoingKind::Notice("notifications/progress"),
            OutgoingKind::Question,
        ] {
            let packed = pack(&Outgoing { kind, bytes: b"{\"a\":\"\0\"}".to_vec() });
            let unpacked = unpack(&packed).expect("it was packed");
            assert_eq!((unpacked.kind, &*unpacked.bytes), (kind, &b"{\"a\":\"\0\"}"[..]));
        }
        assert!([&[][..], &[0], &[9; 12]].iter().all(|broken| unpack(broken).is_none()));
    }
}
