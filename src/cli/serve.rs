//! `serve`, which also runs without a verb: the MCP server.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::AsyncWrite;

use super::failure::{Failure, OutputMode};
use super::load::{Loader, Overrides, Read, runtime, signal};
use super::logging::Log;
use super::reload::{FileWatch, Hangup, accepted, shown_problems};
use super::{Http, World, serve_http};
use crate::config::Common;
use crate::config::locate::{FaceKind, NotFound};
use crate::gateway::console::{Console, RefusedFile};
use crate::gateway::http::Rules;
use crate::gateway::stdio::{Resumed, Unsent};
use crate::gateway::{Configured, Gateway, count_events, finish_events, note_reload, stdio};
use crate::lock::Lock;
use crate::replicas::Replicas;
use crate::transport::stdio::{ClientInput, stdout};

/// Serves one client on stdin and stdout, or many over HTTP.
pub(super) fn run(
    face: FaceKind,
    file: Result<PathBuf, NotFound>,
    overrides: Overrides,
    http: &Http,
    output: OutputMode,
    world: &World,
    log: &Log,
) -> Result<u8, Failure> {
    let nothing = matches!(file, Err(NotFound::Anywhere { .. }));
    let file = file.map_err(|missing| {
        let mut failure = Failure::from(missing);
        if nothing && io::stdin().is_terminal() {
            let program = face.program();
            failure.hint.push_str(&format!(
                "\nTo see it work with nothing configured: {program} demo\nAll options: {program} --help"
            ));
        }
        failure
    })?;
    let loader = Loader::for_serving(face, file, overrides, world.clone());
    let (configured, read) = loader.load(output)?;
    if http.http.is_none() && io::stdin().is_terminal() && !output.quiet {
        writeln!(
            io::stderr(),
            "This is an MCP server: it waits for a client on stdin. End it with Ctrl-D or Ctrl-C."
        )?;
    }
    let runtime = runtime()?;
    // On the heap, since the runtime would keep several copies of it on the stack.
    let served = runtime.block_on(Box::pin(async {
        let server = Service::new(loader, &configured, read, output, world);
        match &http.http {
            Some(address) => {
                log.start();
                server.serve_http(configured, address, http).await
            }
            None => server.serve_stdio(configured, log).await,
        }
    }));
    // A thread may still be blocked on a stdin that is not a pipe; it must not hold us up.
    runtime.shutdown_background();
    served
}

/// The client on our stdin and stdout.
struct Client {
    stdin: ClientInput,
    stdout: Box<dyn AsyncWrite + Send + Unpin>,
    /// Resolves when the system asks us to end.
    shutdown: Pin<Box<dyn Future<Output = ()>>>,
    /// How its session stood before.
    resumed: Option<Resumed>,
    /// What it sent, and no daemon took.
    unsent: Option<Unsent>,
}

/// What serves, however clients come.
pub(super) struct Service<'a> {
    loader: Arc<Loader>,
    read: Read,
    /// The lock that is in force.
    lock: Arc<Mutex<Option<Arc<Lock>>>>,
    /// What is wrong with the file as it was read last.
    pub(super) refused: RefusedFile,
    output: OutputMode,
    world: &'a World,
}

impl<'a> Service<'a> {
    /// The service of a file that was read.
    pub(super) fn new(
        loader: Loader,
        configured: &Configured,
        read: Read,
        output: OutputMode,
        world: &'a World,
    ) -> Self {
        let lock = Arc::new(Mutex::new(configured.face.common().approved.clone()));
        Self { loader: Arc::new(loader), read, lock, refused: RefusedFile::default(), output, world }
    }

    async fn serve_http(self, configured: Configured, address: &str, http: &Http) -> Result<u8, Failure> {
        let shutdown = signal()?;
        let replicas = serve_http::join(&configured.face.common().serving).await?;
        let mut ready = serve_http::prepare(address, http, &configured.face.common().serving)?;
        ready.settings.replicas = replicas.clone();
        let gateway = Gateway::new(configured, self.world.serving_surroundings(self.loader.face));
        if http.metrics {
            count_events(&gateway);
        }
        if let Some(replicas) = &replicas {
            gateway.join(replicas);
        }
        gateway.begin_http();
        if http.console {
            let door = ready.door(self.world.console_key()?)?;
            let console = Console::of_gateway(door, self.loader.face, gateway.clone(), self.refused.clone());
            writeln!(io::stderr(), "console: {}", console.address(ready.address()?))?;
            ready.settings.annex = Some(Arc::new(console));
        }
        let watching = self.follow(&gateway, Some((ready.settings.rules.clone(), replicas.clone())))?;
        let mut out = io::stdout();
        let backend = Arc::new(gateway.clone());
        tokio::select! {
            served = serve_http::run(backend, ready, &mut out, shutdown) => served?,
            () = watching => {}
        }
        if let Some(replicas) = &replicas {
            replicas.leave().await;
        }
        gateway.end().await;
        finish_events(&gateway);
        Ok(0)
    }

    async fn serve_stdio(self, configured: Configured, log: &Log) -> Result<u8, Failure> {
        let client = Client {
            stdin: ClientInput::default(),
            stdout: stdout(),
            shutdown: Box::pin(signal()?),
            resumed: None,
            unsent: None,
        };
        let client = match configured.face.common().daemon.on {
            true => self.relay(client, configured.face.common()).await?,
            false => Some(client),
        };
        let Some(Client { stdin, stdout, shutdown, resumed, unsent }) = client else { return Ok(0) };
        log.start();
        let gateway = Gateway::new(configured, self.world.serving_surroundings(self.loader.face));
        let watching = self.follow(&gateway, None)?;
        tokio::select! {
            () = stdio::run(gateway.clone(), (resumed, unsent), stdin, stdout, shutdown) => {}
            () = watching => {}
            () = gateway.give_back_memory() => {}
        }
        finish_events(&gateway);
        Ok(0)
    }

    /// Hands the client to the daemon. Returns it if it has to be served here.
    async fn relay(&self, mut client: Client, common: &Common) -> Result<Option<Client>, Failure> {
        let Client { stdin, stdout, shutdown, .. } = &mut client;
        let Some(alone) = super::relay::relay(&self.loader, common, shutdown, stdin, stdout).await? else {
            return Ok(None);
        };
        writeln!(io::stderr(), "no daemon: {}", alone.reason)?;
        Ok(Some(Client { resumed: alone.resumed, unsent: Some(alone.unsent), ..client }))
    }

    /// Follows the file. From now on SIGHUP makes us read it again and no longer ends us.
    pub(super) fn follow(
        self,
        gateway: &Arc<Gateway>,
        rules: Option<(Arc<Rules>, Option<Arc<Replicas>>)>,
    ) -> io::Result<impl Future<Output = ()> + use<>> {
        let (loader, output, reading, putting) = (self.loader, self.output, gateway.clone(), gateway.clone());
        let mut hangup = Hangup::new()?;
        let (lock, in_force, refused) = (self.lock.clone(), self.lock, self.refused);
        let watch = FileWatch {
            file: loader.file.clone(),
            read: Arc::new(self.read),
            reload: Arc::new(move |bytes| {
                let (meaning, read) = loader.read(bytes, in_force.lock().clone());
                *refused.lock() = meaning.as_ref().err().map(|all| shown_problems(all)).unwrap_or_default();
                (accepted(meaning, &reading, output), read)
            }),
            put: move |(configured, warnings): (Configured, usize)| {
                lock.lock().clone_from(&configured.face.common().approved);
                if let Some((rules, replicas)) = &rules {
                    let serving = &configured.face.common().serving;
                    rules.replace(serving);
                    if let Some(replicas) = replicas {
                        replicas.set_keys(&serving.state_keys);
                    }
                }
                putting.reload(configured);
                note_reload(&putting, true, warnings);
                if let Some((rules, _)) = &rules {
                    rules.enforce();
                }
            },
        };
        Ok(watch.follow(async move || hangup.received().await))
    }
}
