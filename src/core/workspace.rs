//! What clients look through: a view, and who is told when the view changes.
//!
//! The gateway makes one workspace for each legacy client, and one for all modern callers with the same
//! credentials. Whoever changes a workspace's view then calls [`Workspace::tell`] or
//! [`Workspace::tell_unless_held`]; [`notices`](super::notices) says who hears of the change.
//!
//! Invariant: a workspace's locks stay inside. The view is accessed in [`Workspace::read`] and
//! [`Workspace::change`], neither of which may be called within the other.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use super::modern::{LastModern, Listener};
use super::notices::{Ledger, Lists};
use super::observed::Owner;
use super::recent::Recent;
use super::session::ClientSession;
use super::sharing::DaemonSession;
use super::tasks::Tasks;
use super::upstream::{Listing, Upstream};
use super::view::{Exposure, Origin, View};
use crate::apps::{exposed, exposed_meta};
use crate::json::Node;
use crate::protocol::message::Id;
use crate::results::kept::{Kept, Room};

/// A view and the sessions that share it: one session over stdio and in the legacy era, all callers with the
/// same credentials in the modern era.
pub struct Workspace {
    /// Tells workspaces apart.
    pub id: u64,
    /// Tells apart the clients that have upstreams of their own: workspaces of the same client share this
    /// number.
    pub client: u64,
    /// Who has the workspace.
    pub owner: Owner,
    /// Which of the gateway's faces clients see through the workspace, and how things are named there.
    face: RwLock<(usize, Arc<dyn Exposure + Send + Sync>)>,
    view: Mutex<View>,
    /// What was begun through the workspace and goes on upstream.
    pub tasks: Tasks,
    /// The modern client that spoke last.
    pub last_modern: LastModern,
    /// The long results that were kept for its clients.
    pub results: Room,
    /// The URIs that results mentioned in a `resource_link`, and the group and server that sent each.
    links: Mutex<Recent<Option<Origin>>>,
    told: Told,
    /// The session of the daemon that has the workspace; `None` for all other clients.
    daemon_session: Option<Arc<DaemonSession>>,
}

/// Who is told of changes.
#[derive(Default)]
struct Told {
    sessions: Mutex<Vec<Weak<ClientSession>>>,
    /// The modern clients that listen, and what each was told.
    listeners: Mutex<Vec<(Listener, Ledger)>>,
    /// How many holds there are.
    holds: AtomicUsize,
}

/// While a hold lives, clients are not told of changes that they did not ask for. When the last hold of a
/// workspace ends, the rule is applied once.
pub struct Hold(Weak<Workspace>);

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(workspace) = self.0.upgrade() {
            workspace.told.holds.fetch_sub(1, Ordering::Relaxed);
            workspace.tell_unless_held();
        }
    }
}

impl Workspace {
    /// An empty workspace, for a client that has others or for a new client.
    #[cfg(test)]
    pub fn new(
        principal: &str,
        face: usize,
        exposure: Arc<dyn Exposure + Send + Sync>,
        client: Option<u64>,
        kept: &Arc<Kept>,
    ) -> Arc<Self> {
        Self::of(principal, face, exposure, client, (kept, None))
    }

    /// An empty workspace of a session of the daemon, or of any other client.
    pub fn of(
        principal: &str,
        face: usize,
        exposure: Arc<dyn Exposure + Send + Sync>,
        client: Option<u64>,
        (kept, daemon_session): (&Arc<Kept>, Option<Arc<DaemonSession>>),
    ) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let client = client.unwrap_or(id);
        Arc::new(Self {
            id,
            client,
            owner: Owner::named(principal),
            face: RwLock::new((face, exposure)),
            view: Mutex::default(),
            tasks: Tasks::default(),
            last_modern: LastModern::default(),
            results: kept.room(client),
            links: Mutex::default(),
            told: Told::default(),
            daemon_session,
        })
    }

    /// The session of the daemon that has the workspace.
    pub fn daemon_session(&self) -> Option<&DaemonSession> {
        self.daemon_session.as_deref()
    }

    /// A handle of the session of the daemon that has the workspace.
    pub fn daemon_session_handle(&self) -> Option<Arc<DaemonSession>> {
        self.daemon_session.clone()
    }

    /// Which of the gateway's faces clients see through the workspace.
    pub fn face(&self) -> usize {
        self.face.read().0
    }

    /// How things are named in the workspace.
    pub fn exposure(&self) -> Arc<dyn Exposure + Send + Sync> {
        self.face.read().1.clone()
    }

    /// Shows another face from now on. The caller must renew the view for it.
    pub fn set_face(&self, face: usize, exposure: Arc<dyn Exposure + Send + Sync>) {
        *self.face.write() = (face, exposure);
    }

    /// Whether a modern client wants to hear of changes.
    pub fn has_listeners(&self) -> bool {
        !self.told.listeners.lock().is_empty()
    }

    /// Ends the subscriptions of modern clients properly.
    pub fn end_listeners(&self) {
        let listeners = std::mem::take(&mut *self.told.listeners.lock());
        for (listener, _) in listeners {
            listener.finish();
        }
    }

    /// The URIs that modern clients want to hear of.
    pub fn listened(&self) -> HashSet<String> {
        self.told.listeners.lock().iter().flat_map(|(listener, _)| listener.resources()).collect()
    }

    /// Passes every subscription to `take`.
    pub fn each_listener(&self, mut take: impl FnMut(&mut Listener)) {
        self.told.listeners.lock().iter_mut().for_each(|(listener, _)| take(listener));
    }

    /// Tells a modern client of changes from now on, once there are lists to ask for.
    pub fn listen(&self, listener: Listener) {
        self.told.listeners.lock().push((listener, Ledger::default()));
    }

    /// Reads the view.
    pub fn read<R>(&self, look: impl FnOnce(&View) -> R) -> R {
        look(&self.view.lock())
    }

    /// Changes the view. Nobody is told yet.
    pub fn change<R>(&self, change: impl FnOnce(&mut View) -> R) -> R {
        change(self.view.lock().changes())
    }

    /// When what upstreams offer is listed here.
    pub fn listing(&self) -> Listing {
        self.exposure().listing()
    }

    /// Whether an upstream is in the view.
    pub fn shows(&self, upstream: &Arc<Upstream>) -> bool {
        self.read(|view| view.entries().any(|entry| Arc::ptr_eq(&entry.upstream, upstream)))
    }

    /// Notes that there are lists to ask for from now on.
    pub fn begin(&self) {
        self.sessions().iter().for_each(|session| session.begin());
        self.each_ledger(|_, ledger, now| ledger.begin(now));
    }

    /// Tells everyone who shares the workspace of the lists that have changed.
    pub fn tell(&self) {
        for session in self.sessions() {
            session.tell();
        }
        self.each_ledger(|listener, ledger, now| listener.lists_changed(&ledger.tell(now)));
    }

    /// Passes to `take` the ledger of each listening modern client and the client's lists as they are now.
    fn each_ledger(&self, take: impl Fn(&Listener, &mut Ledger, Lists)) {
        // Lists for clients that render apps, and for those that do not.
        let mut now = [None; 2];
        for (listener, ledger) in self.told.listeners.lock().iter_mut() {
            let renders_apps = listener.renders_apps();
            let now = now[usize::from(renders_apps)].get_or_insert_with(|| self.modern_lists(renders_apps));
            take(listener, ledger, *now);
        }
    }

    fn modern_lists(&self, renders_apps: bool) -> Lists {
        let exposure = self.exposure();
        self.read(|view| Lists::of_modern(&*exposure, view, renders_apps))
    }

    /// As [`Self::tell`], for changes that no client of the workspace asked for: does nothing while they are
    /// held back.
    pub(super) fn tell_unless_held(&self) {
        if self.told.holds.load(Ordering::Relaxed) == 0 {
            self.tell();
        }
    }

    /// Holds back changes that no client asked for while the returned hold lives.
    pub fn hold(self: &Arc<Self>) -> Hold {
        self.told.holds.fetch_add(1, Ordering::Relaxed);
        Hold(Arc::downgrade(self))
    }

    /// Remembers who sent a link to this URI.
    pub fn remember_link(&self, uri: &str, upstream: &Arc<Upstream>) {
        *self.links.lock().entry(uri) = Some((upstream.group.clone(), upstream.server.clone()));
    }

    /// A tool's result with the URIs by which hosts know the pages in it; `None` if it names none.
    pub fn result_for_host(&self, upstream: &Upstream, result: Node<'_>) -> Option<String> {
        let meta = exposed_meta(result, &mut |uri| self.name_page(upstream, uri))?;
        Some(result.with(&[("_meta", Some(&meta))]))
    }

    /// The same for a modern task, which holds the result of its tool when it is finished.
    pub fn task_for_host(&self, upstream: &Upstream, task: Node<'_>) -> Option<String> {
        // The result is scanned anew, because its own members stand too deep in the task.
        let result = task.get("result")?.raw();
        match exposed(result.into(), &mut |uri| self.name_page(upstream, uri)) {
            Cow::Owned(changed) => Some(task.with(&[("result", Some(&changed))])),
            Cow::Borrowed(_) => None,
        }
    }

    fn name_page(&self, upstream: &Upstream, uri: &str) -> Arc<str> {
        let exposure = self.exposure();
        self.change(|view| view.name_page(&*exposure, upstream, uri))
    }

    /// Who sent a link to this URI, or the upstream that replaced the sender, as long as it is in `view`,
    /// which is this workspace's.
    pub fn link_sender(&self, view: &View, uri: &str) -> Option<Arc<Upstream>> {
        let (group, server) = self.links.lock().get(uri)?.clone()?;
        view.server(&group, &server).map(|entry| entry.upstream.clone())
    }

    /// Takes out the subscription that the request with this id began, if it began one.
    pub fn take_listener(&self, session: &ClientSession, id: &Id) -> Option<Listener> {
        let mut listeners = self.told.listeners.lock();
        let at = listeners.iter().position(|(listener, _)| listener.belongs_to(session, id))?;
        Some(listeners.swap_remove(at).0)
    }

    /// Lets a client share the workspace.
    pub(super) fn join(&self, session: &Arc<ClientSession>) {
        self.told.sessions.lock().push(Arc::downgrade(session));
    }

    /// The sessions that share the workspace.
    pub fn sessions(&self) -> Vec<Arc<ClientSession>> {
        let mut sessions = self.told.sessions.lock();
        sessions.retain(|session| session.strong_count() > 0);
        sessions.iter().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Items, Kind, NameLimits};
    use crate::config::NameRule;
    use crate::core::route::{Heard, Route};
    use crate::core::view::{Look, Renderer};
    use crate::protocol::era::{ClientHello, Version};

    /// A face that lists everything to everybody.
    struct Everything;

    impl Exposure for Everything {
        fn full_name(&self, upstream: &Upstream, _: Kind, key: &str) -> String {
            format!("{}_{key}", upstream.group)
        }

        fn renderer<'a>(&'a self, _: &'a Upstream, _: Kind) -> Renderer<'a> {
            Box::new(|_, definition, out| out.extend_from_slice(definition.raw().as_bytes()))
        }

        fn limits(&self, _: &str) -> NameLimits {
            NameLimits { rule: NameRule::Safe, length: 64, reserved: None }
        }

        fn lists(&self, _: Option<&ClientHello>, _: Kind) -> bool {
            true
        }
    }

    /// What happens to a client's workspace and to its one server.
    #[derive(Debug, Clone, Copy)]
    enum Event {
        /// The client begins to be told of changes.
        Begin,
        /// The server comes up with this tool, or goes down.
        Server(Option<&'static str>),
        /// The client opens its toolbox.
        Open,
        /// The client closes it.
        Close,
        Hold,
        /// The hold that began last ends.
        LetGo,
        /// The list of tools is answered.
        List,
    }

    #[test]
    fn what_is_made_of_a_view_is_kept_until_the_view_changes() {
        let workspace = Workspace::new("", 0, Arc::new(Everything), None, &Arc::default());
        let model = Look { from_start: false, as_host: false, takes: None };
        let host = Look { as_host: true, ..model };
        let made = std::cell::Cell::new(0);
        let seen = |look| {
            workspace.read(|view| {
                view.prepared(look, || {
                    made.set(made.get() + 1);
                    made.get().to_string()
                })
            })
        };
        assert_eq!(
            [seen(model), seen(model), seen(host), seen(host)].each_ref().map(|text| &**text),
            ["1", "1", "2", "2"]
        );
        workspace.change(|view| view.open("a"));
        assert_eq!([seen(host), seen(host)].each_ref().map(|text| &**text), ["3", "3"]);
    }

    #[test]
    fn a_client_is_told_once_and_of_nothing_else() {
        use Event::*;
        // How often the client has been told of its tools in the end.
        let cases: [(&str, &[Event], usize); 12] = [
            ("an opening", &[Begin, Server(Some("t")), Open], 1),
            ("before there are lists", &[Server(Some("t")), Open, Server(None), Begin], 0),
            ("a server that comes and goes", &[Begin, Open, Server(Some("t")), Server(None)], 2),
            ("another list", &[Begin, Open, Server(Some("t")), Server(Some("u"))], 2),
            ("the same list", &[Begin, Open, Server(Some("t")), Server(Some("t"))], 1),
            (
                "a restart in a hold",
                &[Begin, Open, Server(Some("t")), Hold, Server(None), Server(Some("t")), LetGo],
                1,
            ),
            ("what comes in a hold", &[Begin, Open, Hold, Server(Some("t")), Server(Some("u")), LetGo], 1),
            ("a hold in a hold", &[Begin, Open, Hold, Hold, Server(Some("t")), LetGo], 0),
            ("both at their end", &[Begin, Open, Hold, Hold, Server(Some("t")), LetGo, LetGo], 1),
            ("what the client asked for in a hold", &[Begin, Server(Some("t")), Hold, Open], 1),
            (
                "what it closes and opens in a hold",
                &[Begin, Server(Some("t")), Open, Hold, Close, Open, LetGo],
                3,
            ),
            ("what it was shown", &[Begin, Open, Hold, Server(Some("t")), List, LetGo], 0),
        ];
        for (what, events, expected) in cases {
            let heard = Arc::new(Heard::default());
            let workspace = Workspace::new("", 0, Arc::new(Everything), None, &Arc::default());
            let session = ClientSession::new(workspace.clone(), Route::Stream(heard.clone()));
            session.greet(ClientHello::new(Version::LATEST_LEGACY, "", "{}"));
            let upstream = Upstream::unreal("box", "s");
            let (face, mut holds) = (&Everything, Vec::new());
            workspace.change(|view| view.add(face, std::slice::from_ref(&upstream)));
            for event in events {
                match event {
                    Begin => workspace.begin(),
                    Server(tool) => {
                        let items =
                            |tool: &str| Items::default().with(Kind::Tool, Items::named(Kind::Tool, &[tool]));
                        upstream.pretend(tool.map(items));
                        workspace.change(|view| view.refresh(face, &upstream));
                        workspace.tell_unless_held();
                    }
                    Open => {
                        workspace.change(|view| {
                            view.add(face, std::slice::from_ref(&upstream));
                            view.open("box");
                        });
                        workspace.tell();
                    }
                    Close => {
                        workspace.change(|view| view.remove(face, "box"));
                        workspace.tell();
                    }
                    Hold => holds.push(workspace.hold()),
                    LetGo => drop(holds.pop()),
                    List => session.show(Kind::Tool, || ()),
                }
            }
            assert_eq!(heard.0.lock().len(), expected, "{what}");
        }
    }
}
