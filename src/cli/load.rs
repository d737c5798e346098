//! Reads the configuration file and turns it into what can run. All verbs that need servers start here.

use super::failure::{Failure, FailureKind, OutputMode};
use super::{World, check};
use crate::config::locate::{FaceKind, NotFound};
use crate::config::{
    self, Access, Common, EnvFile, Inputs, Isolation, LockRule, Problem, ToolMode, Transport,
};
use crate::core::process::git_may_commit;
use crate::edit::file::{contents, contents_and_metadata};
use crate::events;
use crate::face::toolman::Toolman;
use crate::face::workbench::Workbench;
use crate::gateway::{Configured, SwitchFile};
use crate::lock::{Form, Lock};
use crate::memory::Switched;
use crate::memory::definitions::depends_on;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

/// The settings of the command line that override the file.
#[derive(Clone, Default)]
pub(super) struct Overrides {
    pub(super) tool_mode: Option<ToolMode>,
    /// The client's name for us.
    pub(super) entry: Option<String>,
}

/// Reads one configuration file, as often as necessary.
#[derive(Clone)]
pub(super) struct Loader {
    pub(super) face: FaceKind,
    pub(super) file: PathBuf,
    pub(super) overrides: Overrides,
    /// The file for toolman's switches, if they are remembered.
    pub(super) state: Option<PathBuf>,
    /// Whether servers whose variables are not set are skipped, whatever the file says.
    pub(super) skip_missing: bool,
    /// Reads another file that the configuration names.
    pub(super) reader: fn(&Path) -> io::Result<EnvFile>,
    /// Whether the lock counts. It does for everybody but the verb that writes it.
    pub(super) obeys_lock: bool,
    /// Whether the daemon reads the file, for sessions from several directories.
    pub(super) in_daemon: bool,
    pub(super) world: World,
}

/// Everything that a configuration was read from.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Read {
    /// The content of the configuration file.
    pub(super) bytes: Vec<u8>,
    /// The files that the configuration names; `None` for one that cannot be read.
    pub(super) named: Vec<(PathBuf, Option<EnvFile>)>,
    /// The content of the lock file; `None` if it cannot be read.
    pub(super) lock: Option<Vec<u8>>,
}

/// What a file means, with warnings, or everything that is wrong with it.
pub(super) type Meaning = Result<(Configured, Vec<Problem>), Vec<Problem>>;

impl Loader {
    /// A source for whoever serves the file.
    pub(super) fn for_serving(face: FaceKind, file: PathBuf, overrides: Overrides, world: World) -> Self {
        let (state, reader) = (world.state_directory(), env_file);
        let (skip_missing, obeys_lock, in_daemon) = (false, true, false);
        Self { face, file, overrides, state, skip_missing, reader, obeys_lock, in_daemon, world }
    }

    /// A source for a verb that asks servers and reports by itself those that cannot be asked.
    pub(super) fn for_asking(
        face: FaceKind,
        file: Result<PathBuf, NotFound>,
        overrides: &Overrides,
        world: &World,
    ) -> Result<Self, Failure> {
        let (reader, world, overrides) = (env_file, world.clone(), overrides.clone());
        let (state, skip_missing, obeys_lock, in_daemon) = (None, true, true, false);
        Ok(Self { face, file: file?, overrides, state, skip_missing, reader, obeys_lock, in_daemon, world })
    }

    /// Reads the file and prints its warnings on stderr.
    pub(super) fn load(&self, output: OutputMode) -> Result<(Configured, Read), Failure> {
        let bytes = contents(&self.file).map_err(|error| Failure::unreadable(&self.file, &error))?;
        match self.read(bytes, None) {
            (Ok((configured, mut warnings)), read) => {
                // The verb itself reports what each server lacks.
                warnings.retain(|warning| !(self.skip_missing && warning.unset));
                if !output.json {
                    check::list_problems(&warnings, output, &mut io::stderr())?;
                }
                Ok((configured, read))
            }
            (Err(problems), _) => {
                let count = check::errors(&problems);
                let file = problems.first().map_or(&self.file, |problem| &problem.file).clone();
                Err(Failure::invalid(&file, problems, format!("{count}; nothing was started")))
            }
        }
    }

    /// What the file would mean with this content, and everything that was read for it. A lock that is `in_force`
    /// stays so where its file has gone or become invalid.
    pub(super) fn read(&self, bytes: Vec<u8>, in_force: Option<Arc<Lock>>) -> (Meaning, Read) {
        let named = RefCell::new(Vec::new());
        let environment = |name: &str| self.world.variable(name);
        let read = |path: &Path| {
            let read = (self.reader)(path);
            named.borrow_mut().push((path.to_owned(), read.as_ref().ok().cloned()));
            read
        };
        let inputs = Inputs { environment: &environment, read: &read, skip_missing: self.skip_missing };
        let lock = LockFile { read: contents(&config::lock_file(&self.file)), in_force };
        let meaning = self.meaning(&bytes, &inputs, &lock);
        (meaning, Read { bytes, named: named.take(), lock: lock.read.ok() })
    }

    fn meaning(&self, bytes: &[u8], inputs: &Inputs<'_>, lock: &LockFile) -> Meaning {
        let secrets = || events::environment::secrets(inputs.environment);
        match self.face {
            FaceKind::Workbench => {
                let (mut config, mut warnings) = config::load(&self.file, bytes, inputs)?;
                config.tool_mode = self.overrides.tool_mode.unwrap_or(config.tool_mode);
                config.common.naming.entry.clone_from(&self.overrides.entry);
                config.common.secrets = config.common.secrets.with(secrets());
                self.obey(lock, &mut config.common, &mut warnings)?;
                let servers = config.toolboxes.iter_mut().flat_map(|toolbox| &mut toolbox.servers);
                let servers = servers.filter_map(Arc::get_mut);
                self.settle(servers.map(|server| (&mut server.transport, server.isolation)));
                Ok((Configured { face: Arc::new(Workbench { config }), switch_file: None }, warnings))
            }
            FaceKind::Toolman => {
                let (mut config, mut warnings) = config::load_toolman(&self.file, bytes, inputs)?;
                config.common.naming.entry.clone_from(&self.overrides.entry);
                config.common.secrets = config.common.secrets.with(secrets());
                self.obey(lock, &mut config.common, &mut warnings)?;
                let servers = config.servers.iter_mut().filter_map(Arc::get_mut);
                self.settle(servers.map(|server| (&mut server.transport, server.isolation)));
                let state = self.state.as_ref().filter(|_| config.remember);
                let switch_file = state.map(|state| SwitchFile {
                    state: state.clone(),
                    path: Switched::path(state, &self.file),
                    config: self.file.clone(),
                });
                Ok((Configured { face: Arc::new(Toolman::new(config)), switch_file }, warnings))
            }
        }
    }

    /// In the daemon, says where the servers run that depend on it: sessions from different directories are not shown what
    /// is remembered of each other's.
    fn settle<'s>(&self, servers: impl Iterator<Item = (&'s mut Transport, Option<Isolation>)>) {
        if !self.in_daemon {
            return;
        }
        // Entries have many words in common, and each look at the disk takes its time.
        let mut seen = HashMap::new();
        for (transport, isolation) in servers {
            let directory = match isolation {
                Some(Isolation::Shared) => self.file.parent(),
                Some(Isolation::Directory | Isolation::Session) | None => Some(&*self.world.directory),
            };
            let exists = |path: PathBuf| {
                // As texts, since `x` and `x/` are equal as paths and only one of them may exist.
                *seen.entry(path.into_os_string()).or_insert_with_key(|path| Path::new(path).exists())
            };
            if let (Transport::Stdio(command), Some(directory)) = (transport, directory)
                && command.cwd.is_none()
                && depends_on(command, directory, exists)
            {
                command.cwd = Some(directory.to_owned());
            }
        }
    }

    /// Puts into the settings what the lock file approves. Where a lock in force stays although its file is gone or
    /// invalid, that is reported.
    fn obey(
        &self,
        lock: &LockFile,
        common: &mut Common,
        warnings: &mut Vec<Problem>,
    ) -> Result<(), Vec<Problem>> {
        if !self.obeys_lock {
            return Ok(());
        }
        let path = config::lock_file(&self.file);
        let read = |rule| {
            let read = lock.read.as_deref().map_err(|error| error.kind().into());
            config::approved(rule, form(self.face), &path, read)
        };
        let approved = match (read(common.lock), &lock.in_force) {
            // A lock that has vanished counts as one that must exist.
            (Ok(None), Some(_)) if common.lock != LockRule::Off => read(LockRule::Enforce),
            (approved, _) => approved,
        };
        common.approved = match (approved, &lock.in_force) {
            (Err(mut problems), Some(in_force)) => {
                for problem in &mut problems {
                    problem.hint.push_str("; until then, what was approved before stays in force");
                }
                warnings.extend(problems);
                Some(in_force.clone())
            }
            (approved, _) => approved?,
        };
        Ok(())
    }
}

/// The lock file as it is, and the lock that is in force.
struct LockFile {
    read: io::Result<Vec<u8>>,
    in_force: Option<Arc<Lock>>,
}

/// The form of a face's lock file.
pub(super) fn form(face: FaceKind) -> Form {
    match face {
        FaceKind::Workbench => Form::Toolboxes,
        FaceKind::Toolman => Form::Namespaces,
    }
}

impl Read {
    /// Reads the same files as they are now.
    pub(super) fn again(&self, file: &Path) -> io::Result<Self> {
        let named = self.named.iter().map(|(path, _)| (path.clone(), env_file(path).ok()));
        let lock = contents(&config::lock_file(file)).ok();
        Ok(Self { bytes: contents(file)?, named: named.collect(), lock })
    }
}

/// Reads a file that a configuration names.
pub(super) fn env_file(path: &Path) -> io::Result<EnvFile> {
    let (bytes, metadata) = contents_and_metadata(path)?;
    Ok(EnvFile { bytes, others: Access::of_others(&metadata), committable: false })
}

/// Reads a file that a configuration names, and asks git about it.
pub(super) fn checked_env_file(path: &Path) -> io::Result<EnvFile> {
    env_file(path).map(|file| EnvFile { committable: git_may_commit(path), ..file })
}

/// The runtime for everything: one thread.
pub(super) fn runtime() -> Result<Runtime, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::failed(format!("cannot start: {error}"), "try again"))
}

/// Ends the process with the status of an interruption when somebody presses Ctrl-C. For verbs that wait for
/// a person or a lock, and start nothing that would have to be ended first.
pub(super) fn exit_when_interrupted() -> Result<(), Failure> {
    let runtime = runtime()?;
    // The signal is caught from here on, not only once the thread runs.
    let interrupted = {
        let _entered = runtime.enter();
        signal()?
    };
    std::thread::spawn(move || {
        runtime.block_on(interrupted);
        if io::stderr().is_terminal() {
            let _ = writeln!(io::stderr());
        }
        std::process::exit(FailureKind::Interrupted.status().into());
    });
    Ok(())
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
                // When the window closes or the system ends, the handler keeps us alive for the few seconds
                // allowed.
                _ = close.recv() => {}
                _ = shutdown.recv() => {}
            }
        })
    }
}
