//! A new file is put in force while clients are there. What changes does so at once and in one piece; what has to start
//! or end does that afterwards. Each client hears of the lists that are not what they were, once where nothing is slow.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::timeout;

use super::{Configured, Gateway};
use crate::catalog::Kind;
use crate::core::opening::{Hush, start_and_settle};
use crate::core::session::Session;
use crate::core::upstream::Upstream;
use crate::core::window::Window;
use crate::faces::{Declared, Face, Viewer};

/// What starts within this time is told of together with what has changed at once. Who is later is announced by itself.
const TOGETHER: Duration = Duration::from_secs(1);

/// What has to start and end after a new file was put in force.
#[derive(Default)]
struct Moves {
    /// Servers that are new in a toolbox that is open.
    added: Vec<Arc<Upstream>>,
    /// Servers that end, and those that take their place.
    replaced: Vec<(Arc<Upstream>, Vec<Arc<Upstream>>)>,
}

/// Puts a new file in force. What has to start and end because of it does that beside everything else.
pub(super) fn reload(gateway: &Arc<Gateway>, configured: Configured) {
    let before = pictures(gateway);
    *gateway.switch_file.write() = configured.switch_file;
    let moves = Moves::put_in_force(gateway, configured.face);
    let news = if gateway.engine.audience.is_quiet() { Vec::new() } else { differences(gateway, &before) };
    moves.make(gateway, news);
}

impl Moves {
    /// Everything that takes effect at once; what is returned is left to do.
    fn put_in_force(gateway: &Arc<Gateway>, face: Arc<dyn Face>) -> Self {
        let old = gateway.faces.whole();
        let face = face.succeed(&*old);
        gateway.dismiss(&old.common().serving, &face.common().serving);
        let servers = face.servers();
        let spec = |group: &str, key: &str| {
            let found = servers.iter().find(|server| server.group == group && server.key == key);
            found.map(|server| server.spec.clone())
        };
        let gone = gateway.engine.renew(face.common().clone(), spec);
        let mut moves = Self {
            replaced: gone.into_iter().map(|upstream| (upstream, Vec::new())).collect(),
            added: Vec::new(),
        };
        gateway.faces.replace(&face);
        // What is still searched is indexed anew when it is asked for.
        gateway.finders.clear();
        for window in gateway.engine.audience.windows() {
            moves.renew_window(gateway, &window, &*face);
        }
        moves
    }

    /// Shows what the new file holds through a window.
    fn renew_window(&mut self, gateway: &Arc<Gateway>, window: &Arc<Window>, whole: &dyn Face) {
        let mut part = gateway.faces.part_of(window);
        let token = whole.common().serving.tokens.iter().find(|token| token.name == window.principal);
        if let Some(token) = token.filter(|_| gateway.engine.audience.stdio().is_none()) {
            part.names = token.scope.clone();
        }
        let Some(place) = gateway.faces.place_of(&part) else {
            return shut(gateway, window, whole, part.toolbox.as_deref());
        };
        let face = gateway.faces.at(place);
        let before = window.exposure();
        window.set_face(place, face.clone());
        let wanted = wanted(gateway, window, &*face);
        let mut view = window.view();
        for upstream in &wanted {
            let mut entries = view.group(&upstream.group);
            match entries.find(|entry| entry.upstream.server == upstream.server) {
                Some(entry) if Arc::ptr_eq(&entry.upstream, upstream) => {}
                Some(entry) => self.replace(&entry.upstream, upstream),
                None => self.added.push(upstream.clone()),
            }
        }
        let groups = face.groups();
        let rename = before.limits() != face.limits();
        view.renew(&*face, &wanted, &groups, rename);
        if face.starts_all().is_some() {
            for group in groups {
                view.open_in_place(group);
            }
        }
        drop(view);
        for session in window.sessions() {
            session.end_lost_subscriptions();
        }
    }

    fn replace(&mut self, old: &Arc<Upstream>, new: &Arc<Upstream>) {
        let found = self.replaced.iter_mut().find(|(other, _)| Arc::ptr_eq(other, old));
        let Some((_, next)) = found else { return self.added.push(new.clone()) };
        if !next.iter().any(|other| Arc::ptr_eq(other, new)) {
            new.inherit(old);
            next.push(new.clone());
        }
    }

    /// Starts what is new and ends what is not wanted any more. Clients hear of what has changed together with what
    /// starts in no time, and of what starts later as it comes.
    fn make(self, gateway: &Arc<Gateway>, news: Vec<News>) {
        let replacing = self.replaced.iter().flat_map(|(_, next)| next);
        let starting: Vec<_> = self.added.iter().chain(replacing).cloned().collect();
        let windows = gateway.engine.audience.windows().into_iter();
        let hushed: Vec<_> = windows.map(|window| (window.hush(starting.clone()), window)).collect();
        let mut waits = Vec::new();
        for (old, next) in self.replaced {
            let is_waited_for = !next.is_empty();
            let settled = gateway.engine.replace(old, next);
            waits.extend(is_waited_for.then_some(settled));
        }
        tokio::spawn(async move {
            let settled = async {
                start_and_settle(&self.added).await;
                for wait in waits {
                    let _ = wait.await;
                }
            };
            tokio::pin!(settled);
            let in_time = timeout(TOGETHER, &mut settled).await.is_ok();
            tell(&hushed, &news);
            drop(hushed);
            if !in_time {
                settled.await;
            }
        });
    }
}

/// Nothing is to be seen through a window any more: its toolbox is gone, or not for this client.
fn shut(gateway: &Gateway, window: &Arc<Window>, whole: &dyn Face, toolbox: Option<&str>) {
    gateway.guests.lock().windows.retain(|_, other| !Arc::ptr_eq(other, window));
    window.end_listeners();
    match toolbox.is_some_and(|toolbox| whole.groups().contains(&toolbox)) {
        true => gateway.engine.discard(window),
        // What the file has no longer ends by itself, after its calls in flight.
        false => drop(gateway.engine.forget(window)),
    }
}

/// The upstreams that stand in a window from now on, in their order: those of what is open, or all.
fn wanted(gateway: &Arc<Gateway>, window: &Arc<Window>, face: &dyn Face) -> Vec<Arc<Upstream>> {
    let servers = face.servers();
    let upstream = |server: &Declared<'_>| gateway.upstream(window, server);
    if face.starts_all().is_some() {
        return servers.iter().map(upstream).collect();
    }
    let opened = window.view().groups();
    let wanted =
        opened.iter().flat_map(|group| servers.iter().filter(move |server| *server.group == **group));
    wanted.map(upstream).collect()
}

/// What every client sees, so that it can be told if that is another thing later.
fn pictures(gateway: &Gateway) -> Vec<Picture> {
    let windows = gateway.engine.audience.windows().into_iter();
    windows
        .map(|window| Picture {
            modern: window.has_listeners().then(|| picture(gateway, &window, None)),
            sessions: window
                .sessions()
                .iter()
                .filter(|session| session.hello().is_some())
                .map(|session| (Arc::downgrade(session), picture(gateway, &window, Some(session))))
                .collect(),
            window: Arc::downgrade(&window),
        })
        .collect()
}

/// What a legacy client sees through a window, or any modern one.
fn picture(gateway: &Gateway, window: &Window, client: Option<&Session>) -> [u64; 4] {
    let viewer = match client {
        Some(session) => gateway.viewer_of(session, false),
        None => Viewer { client: None, modern: true, settled: gateway.startup.is_settled() },
    };
    Kind::ALL.map(|kind| {
        let mut text = Vec::new();
        gateway.write_list(window, &window.view(), &viewer, kind, &mut text);
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        hasher.finish()
    })
}

/// The lists that are not what they were. Who came meanwhile may have missed something.
fn differences(gateway: &Gateway, before: &[Picture]) -> Vec<News> {
    let of_window = |window: Arc<Window>| {
        let known = before.iter().find(|picture| picture.window.as_ptr() == Arc::as_ptr(&window));
        let modern = known.and_then(|picture| picture.modern);
        let of_session = |session: &Arc<Session>| {
            let sessions = known.map(|picture| &*picture.sessions).unwrap_or_default();
            let known = sessions.iter().find(|(other, _)| other.as_ptr() == Arc::as_ptr(session));
            known.map_or(Kind::ALL.into(), |(_, before)| {
                differing(*before, picture(gateway, &window, Some(session)))
            })
        };
        let sessions = window.sessions();
        News {
            sessions: sessions.iter().map(|session| (Arc::downgrade(session), of_session(session))).collect(),
            modern: modern.map_or_else(Vec::new, |before| differing(before, picture(gateway, &window, None))),
            window: Arc::downgrade(&window),
        }
    };
    gateway.engine.audience.windows().into_iter().map(of_window).collect()
}

/// Tells every client once of its news, and of lists that have changed while nothing was said.
fn tell(hushed: &[(Arc<Hush>, Arc<Window>)], news: &[News]) {
    for (hush, window) in hushed {
        let (held_back, exposure) = (hush.changed(), window.exposure());
        let news = news.iter().find(|news| news.window.as_ptr() == Arc::as_ptr(window));
        let mut to_modern = news.map(|news| news.modern.clone()).unwrap_or_default();
        to_modern.extend(held_back.iter().filter(|_| exposure.lists_to_modern()));
        window.tell_listeners(&to_modern);
        for session in window.sessions() {
            let own = news.and_then(|news| {
                news.sessions.iter().find(|(other, _)| other.as_ptr() == Arc::as_ptr(&session))
            });
            let mut changed = own.map(|(_, changed)| changed.clone()).unwrap_or_default();
            changed.extend(held_back.iter().filter(|kind| exposure.lists(session.hello(), **kind)));
            session.lists_changed(&changed);
        }
    }
}

/// What those who look through a window are to be told: lists that have changed.
struct News {
    window: Weak<Window>,
    modern: Vec<Kind>,
    sessions: Vec<(Weak<Session>, Vec<Kind>)>,
}

/// What is seen through a window: a hash of each list.
struct Picture {
    window: Weak<Window>,
    modern: Option<[u64; 4]>,
    sessions: Vec<(Weak<Session>, [u64; 4])>,
}

fn differing(before: [u64; 4], now: [u64; 4]) -> Vec<Kind> {
    Kind::ALL.into_iter().filter(|kind| before[*kind as usize] != now[*kind as usize]).collect()
}
