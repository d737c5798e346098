//! A session that stood elsewhere goes on here: in the daemon after its death, at another replica, or without a daemon.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Gateway;
use super::startup::stand_in;
use crate::catalog::Kind;
use crate::core::record::Record;
use crate::core::route::Route;
use crate::core::session::ClientSession;
use crate::core::view::Entry;
use crate::core::workspace::Workspace;
use crate::face::Then;
use crate::json::{Raw, quote};
use crate::protocol::message::Message;

/// How long the subscriptions of a session that goes on elsewhere may take.
const LONGEST_RESTORE: Duration = Duration::from_secs(5);

/// Opens and switches what a session had open and switched.
pub(super) async fn reopen(gateway: &Arc<Gateway>, workspace: &Arc<Workspace>, record: &Record) {
    let switched = |wanted: bool| {
        record.switched.each_ref().map(|names| {
            let names = names.iter().filter(|(_, on)| **on == wanted);
            names.map(|(name, _)| name.as_str().into()).collect::<Vec<Arc<str>>>()
        })
    };
    workspace.change(|view| view.switch(&switched(true), &switched(false)));
    let face = gateway.faces.of(workspace);
    let groups = face.groups();
    let closed = workspace.read(|view| {
        let closed = |group: &&String| groups.contains(&group.as_str()) && !view.is_open(group);
        record.open.iter().filter(closed).collect::<Vec<_>>()
    });
    if closed.is_empty() {
        return;
    }
    // Memory is read before any server has run: what servers offer now says nothing about the late ones.
    let recalled = gateway.recall_definitions(&*face);
    // All start at the same time, and are opened in their order.
    for server in face.servers().iter().filter(|server| closed.iter().any(|group| *group == server.group)) {
        let upstream = gateway.upstream(workspace, server);
        if !upstream.is_at_rest(workspace.listing()) {
            upstream.take_surroundings_of(workspace);
            let _ = upstream.start();
        }
    }
    for group in closed {
        // It was open, and stays so even if its servers do not start now.
        workspace.change(|view| view.open_in_place(group));
        let _ = gateway.open_group(workspace, group, &Then::Request).await;
    }
    // The client knows the tools of servers that are late, and need not see them go and come back.
    let is_late = |entry: &Entry| !entry.upstream.is_up() && !entry.upstream.has_failed();
    if workspace.read(|view| view.entries().any(is_late)) {
        stand_in(&recalled.await, workspace);
    }
}

/// Repeats the requests by which a session came to stand as it did. Nobody hears the answers; the client is
/// told once that its lists may have changed.
pub(super) async fn restore(gateway: &Arc<Gateway>, session: &Arc<ClientSession>, record: &Record) {
    let mut requests = Vec::new();
    requests.extend(record.hello.as_ref().map(|hello| ("initialize", hello.clone())));
    requests.extend(record.level.as_ref().map(|level| ("logging/setLevel", level.clone())));
    let subscribe = |uri: &String| ("resources/subscribe", format!("{{\"uri\":{}}}", quote(uri)));
    requests.extend(record.subscriptions.iter().map(subscribe));
    for (number, (method, params)) in requests.into_iter().enumerate() {
        let id = format!("\"mcp-workbench/restored/{number}\"");
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        gateway.take(session, Message::read(Raw::own(text).root()), Some(Route::Nowhere), None);
    }
    let _ = timeout(LONGEST_RESTORE, session.answered()).await;
    let face = gateway.face(session);
    if session.hello().is_none() || (record.open.is_empty() && face.starts_all().is_none()) {
        return;
    }
    let mut told = Vec::new();
    for kind in Kind::ALL {
        let method = kind.changed_method();
        if face.lists(session.hello(), kind) && !told.contains(&method) {
            told.push(method);
            session.notify(None, method, |_| ());
        }
    }
}
