//! The process that a client starts when the file says `"daemon": true`: hands the session to the daemon, and
//! says why if it cannot.

use std::path::{Path, PathBuf};
use std::pin::Pin;

use tokio::io::AsyncWrite;
use tokio::sync::mpsc;

use super::World;
use super::failure::Failure;
use super::load::Loader;
use super::reload::Hangup;
use crate::config::Common;
use crate::core::process::{Launcher, daemon};
use crate::daemon::{Alone, DaemonPlace, Daemons, Handover, Relay, RelayEnd, SystemCalls};
use crate::transport::stdio::ClientInput;

/// Hands the session to the daemon. `None`: it is over; else it has to go on here.
pub(super) async fn relay(
    loader: &Loader,
    common: &Common,
    shutdown: &mut Pin<Box<dyn Future<Output = ()>>>,
    stdin: &mut ClientInput,
    stdout: &mut (impl AsyncWrite + Unpin),
) -> Result<Option<Alone>, Failure> {
    let (send, hangup) = mpsc::channel(1);
    let mut signal = Hangup::new()?;
    let hearing = tokio::spawn(async move {
        loop {
            signal.received().await;
            // A signal that waits already is as good as two.
            let _ = send.try_send(());
        }
    });
    let world = &loader.world;
    let handover = Handover {
        face: loader.face,
        file: loader.file.clone(),
        directory: world.directory.clone(),
        umask: daemon::umask(),
        tool_mode: loader.overrides.tool_mode,
        entry: loader.overrides.entry.clone(),
        first_question: 0,
        record: None,
        vars: world.vars.clone(),
    };
    let relay = Relay { daemons: world.daemons(), handover, limit: common.max_message_bytes };
    let mut calls = SystemCalls { shutdown, hangup };
    let outcome = relay.run(stdin, stdout, &mut calls).await;
    hearing.abort();
    match outcome {
        RelayEnd::Ended => Ok(None),
        RelayEnd::Alone(alone) => Ok(Some(*alone)),
    }
}

impl World {
    /// This user's daemons.
    pub(super) fn daemons(&self) -> Daemons {
        let state = self.state_directory().map(|state| state.join("mcp-workbench"));
        let log = state.as_ref().map(|state| state.join("daemon.log"));
        let launcher = Launcher::new();
        if let Some(state) = state.filter(|_| cfg!(windows)) {
            let place = DaemonPlace::at(state.join("daemon"));
            return Daemons { place, elsewhere: Vec::new(), log, launcher };
        }
        let runtime = self.variable("XDG_RUNTIME_DIR").map(PathBuf::from);
        let temporary = if cfg!(windows) { "TEMP" } else { "TMPDIR" };
        let temporary = self.variable(temporary).filter(|path| !path.is_empty());
        let temporary = PathBuf::from(temporary.unwrap_or_else(|| "/tmp".to_owned()));
        let (runtime, user) = (runtime.as_deref(), daemon::user());
        let place = DaemonPlace::new(runtime, &temporary, user);
        Daemons {
            elsewhere: place.elsewhere(runtime, Path::new("/run/user"), &temporary, user),
            place,
            log,
            launcher,
        }
    }
}
