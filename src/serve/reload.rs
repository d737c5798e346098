//! A new file is put in force while clients are there. What changes does so at once and in one piece; what has to start
//! or end does that afterwards. Each client hears of the lists that are not what they were, once where nothing is slow.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::timeout;

use super::{Configured, Gateway};
use crate::core::catalog::Kind;
use crate::core::opening::{Hush, start_and_settle};
use crate::core::session::Session;
use crate::core::upstream::Upstream;
use crate::core::window::Window;
use crate::faces::{Declared, Face, Part, Viewer};

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

impl Gateway {
    /// Puts the face of a new file in force. What has to start and end because of it does that beside everything else.
    pub fn reload(self: &Arc<Self>, configured: Configured) {
        let before = self.pictures();
        *self.switch_file.write() = configured.switch_file;
        let moves = self.replace(configured.face);
        let news = if self.engine.is_quiet() { Vec::new() } else { self.differences(&before) };
        self.make(moves, news);
    }

    /// Starts what is new and ends what is not wanted any more. Clients hear of what has changed together with what
    /// starts in no time, and of what starts later as it comes.
    fn make(self: &Arc<Self>, moves: Moves, news: Vec<News>) {
        let replacing = moves.replaced.iter().flat_map(|(_, next)| next);
        let starting: Vec<_> = moves.added.iter().chain(replacing).cloned().collect();
        let windows = self.engine.windows().into_iter();
        let hushed: Vec<_> = windows.map(|window| (window.hush(starting.clone()), window)).collect();
        let mut waits = Vec::new();
        for (old, next) in moves.replaced {
            let is_waited_for = !next.is_empty();
            let settled = self.engine.retire(old, next);
            waits.extend(is_waited_for.then_some(settled));
        }
        let gateway = self.clone();
        tokio::spawn(async move {
            let settled = async {
                start_and_settle(&moves.added).await;
                for wait in waits {
                    let _ = wait.await;
                }
            };
            tokio::pin!(settled);
            let in_time = timeout(TOGETHER, &mut settled).await.is_ok();
            gateway.tell(&hushed, &news);
            drop(hushed);
            if !in_time {
                settled.await;
            }
        });
    }

    /// Everything that takes effect at once.
    fn replace(self: &Arc<Self>, face: Arc<dyn Face>) -> Moves {
        let old = self.faces.read()[0].1.clone();
        let face = face.succeed(&*old);
        self.dismiss(&old.common().serving, &face.common().serving);
        let mut moves = Moves::default();
        let servers = face.servers();
        let spec = |group: &str, key: &str| {
            let found = servers.iter().find(|server| server.group == group && server.key == key);
            found.map(|server| server.spec.clone())
        };
        let gone = self.engine.renew(face.common().clone(), spec);
        for upstream in gone {
            moves.replaced.push((upstream, Vec::new()));
        }
        {
            let mut faces = self.faces.write();
            for (part, at_work) in faces.iter_mut().skip(1) {
                if let Some(now) = face.part(part).or_else(|| at_work.emptied()) {
                    *at_work = now;
                }
            }
            faces[0].1 = face.clone();
        }
        // What is still searched is indexed anew when it is asked for.
        self.finders.clear();
        for window in self.engine.windows() {
            self.renew_window(&window, &*face, &mut moves);
        }
        moves
    }

    /// Shows what the new file holds through a window.
    fn renew_window(self: &Arc<Self>, window: &Arc<Window>, whole: &dyn Face, moves: &mut Moves) {
        let mut part: Part = self.faces.read()[window.face()].0.clone();
        let token = whole.common().serving.tokens.iter().find(|token| token.name == window.principal);
        if let Some(token) = token.filter(|_| !self.engine.is_stdio()) {
            part.names = token.scope.clone();
        }
        let Some(index) = self.face_of(&part) else {
            return self.shut(window, whole, part.toolbox.as_deref());
        };
        let face = self.faces.read()[index].1.clone();
        let before = window.exposure();
        window.set_face(index, face.clone());
        let wanted = self.wanted(window, &*face);
        let mut view = window.view();
        for upstream in &wanted {
            let mut entries = view.group(&upstream.group);
            match entries.find(|entry| entry.upstream.server == upstream.server) {
                Some(entry) if Arc::ptr_eq(&entry.upstream, upstream) => {}
                Some(entry) => moves.replace(&entry.upstream, upstream),
                None => moves.added.push(upstream.clone()),
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

    /// Nothing is to be seen through a window any more: its toolbox is gone, or not for this client.
    fn shut(&self, window: &Arc<Window>, whole: &dyn Face, toolbox: Option<&str>) {
        self.guests.lock().windows.retain(|_, other| !Arc::ptr_eq(other, window));
        window.end_listeners();
        match toolbox.is_some_and(|toolbox| whole.groups().contains(&toolbox)) {
            true => self.engine.discard(window),
            // What the file has no longer ends by itself, after its calls in flight.
            false => drop(self.engine.forget(window)),
        }
    }

    /// The upstreams that stand in a window from now on, in their order: those of what is open, or all.
    fn wanted(self: &Arc<Self>, window: &Arc<Window>, face: &dyn Face) -> Vec<Arc<Upstream>> {
        let servers = face.servers();
        let upstream = |server: &Declared<'_>| self.upstream(window, server);
        if face.starts_all().is_some() {
            return servers.iter().map(upstream).collect();
        }
        let opened = window.view().groups();
        let wanted =
            opened.iter().flat_map(|group| servers.iter().filter(move |server| *server.group == **group));
        wanted.map(upstream).collect()
    }

    /// What every client sees, so that it can be told if that is another thing later.
    fn pictures(&self) -> Vec<Picture> {
        let windows = self.engine.windows().into_iter();
        windows
            .map(|window| Picture {
                modern: window.has_listeners().then(|| self.picture(&window, &self.viewer_modern())),
                sessions: window
                    .sessions()
                    .iter()
                    .filter(|session| session.hello().is_some())
                    .map(|session| {
                        let viewer = self.viewer_of(session, false);
                        (Arc::downgrade(session), self.picture(&window, &viewer))
                    })
                    .collect(),
                window: Arc::downgrade(&window),
            })
            .collect()
    }

    fn viewer_modern(&self) -> Viewer<'static> {
        Viewer { client: None, modern: true, settled: self.startup.is_settled() }
    }

    fn picture(&self, window: &Window, viewer: &Viewer<'_>) -> [u64; 4] {
        Kind::ALL.map(|kind| {
            let mut text = Vec::new();
            self.write_list(window, &window.view(), viewer, kind, &mut text);
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            hasher.finish()
        })
    }

    /// The lists that are not what they were. Who came meanwhile may have missed something.
    fn differences(&self, before: &[Picture]) -> Vec<News> {
        let of_window = |window: Arc<Window>| {
            let known = before.iter().find(|picture| picture.window.as_ptr() == Arc::as_ptr(&window));
            let modern = known.and_then(|picture| picture.modern);
            let of_session = |session: &Arc<Session>| {
                let sessions = known.map(|picture| &*picture.sessions).unwrap_or_default();
                let known = sessions.iter().find(|(other, _)| other.as_ptr() == Arc::as_ptr(session));
                known.map_or(Kind::ALL.into(), |(_, before)| {
                    differing(*before, self.picture(&window, &self.viewer_of(session, false)))
                })
            };
            News {
                sessions: window
                    .sessions()
                    .iter()
                    .map(|session| (Arc::downgrade(session), of_session(session)))
                    .collect(),
                modern: modern.map_or_else(Vec::new, |before| {
                    differing(before, self.picture(&window, &self.viewer_modern()))
                }),
                window: Arc::downgrade(&window),
            }
        };
        self.engine.windows().into_iter().map(of_window).collect()
    }

    /// Tells every client once of its news, and of lists that have changed while nothing was said.
    fn tell(&self, hushed: &[(Arc<Hush>, Arc<Window>)], news: &[News]) {
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

impl Moves {
    fn replace(&mut self, old: &Arc<Upstream>, new: &Arc<Upstream>) {
        let found = self.replaced.iter_mut().find(|(other, _)| Arc::ptr_eq(other, old));
        let Some((_, next)) = found else { return self.added.push(new.clone()) };
        if !next.iter().any(|other| Arc::ptr_eq(other, new)) {
            new.inherit(old);
            next.push(new.clone());
        }
    }
}
