//! The configuration file while we serve: watched, read again, and put in force if it is valid.

use std::future::pending;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::check;
use crate::config::Problem;
use crate::serve::http::Rules;
use crate::serve::{Configured, Gateway};

/// Between two looks at the file. It is read whole: a look costs microseconds, works on every file system and for every
/// way in which editors and tools replace files, and misses nothing that keeps length and time.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
/// A file that has changed must look the same for so long: it may be half written.
const AT_REST: Duration = Duration::from_millis(50);

/// Watches the file of a gateway.
pub(super) struct Watch<'a, Reload> {
    /// Which.
    pub(super) file: &'a Path,
    /// What is in force, or was refused last.
    pub(super) bytes: Vec<u8>,
    /// What a file stands for, with warnings, or everything that is wrong with it.
    pub(super) reload: Reload,
    /// Whether problems are shown in colours.
    pub(super) colour: bool,
    /// Who serves.
    pub(super) gateway: Arc<Gateway>,
    /// Who may come in over HTTP.
    pub(super) rules: Option<Arc<Rules>>,
}

impl<Reload> Watch<'_, Reload>
where
    Reload: Fn(&[u8]) -> Result<(Configured, Vec<Problem>), Vec<Problem>>,
{
    /// Follows the file for ever. From now on SIGHUP has it read again instead of ending us.
    pub(super) fn follow(mut self) -> io::Result<impl Future<Output = ()>> {
        let mut hangup = Hangup::new()?;
        Ok(async move {
            let mut missing = false;
            loop {
                let asked = tokio::select! {
                    () = hangup.received() => true,
                    () = sleep(BETWEEN_LOOKS) => false,
                };
                match self.look(asked).await {
                    Ok(Some(bytes)) => {
                        missing = false;
                        self.bytes = bytes;
                        self.put_in_force();
                    }
                    Ok(None) => missing = false,
                    Err(error) => {
                        if !missing || asked {
                            let file = self.file.display();
                            log::error!("cannot read {file}: {error}; the configuration in force stays");
                        }
                        missing = true;
                    }
                }
            }
        })
    }

    /// The file's content, if it is another than before or `asked` for. Waits until it is at rest.
    async fn look(&self, asked: bool) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = match read(self.file).await {
            Ok(bytes) if bytes == self.bytes && !asked => return Ok(None),
            first => first,
        };
        loop {
            sleep(AT_REST).await;
            let again = read(self.file).await;
            match (&bytes, again) {
                (Ok(before), Ok(now)) if *before == now => break,
                // Between the removal of the old file and the new one there is none.
                (Err(_), Err(error)) => return Err(error),
                (_, again) => bytes = again,
            }
        }
        bytes.map(|bytes| (asked || bytes != self.bytes).then_some(bytes))
    }

    /// Puts the file in force, or says what is wrong with it.
    fn put_in_force(&self) {
        let (outcome, problems) = match (self.reload)(&self.bytes) {
            Ok((configured, warnings)) => (Some(configured), warnings),
            Err(problems) => (None, problems),
        };
        // If stderr is gone there is nobody to tell.
        let _ = check::list_problems(&problems, self.colour, &mut io::stderr());
        if let Some(configured) = outcome {
            log::info!("{} is read again", self.file.display());
            if let Some(rules) = &self.rules {
                rules.replace(&configured.face.common().serving);
            }
            self.gateway.reload(configured);
            if let Some(rules) = &self.rules {
                rules.enforce();
            }
        } else {
            let count = check::errors(&problems);
            let _ = writeln!(io::stderr(), "{count}; the configuration in force stays as it was");
        }
    }
}

/// Reads the file without keeping clients waiting, however slow the disk is.
async fn read(file: &Path) -> io::Result<Vec<u8>> {
    let file = file.to_owned();
    tokio::task::spawn_blocking(move || std::fs::read(file))
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the reader was stopped")))
}

/// SIGHUP, where there is one.
struct Hangup {
    #[cfg(unix)]
    signal: tokio::signal::unix::Signal,
}

impl Hangup {
    fn new() -> io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?,
        })
    }

    async fn received(&mut self) {
        #[cfg(unix)]
        if self.signal.recv().await.is_some() {
            return;
        }
        pending().await
    }
}
