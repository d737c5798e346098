//! From the configuration file to what can run.

use super::failure::{Failure, Manner};
use super::{World, check};
use crate::config::locate::{Face, NotFound};
use crate::config::{self, Problem, ToolMode};
use crate::edit::file::contents;
use crate::face::toolman::Toolman;
use crate::face::workbench::Workbench;
use crate::gateway::{Configured, SwitchFile};
use crate::memory::Switched;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

/// A file that can be used.
pub(super) struct Loaded {
    pub(super) file: PathBuf,
    /// What it held.
    pub(super) bytes: Vec<u8>,
    pub(super) configured: Configured,
}

/// What the command line says over the file.
#[derive(Clone, Default)]
pub(super) struct Overrides {
    pub(super) tool_mode: Option<ToolMode>,
    /// What the client's file calls us.
    pub(super) entry: Option<String>,
}

/// Reads the file; its warnings go to stderr. `state` is where switches of toolman are remembered.
pub(super) fn load(
    face: Face,
    file: Result<PathBuf, NotFound>,
    overrides: &Overrides,
    state: Option<&Path>,
    manner: Manner,
    world: &World,
) -> Result<Loaded, Failure> {
    let file = file?;
    let bytes = contents(&file).map_err(|error| Failure::unreadable(&file, &error))?;
    match read(face, &file, &bytes, overrides, state, world) {
        Ok((configured, warnings)) => {
            if !manner.json {
                check::list_problems(&warnings, manner, &mut io::stderr())?;
            }
            Ok(Loaded { file, bytes, configured })
        }
        Err(problems) => {
            let count = check::errors(&problems);
            Err(Failure::invalid(&file, problems, format!("{count}; nothing was started")))
        }
    }
}

/// What a file stands for, with warnings, or everything that is wrong with it.
pub(super) fn read(
    face: Face,
    file: &Path,
    bytes: &[u8],
    overrides: &Overrides,
    state: Option<&Path>,
    world: &World,
) -> Result<(Configured, Vec<Problem>), Vec<Problem>> {
    let environment = |name: &str| world.variable(name);
    match face {
        Face::Workbench => config::load(file, bytes, &environment).map(|(mut config, warnings)| {
            config.tool_mode = overrides.tool_mode.unwrap_or(config.tool_mode);
            config.common.entry.clone_from(&overrides.entry);
            (Configured { face: Arc::new(Workbench { config }), switch_file: None }, warnings)
        }),
        Face::Toolman => config::load_toolman(file, bytes, &environment).map(|(mut config, warnings)| {
            config.common.entry.clone_from(&overrides.entry);
            let state = state.filter(|_| config.remember);
            let switch_file = state.map(|state| SwitchFile {
                state: state.to_owned(),
                path: Switched::path(state, file),
                config: file.to_owned(),
            });
            (Configured { face: Arc::new(Toolman::new(config)), switch_file }, warnings)
        }),
    }
}

/// What everything runs on: one thread.
pub(super) fn runtime() -> Result<Runtime, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::failed(format!("cannot start: {error}"), "try again"))
}

/// Resolves when the system asks us to end.
pub(super) fn signal() -> io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        })
    }
    #[cfg(windows)]
    {
        use tokio::signal::windows;
        let (mut interrupt, mut stop) = (windows::ctrl_c()?, windows::ctrl_break()?);
        let (mut close, mut shutdown) = (windows::ctrl_close()?, windows::ctrl_shutdown()?);
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = stop.recv() => {}
                // The window closes or the system ends: the handler keeps us alive for the few seconds it may.
                _ = close.recv() => {}
                _ = shutdown.recv() => {}
            }
        })
    }
}
