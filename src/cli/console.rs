//! `console`: the pages of the console on a port of this machine. Each connection is handed to the daemon if one
//! runs; else the pages show the file, what is remembered of its servers, and the journal.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::failure::{Failure, OutputMode};
use super::load::{Loader, Overrides, runtime, signal};
use super::serve::Service;
use super::{World, serve_http};
use crate::config::locate::{FaceKind, NotFound};
use crate::core::engine::Surroundings;
use crate::core::logins::Attendance;
use crate::core::process::browse;
use crate::daemon::{DaemonStream, Daemons};
use crate::events::{JournalReader, journal};
use crate::gateway::console::{Console, Door, KeyFile, UNUSED};
use crate::gateway::http::Rules;
use crate::gateway::{Gateway, finish_events};

/// What the command line asks for.
pub(super) struct ConsoleOrder<'a> {
    pub(super) face: FaceKind,
    pub(super) file: Result<PathBuf, NotFound>,
    pub(super) overrides: Overrides,
    /// The port; 0 takes a free one.
    pub(super) port: u16,
    /// Whether the browser is opened.
    pub(super) opens: bool,
    pub(super) output: OutputMode,
    pub(super) world: &'a World,
}

impl ConsoleOrder<'_> {
    /// Serves the console until somebody presses Ctrl-C.
    pub(super) fn run(self) -> Result<u8, Failure> {
        let runtime = runtime()?;
        let served = runtime.block_on(self.serve());
        runtime.shutdown_background();
        served
    }

    async fn serve(self) -> Result<u8, Failure> {
        let Self { face, port, opens, output, world, .. } = self;
        let shutdown = signal()?;
        let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = serve_http::listen(wanted).map_err(|error| {
            Failure::failed(format!("cannot listen on {wanted}: {error}"), "choose another port with --port")
        })?;
        let (address, key) = (listener.local_addr()?, world.console_key()?);
        let state = world.state_directory().unwrap_or_default();
        let daemons = Arc::new(world.daemons());
        let has_daemon = daemon(&daemons, face, &state).await.is_some();
        let (own, url) = match self.own(address, key.clone()) {
            Ok(own) if !has_daemon => {
                let url = own.console.address(address);
                (Some(own), url)
            }
            Err(failure) if !has_daemon => return Err(failure),
            own => {
                let key = key.read().unwrap_or_default();
                (own.ok(), format!("http://{address}/console#key={key}"))
            }
        };
        let mut out = io::stdout();
        match output.json {
            true => writeln!(out, "{}", serde_json::json!({ "url": url }))?,
            false => writeln!(out, "{url}")?,
        }
        out.flush()?;
        if opens && world.has_browser() {
            browse(&url);
        }
        let (console, gateway, watching) = match own {
            Some(Own { console, gateway, watching }) => (Some(console), Some(gateway), Some(watching)),
            None => (None, None, None),
        };
        let watching = async {
            match watching {
                Some(watching) => watching.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shutdown => {}
            () = watching => {}
            () = accept(&listener, face, &state, console.as_ref(), &daemons) => {}
        }
        if let Some(console) = &console {
            console.end();
        }
        if let Some(gateway) = gateway {
            gateway.end().await;
            finish_events(&gateway);
        }
        Ok(0)
    }

    /// The console that shows the file and the journal.
    fn own(
        self,
        address: SocketAddr,
        key: KeyFile,
    ) -> Result<Own<impl Future<Output = ()> + use<>>, Failure> {
        let Self { face, file, overrides, output, world, .. } = self;
        let state = world.state_directory();
        let directory = state.as_deref().map(journal::directory).unwrap_or_default();
        let loader = Loader::for_serving(face, file?, overrides, world.clone());
        let loader = Loader { skip_missing: true, ..loader };
        let (configured, read) = loader.load(output)?;
        let service = Service::new(loader, &configured, read, output, world);
        let rules = Rules::new(&configured.face.common().serving, None);
        let whole = configured.face.clone();
        let around = Surroundings { attendance: Attendance::Nobody, ..world.serving_surroundings(face) };
        let gateway = Gateway::new(configured, around);
        gateway.recall(&*whole, true);
        let door = Door::new(address, &[], rules.clone(), key);
        let journal = JournalReader::new(directory);
        let unused = world.unused_server();
        let console =
            Console::of_journal(door, face, unused, gateway.clone(), service.refused.clone(), journal);
        let watching = service.follow(&gateway, Some((rules, None)))?;
        Ok(Own { console, gateway, watching })
    }
}

/// The console of this process.
struct Own<W> {
    console: Arc<Console>,
    gateway: Arc<Gateway>,
    /// Follows the file.
    watching: W,
}

/// Takes connections for ever.
async fn accept(
    listener: &TcpListener,
    face: FaceKind,
    state: &Path,
    own: Option<&Arc<Console>>,
    daemons: &Arc<Daemons>,
) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            // Without descriptors nothing can be accepted until somebody has gone.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (own, daemons, state) = (own.cloned(), daemons.clone(), state.to_owned());
        tokio::spawn(async move {
            match (daemon(&daemons, face, &state).await, own) {
                (Some(mut daemon), _) => {
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut daemon).await;
                }
                (None, Some(console)) => console.serve(stream).await,
                (None, None) => {}
            }
        });
    }
}

/// A connection to the daemon on which it serves its console, if a daemon runs.
async fn daemon(daemons: &Daemons, face: FaceKind, state: &Path) -> Option<DaemonStream> {
    daemons.find().await.ok()??.console(face, state).await
}

impl World {
    /// How long a server that the console has started may be unused. Tests of a debug build need not wait for that.
    fn unused_server(&self) -> Duration {
        let shorter = cfg!(debug_assertions).then(|| self.variable("MCP_WORKBENCH_TEST_UNUSED_MS")).flatten();
        shorter.and_then(|millis| millis.parse().ok()).map_or(UNUSED, Duration::from_millis)
    }

    /// The key of this user's consoles.
    pub(super) fn console_key(&self) -> Result<KeyFile, Failure> {
        let state = self.state_directory().ok_or_else(|| {
            let hint = "set XDG_STATE_HOME to a directory that only you may read";
            Failure::failed("the console has no place for its key: there is no home directory", hint)
        })?;
        KeyFile::of(&state).map_err(|error| {
            let hint = format!("look at {}", state.join("mcp-workbench").display());
            Failure::failed(format!("the key of the console cannot be kept: {error}"), hint)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_may_be_unused_for_a_minute_unless_a_test_says_otherwise() {
        let world = |vars: &[(&str, &str)]| World {
            vars: vars.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            directory: PathBuf::new(),
            home: None,
        };
        let name = "MCP_WORKBENCH_TEST_UNUSED_MS";
        assert_eq!(world(&[]).unused_server(), Duration::from_secs(60));
        assert_eq!(world(&[(name, "soon")]).unused_server(), Duration::from_secs(60));
        assert_eq!(world(&[(name, "700")]).unused_server(), Duration::from_millis(700));
    }
}
