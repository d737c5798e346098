//! Watches the configuration file, its lock file and the files that it names while we serve, reads them again when they
//! change, and puts them in force if they are valid.

use std::future::pending;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::check;
use super::failure::OutputMode;
use super::load::{Meaning, Read};
use crate::config::Problem;
use crate::gateway::console::FileProblem;
use crate::gateway::{Configured, Gateway, note_reload};

/// The time between two looks at the files. They are read whole: a look costs microseconds, works on every
/// file system and for every way in which editors and tools replace files, and catches even changes that keep
/// length and time.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
/// How long a changed file must stay the same, since it may be half written.
const AT_REST: Duration = Duration::from_millis(50);

/// Watches the files of a gateway. Clients are served on this thread, so everything that may take time, on a
/// slow disk or with a large file, happens on other threads.
pub(super) struct FileWatch<Reload, Put> {
    /// The configuration file.
    pub(super) file: PathBuf,
    /// The content that is in force, or was refused last.
    pub(super) read: Arc<Read>,
    /// Reads the configuration with this content: what is to be put in force, if it is valid, and everything
    /// that was read for it.
    pub(super) reload: Arc<Reload>,
    /// Puts it in force.
    pub(super) put: Put,
}

impl<Reload, New, Put> FileWatch<Reload, Put>
where
    Reload: Fn(Vec<u8>) -> (Option<New>, Read) + Send + Sync + 'static,
    New: Send + 'static,
    Put: Fn(New),
{
    /// Follows the file for ever. Whenever `asked` resolves, the file is read again, changed or not.
    pub(super) async fn follow(mut self, mut asked: impl AsyncFnMut()) {
        let mut missing = false;
        loop {
            let asked = tokio::select! {
                () = asked() => true,
                () = sleep(BETWEEN_LOOKS) => false,
            };
            match self.look(asked).await {
                Ok(Some(read)) => {
                    missing = false;
                    self.put_in_force(read.bytes).await;
                }
                Ok(None) => missing = false,
                Err(error) => {
                    if !missing || asked {
                        let file = self.file.display();
                        tracing::error!("cannot read {file}: {error}; the old configuration stays in force");
                    }
                    missing = true;
                }
            }
        }
    }

    /// What the files hold, if it has changed or was `asked` for. Waits until the files are at rest.
    async fn look(&self, asked: bool) -> io::Result<Option<Read>> {
        let mut read = match self.read_again().await {
            Ok(read) if read == *self.read && !asked => return Ok(None),
            first => first,
        };
        loop {
            sleep(AT_REST).await;
            let again = self.read_again().await;
            match (&read, again) {
                (Ok(before), Ok(now)) if *before == now => break,
                // Between the removal of the old file and the arrival of the new one, there is no file.
                (Err(_), Err(error)) => return Err(error),
                (_, again) => read = again,
            }
        }
        read.map(|read| (asked || read != *self.read).then_some(read))
    }

    /// Reads the files without keeping clients waiting, however slow the disk is.
    async fn read_again(&self) -> io::Result<Read> {
        let (before, file) = (self.read.clone(), self.file.clone());
        let read = spawn_blocking(move || before.again(&file)).await;
        read.unwrap_or_else(|_| Err(io::Error::other("the reader was stopped")))
    }

    /// Puts the file with this content in force, if it is valid.
    async fn put_in_force(&mut self, bytes: Vec<u8>) {
        let reload = self.reload.clone();
        let Ok((new, read)) = spawn_blocking(move || reload(bytes)).await else { return };
        self.read = Arc::new(read);
        if let Some(new) = new {
            tracing::info!("{} is read again", self.file.display());
            (self.put)(new);
        }
    }
}

/// What a file means that is read again, and how many warnings it has, after its problems were printed; `None` if it is
/// not valid.
pub(super) fn accepted(
    meaning: Meaning,
    gateway: &Gateway,
    output: OutputMode,
) -> Option<(Configured, usize)> {
    match meaning {
        Ok((configured, warnings)) => {
            tell(&warnings, output);
            gateway.recall(&*configured.face, true);
            Some((configured, warnings.len()))
        }
        Err(problems) => {
            tell(&problems, output);
            note_reload(gateway, false, problems.len());
            let count = check::errors(&problems);
            let _ = writeln!(io::stderr(), "{count}; the old configuration stays in force");
            None
        }
    }
}

/// The problems of a file that was refused, as the console shows them.
pub(super) fn shown_problems(problems: &[Problem]) -> Vec<FileProblem> {
    let errors = problems.iter().filter(|problem| problem.is_error());
    let shown = errors.map(|problem| {
        let Problem { file, line, column, message, hint, .. } = problem;
        let text = if hint.is_empty() { message.clone() } else { format!("{message}\n{hint}") };
        FileProblem { title: format!("{}:{line}:{column} was refused", file.display()), text }
    });
    shown.collect()
}

/// Prints problems; if stderr is gone, there is nobody to tell.
fn tell(problems: &[Problem], output: OutputMode) {
    let _ = check::list_problems(problems, output, &mut io::stderr());
}

/// SIGHUP, on systems that have it. It makes us read the file again and no longer ends us.
pub(super) struct Hangup {
    #[cfg(unix)]
    signal: tokio::signal::unix::Signal,
}

impl Hangup {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?,
        })
    }

    pub(super) async fn received(&mut self) {
        #[cfg(unix)]
        if self.signal.recv().await.is_some() {
            return;
        }
        pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn reading_the_file_again_holds_up_nobody() {
        let file = std::env::temp_dir().join(format!("mcp-workbench-reload-{}", std::process::id()));
        std::fs::write(&file, "new").expect("the temporary directory is writable");
        // The reader is blocked until this thread has done something else.
        let (begun, has_begun) = oneshot::channel();
        let (go_on, told) = mpsc::channel();
        let (done, is_done) = oneshot::channel();
        let once = parking_lot::Mutex::new(Some((begun, told, done)));
        let reload = move |bytes| {
            if let Some((begun, told, done)) = once.lock().take() {
                let _ = begun.send(());
                let _ = done.send(told.recv_timeout(Duration::from_secs(20)));
            }
            (None::<()>, Read { bytes, ..Read::default() })
        };
        let (read, reload) = (Arc::default(), Arc::new(reload));
        let watch = FileWatch { file: file.clone(), read, reload, put: |()| () };
        let client = async {
            has_begun.await.expect("the file has changed");
            go_on.send(()).expect("it is waited for");
            is_done.await
        };
        tokio::select! {
            () = watch.follow(async || pending().await) => {}
            done = client => assert_eq!(done, Ok(Ok(()))),
        }
        std::fs::remove_file(&file).expect("it was written above");
    }
}
