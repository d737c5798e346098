//! The console: pages in the browser that show what a gateway, a daemon or a journal has to tell, and that let a
//! person try a tool. `serve --http --console`, `console` and the daemon serve it.
//!
//! ```text
//! browser ─▶ door (Host, Origin, key or token) ─▶ files: pages, which need no key
//!                                              └▶ api ─▶ premises (servers), survey (tools), chronicle (calls)
//!                                                   └─▶ stream: one for each tab
//! ```
//!
//! Invariant: nothing here is on the path of a call. A tab that does not read costs nothing: its stream is asked
//! for more only when there is room, and then begins with what it has missed, or anew.

mod api;
mod chronicle;
mod door;
mod files;
mod premises;
mod stream;
mod survey;
mod trial;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use self::chronicle::Chronicle;
pub use self::door::{Door, KeyFile, Pass};
use self::premises::{Around, Desk, ServerEntry};
pub use self::premises::{FileProblem, House};
use self::survey::{Outlook, Survey, SurveyedFile};
pub use self::trial::UNUSED;
use super::Gateway;
use crate::config::locate::FaceKind;
use crate::core::engine::Engine;
use crate::core::process::ProcessTable;
use crate::core::route::Route;
use crate::core::session::ClientSession;
use crate::core::workspace::Workspace;
use crate::events::{JournalReader, Millis};
use crate::protocol::era::{ClientHello, Version};

/// How the console calls itself where it is a client.
const CLIENT: &str = "mcp-workbench-console";
/// How long may be shown what servers offered when they were looked up.
const FRESH: Duration = Duration::from_secs(1);
/// The same for the memory of processes. To look at all processes of a machine takes milliseconds, in which calls may wait
/// for the processor.
const FRESH_MEMORY: Duration = Duration::from_secs(5);
/// The time between two looks at the journal.
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

/// What is wrong with a gateway's file as it was read last, which whoever follows the file notes.
pub type RefusedFile = Arc<Mutex<Vec<FileProblem>>>;

/// Serves the pages.
pub struct Console {
    door: Door,
    face: FaceKind,
    /// Whether what it shows runs, in this process; else it comes from the journal.
    live: bool,
    houses: Box<dyn Fn() -> Vec<House> + Send + Sync>,
    record: Arc<Mutex<Chronicle>>,
    /// The engines whose events are recorded.
    heard: Mutex<Vec<Weak<Engine>>>,
    stations: Mutex<Vec<Arc<Station>>>,
    processes: Mutex<Looked<ProcessTable>>,
    outlooks: Mutex<Vec<(Pass, Looked<Vec<Outlook>>)>>,
    /// How long a server that it has started may be unused.
    unused: Duration,
    ended: AtomicBool,
}

/// Where the console stands in a gateway, as one of its clients.
struct Station {
    gateway: Weak<Gateway>,
    /// The face through which it looks.
    place: usize,
    workspace: Arc<Workspace>,
    session: Arc<ClientSession>,
    survey: Arc<Mutex<Survey>>,
}

/// The number of a house, and what can be surveyed there.
type HouseFile = (usize, Arc<Mutex<Survey>>, SurveyedFile);

/// Something that is looked up beside the messages, and when that was begun last.
struct Looked<T> {
    begun: Option<Instant>,
    found: Option<Arc<T>>,
}

/// The processes and what servers offer, as far as they are known yet.
type LookedUp = (Option<Arc<ProcessTable>>, Option<Arc<Vec<Outlook>>>);

impl<T> Default for Looked<T> {
    fn default() -> Self {
        Self { begun: None, found: None }
    }
}

impl<T> Looked<T> {
    /// Whether what was found is older than this, and it is time to look again; from then on somebody does.
    fn is_due(&mut self, fresh: Duration) -> bool {
        let is_due = self.begun.is_none_or(|begun| begun.elapsed() >= fresh);
        if is_due {
            self.begun = Some(Instant::now());
        }
        is_due
    }
}

impl Console {
    /// A console of one gateway.
    pub fn of_gateway(door: Door, face: FaceKind, gateway: Arc<Gateway>, refused: RefusedFile) -> Arc<Self> {
        Self::live(door, face, move || vec![House::of(&gateway, refused.lock().clone())])
    }

    /// A console of what runs in these houses.
    pub fn live(
        door: Door,
        face: FaceKind,
        houses: impl Fn() -> Vec<House> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let console = Self::new(door, face, true, UNUSED, Box::new(houses));
        console.hear(&console.houses());
        console
    }

    /// A console of a file and of what the journal tells. Its reading ends with the console. Servers that it starts may
    /// be `unused` for so long.
    pub fn of_journal(
        door: Door,
        face: FaceKind,
        unused: Duration,
        gateway: Arc<Gateway>,
        refused: RefusedFile,
        journal: JournalReader,
    ) -> Arc<Self> {
        let engine = gateway.engine.clone();
        let house = move || vec![House::of(&gateway, refused.lock().clone())];
        let console = Self::new(door, face, false, unused, Box::new(house));
        if !engine.settings().journal.on {
            // Without a journal nobody else would tell of the calls that a person tries from the console.
            record(&engine, &console.record);
        }
        tokio::spawn(read_journal(Arc::downgrade(&console), journal));
        console
    }

    fn new(
        door: Door,
        face: FaceKind,
        live: bool,
        unused: Duration,
        houses: Box<dyn Fn() -> Vec<House> + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(Self {
            door,
            face,
            live,
            houses,
            record: Arc::default(),
            heard: Mutex::default(),
            stations: Mutex::default(),
            processes: Mutex::default(),
            outlooks: Mutex::default(),
            unused,
            ended: AtomicBool::new(false),
        })
    }

    /// The address of the first page on a server at `address`, with the key if that lets people in.
    pub fn address(&self, address: std::net::SocketAddr) -> String {
        let key = self.door.key().map(|key| format!("#key={key}")).unwrap_or_default();
        format!("http://{address}/console{key}")
    }

    /// Ends all streams.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// What there is to look at now.
    fn houses(&self) -> Vec<House> {
        let houses = (self.houses)();
        self.hear(&houses);
        houses
    }

    /// Records the events of engines that are new.
    fn hear(&self, houses: &[House]) {
        if !self.live {
            return;
        }
        let mut heard = self.heard.lock();
        heard.retain(|engine| engine.strong_count() > 0);
        for House { engine, .. } in houses {
            if !heard.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(engine))) {
                heard.push(Arc::downgrade(engine));
                record(engine, &self.record);
            }
        }
    }

    /// Where the console stands in a house, for somebody with this pass.
    fn station(&self, house: &House, pass: &Pass) -> Option<Arc<Station>> {
        let Desk { gateway, place, face } = Desk::of(house, pass)?;
        let mut stations = self.stations.lock();
        stations.retain(|station| station.gateway.strong_count() > 0);
        let is_this = |station: &&Arc<Station>| {
            let is_mine = station.workspace.owner.principal == pass.principal;
            is_mine && station.place == place && std::ptr::eq(station.gateway.as_ptr(), Arc::as_ptr(&gateway))
        };
        if let Some(station) = stations.iter().find(is_this) {
            return Some(station.clone());
        }
        let workspace =
            gateway.engine.workspace(&pass.principal, place, face, None, gateway.daemon_session.clone());
        let session = ClientSession::new(workspace.clone(), Route::Nowhere);
        session.greet(ClientHello::new(Version::LATEST_LEGACY, CLIENT, "{}"));
        let gateway = Arc::downgrade(&gateway);
        let station = Arc::new(Station { gateway, place, workspace, session, survey: Arc::default() });
        stations.push(station.clone());
        Some(station)
    }

    /// Whether a workspace is the console's own.
    fn is_own(&self, workspace: &Workspace) -> bool {
        self.stations.lock().iter().any(|station| station.workspace.id == workspace.id)
    }

    /// What can be surveyed for somebody with this pass, house by house.
    fn files(&self, houses: &[House], pass: &Pass) -> Vec<HouseFile> {
        let file = |(number, house): (usize, &House)| {
            let station = self.station(house, pass)?;
            let gateway = station.gateway.upgrade()?;
            let face = gateway.faces.at(station.place);
            let workspace = station.workspace.clone();
            Some((number, station.survey.clone(), SurveyedFile { gateway, face, workspace }))
        };
        houses.iter().enumerate().filter_map(file).collect()
    }

    fn servers(&self, houses: &[House], pass: &Pass) -> Vec<ServerEntry> {
        premises::servers(houses, pass, |house| Some(self.station(house, pass)?.workspace.clone()))
    }

    /// The processes of this machine, as they were a moment ago, and what servers offered then. Both are looked
    /// up beside the messages.
    fn look(self: &Arc<Self>, houses: &[House], pass: &Pass) -> LookedUp {
        let processes = {
            let mut looked = self.processes.lock();
            if self.live && looked.is_due(FRESH_MEMORY) {
                let console = self.clone();
                spawn_blocking(move || {
                    let found = Arc::new(ProcessTable::now());
                    console.processes.lock().found = Some(found);
                });
            }
            looked.found.clone()
        };
        let mut outlooks = self.outlooks.lock();
        let at = outlooks.iter().position(|(other, _)| other == pass).unwrap_or_else(|| {
            outlooks.push((pass.clone(), Looked::default()));
            outlooks.len() - 1
        });
        let (_, looked) = &mut outlooks[at];
        if looked.is_due(FRESH) {
            let (console, pass) = (self.clone(), pass.clone());
            let files = self.files(houses, &pass);
            spawn_blocking(move || {
                let looked = files.iter().map(|(_, survey, file)| survey.lock().look(file));
                let found = Some(Arc::new(looked.collect()));
                if let Some((_, place)) = console.outlooks.lock().iter_mut().find(|(other, _)| *other == pass)
                {
                    place.found = found;
                }
            });
        }
        (processes, looked.found.clone())
    }

    fn is_toolman(&self) -> bool {
        self.face == FaceKind::Toolman
    }

    /// Hands what rows of servers are made of to `make`.
    fn with_surroundings<R>(
        self: &Arc<Self>,
        houses: &[House],
        pass: &Pass,
        make: impl FnOnce(&Around<'_>) -> R,
    ) -> R {
        let (processes, outlooks) = self.look(houses, pass);
        let none = ProcessTable::default();
        let processes = self.live.then(|| processes.as_deref().unwrap_or(&none));
        let outlooks = outlooks.as_deref().map_or(&[][..], Vec::as_slice);
        make(&Around { record: &self.record.lock(), processes, outlooks, toolman: self.is_toolman() })
    }
}

/// Records what an engine tells, for as long as somebody has the record. The thread of events does it, not the one
/// that serves clients.
fn record(engine: &Engine, record: &Arc<Mutex<Chronicle>>) {
    let record = Arc::downgrade(record);
    engine.events.listen(move |happening| {
        let record = record.upgrade();
        record.inspect(|record| record.lock().add(happening.clone())).is_some()
    });
}

/// Records what gateways write into the journal, for as long as the console is there.
async fn read_journal(console: Weak<Console>, mut journal: JournalReader) {
    loop {
        let read = spawn_blocking(move || {
            let lines = journal.poll();
            (journal, lines)
        });
        let Ok((again, lines)) = read.await else { return };
        journal = again;
        let Some(console) = console.upgrade() else { return };
        for happening in lines.unwrap_or_default().into_iter().filter_map(|line| line.happening) {
            if happening.face == console.face {
                console.record.lock().add(Arc::new(happening));
            }
        }
        drop(console);
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

fn now() -> Millis {
    millis(SystemTime::now())
}

fn millis(time: SystemTime) -> Millis {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
