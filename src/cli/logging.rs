//! Log lines: one line on stderr for each event, as `level: [span] [span] message`. The log starts once it is known
//! that this process has something to log.
//!
//! A span is named by its fields alone (`[dev/files]`, `[claude-code 3 tools/call]`), so that every line
//! shows the request or the server that it is about, wherever it was written.

use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{self, Write as _};
#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

use crate::core::LIFE;
use crate::text::date::rfc3339;

/// The variable that selects what is logged, by module, as in `warn,mcp_workbench::transport=debug`.
pub(super) const VARIABLE: &str = "RUST_LOG";
/// The prefix of our modules' names.
const US: &str = "mcp_workbench";

/// A log on stderr that has not started.
pub(super) struct Log {
    /// The least severe events that are logged.
    pub(super) level: LevelFilter,
    /// Whether it also says who comes and goes and which servers become ready.
    pub(super) life: bool,
    /// What the variable `RUST_LOG` selects instead.
    pub(super) selected: Option<String>,
}

impl Log {
    /// Logs from now on.
    pub(super) fn start(&self) {
        let selected = self.selected.as_deref().filter(|selected| !selected.is_empty());
        let usual = || match self.life {
            true => level_for_us(self.level).with_target(LIFE, self.level.max(LevelFilter::INFO)),
            false => level_for_us(self.level),
        };
        let (targets, problem) = match selected.map(str::parse::<Targets>) {
            None => (usual(), None),
            Some(Ok(targets)) => (ours(targets), None),
            Some(Err(error)) => (usual(), Some(error)),
        };
        let logger = Registry::default().with(targets).with(LineWriter(to_stderr));
        tracing::subscriber::set_global_default(logger).expect("it is started once");
        if let Some(error) = problem {
            tracing::warn!("{VARIABLE} is ignored: {error}");
        }
    }
}

/// Logs what the daemon does into a file; into nothing if that cannot be written.
pub(super) fn start_in(log: Option<&Path>) {
    let file = Mutex::new(log.and_then(LogFile::open));
    let write = move |line: &str| {
        if let Some(file) = &mut *file.lock() {
            file.write(line);
        }
    };
    let logger = Registry::default().with(level_for_us(LevelFilter::INFO)).with(LineWriter(write));
    tracing::subscriber::set_global_default(logger).expect("it is started once");
}

/// A log of limited size, which has one predecessor.
struct LogFile {
    path: PathBuf,
    file: File,
    /// The size at which the file becomes the predecessor.
    limit: u64,
}

/// The most bytes of the daemon's log.
const LARGEST_LOG: u64 = 10_000_000;

impl LogFile {
    fn open(path: &Path) -> Option<Self> {
        Self::limited(path, LARGEST_LOG).ok()
    }

    fn limited(path: &Path, limit: u64) -> io::Result<Self> {
        let (mut directories, mut options) = (fs::DirBuilder::new(), File::options());
        directories.recursive(true);
        options.create(true).append(true);
        // A link could lead to somebody else's file, and a pipe would keep us waiting for a reader.
        #[cfg(unix)]
        {
            directories.mode(0o700);
            options.mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        }
        if let Some(directory) = path.parent() {
            directories.create(directory)?;
        }
        let file = options.open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        #[cfg(unix)]
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        Ok(Self { path: path.to_owned(), file, limit })
    }

    /// Writes a line with the time before it. An error is ignored, because the daemon works without a log.
    fn write(&mut self, line: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = format!("{} {line}", rfc3339(now.as_secs()));
        if !self.has_room(&line) {
            self.reopen();
        }
        if !self.has_room(&line) && fs::rename(&self.path, self.path.with_extension("log.1")).is_ok() {
            self.reopen();
        }
        if self.has_room(&line) {
            let _ = self.file.write_all(line.as_bytes());
        }
    }

    /// The daemon of another build writes here, too, so the system knows the size.
    fn has_room(&self, line: &str) -> bool {
        self.file.metadata().is_ok_and(|about| about.len() + line.len() as u64 <= self.limit)
    }

    /// That other daemon may have made the file that we write to the predecessor.
    fn reopen(&mut self) {
        if let Ok(next) = Self::limited(&self.path, self.limit) {
            *self = next;
        }
    }
}

/// Writes a line. An error is ignored, because a reader that is gone must not stop us from serving.
fn to_stderr(line: &str) {
    let _ = io::stderr().write_all(line.as_bytes());
}

fn level_for_us(level: LevelFilter) -> Targets {
    Targets::new().with_target(US, level)
}

/// Drops the targets of other crates, because nobody keeps secrets out of their lines.
fn ours(targets: Targets) -> Targets {
    let everywhere = targets.default_level().map(|level| (US.to_owned(), level));
    let named = targets.into_iter().filter(|(target, _)| target.starts_with(US));
    everywhere.into_iter().chain(named).collect()
}

/// Writes each event as one line.
struct LineWriter<W>(W);

/// The name of a span in the lines.
struct Label(String);

impl<S, W> Layer<S> for LineWriter<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Fn(&str) + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut words = Words::default();
        attributes.record(&mut words);
        if let Some(span) = context.span(id).filter(|_| !words.fields.is_empty()) {
            span.extensions_mut().insert(Label(words.fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = format!("{}: ", event.metadata().level().as_str().to_lowercase());
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(Label(label)) = span.extensions().get() {
                let _ = write!(line, "[{label}] ");
            }
        }
        let mut words = Words::default();
        event.record(&mut words);
        if !words.fields.is_empty() {
            let _ = write!(line, "[{}] ", words.fields);
        }
        // A message may quote a server, and have several lines.
        let parts: Vec<_> = words.message.lines().map(str::trim).collect();
        line.push_str(&parts.join(" | "));
        line.push('\n');
        (self.0)(&line);
    }
}

/// The words of a span or an event: its message, and the values of its fields separated by spaces.
#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
            return;
        }
        let space = if self.fields.is_empty() { "" } else { " " };
        let _ = write!(self.fields, "{space}{value:?}");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_other_crates_log_is_left_out() {
        for (wanted, expected) in [
            ("debug", "mcp_workbench=debug"),
            ("trace,hyper=trace", "mcp_workbench=trace"),
            ("warn,mcp_workbench::wire=debug", "mcp_workbench::wire=debug,mcp_workbench=warn"),
            ("mcp_workbench::core=info", "mcp_workbench::core=info"),
            ("hyper=trace", ""),
        ] {
            let targets = ours(wanted.parse().expect("it is well-formed"));
            assert_eq!(targets.to_string(), expected, "{wanted}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn the_daemons_log_stays_small_and_private() {
        let directory = std::env::temp_dir().join(format!("mcp-workbench-log-{}", std::process::id()));
        let path = directory.join("state/daemon.log");
        let mut log = LogFile::limited(&path, 100).expect("the directory is made");
        for number in 0..20 {
            log.write(&format!("info: line {number}\n"));
        }
        let text = |path: &Path| fs::read_to_string(path).expect("it is there");
        assert!(text(&path).ends_with("info: line 19\n"), "{}", text(&path));
        for kept in [path.clone(), directory.join("state/daemon.log.1")] {
            let about = fs::metadata(&kept).expect("it is there");
            assert!((1..=100).contains(&about.len()), "{}", about.len());
            assert_eq!(about.permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(directory.join("state")).expect("a directory").count(), 2);
        // Where it cannot be written, there is none.
        assert!(LogFile::open(&path.join("below")).is_none());
        fs::remove_dir_all(&directory).expect("it is ours");
    }

    #[test]
    fn two_daemons_keep_one_log_small() {
        let directory = std::env::temp_dir().join(format!("mcp-workbench-logs-{}", std::process::id()));
        let path = directory.join("daemon.log");
        let mut logs = [(); 2].map(|()| LogFile::limited(&path, 200).expect("the directory is made"));
        for number in 0..40 {
            // One writes much, and the other now and then.
            logs[usize::from(number % 5 == 0)].write(&format!("info: line {number}\n"));
            for kept in [path.clone(), directory.join("daemon.log.1")] {
                assert!(fs::metadata(&kept).map_or(0, |about| about.len()) <= 200, "line {number}");
            }
            // Nothing is lost on the way: the newest line stands in the newest file.
            let text = fs::read_to_string(&path).expect("it is there");
            assert!(text.ends_with(&format!("info: line {number}\n")), "{text}");
        }
        fs::remove_dir_all(&directory).expect("it is ours");
    }

    #[test]
    fn the_daemons_log_may_have_ten_megabytes() {
        let directory = std::env::temp_dir().join(format!("mcp-workbench-large-{}", std::process::id()));
        let path = directory.join("daemon.log");
        let mut log = LogFile::open(&path).expect("the directory is made");
        log.file.set_len(9_999_900).expect("it is ours");
        log.write(&format!("{}\n", "x".repeat(50)));
        let length = |path: &Path| fs::metadata(path).map_or(0, |about| about.len());
        assert_eq!(length(&path), 9_999_900 + 72, "the line fits");
        log.write(&format!("{}\n", "x".repeat(50)));
        assert_eq!((length(&path), length(&directory.join("daemon.log.1"))), (72, 9_999_972));
        fs::remove_dir_all(&directory).expect("it is ours");
    }

    #[test]
    fn a_line_names_its_spans_by_their_fields() {
        let lines = Arc::<Mutex<String>>::default();
        let written = lines.clone();
        let logger = Registry::default().with(LineWriter(move |line: &str| written.lock().push_str(line)));
        tracing::subscriber::with_default(logger, || {
            let _request = tracing::debug_span!("request", client = "claude-code", id = 3).entered();
            let _nameless = tracing::debug_span!("nameless").entered();
            tracing::warn!(upstream = %"dev/files", "is {} late", "very");
            tracing::info!("no field");
            tracing::info!("it said:\n  one\n  two");
        });
        assert_eq!(
            *lines.lock(),
            "warn: [claude-code 3] [dev/files] is very late\ninfo: [claude-code 3] no field\n\
             info: [claude-code 3] it said: | one | two\n"
        );
    }
}
