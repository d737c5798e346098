//! `log`: what happened, as the journal tells it, whichever gateway of this user wrote it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::World;
use super::failure::{Failure, OutputMode};
use super::load::{Loader, Overrides};
use super::screen::Screen;
use crate::config::locate::{FaceKind, NotFound};
use crate::edit::file::contents;
use crate::events::journal;
use crate::events::{
    AnsweredCall, CallOutcome, Fact, Happening, JournalLine, JournalReader, Millis, Subject,
};
use crate::text::{date, spelled_out};

/// The time between two looks at the files.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// Which events are shown.
#[derive(Args)]
pub(super) struct Log {
    #[command(flatten)]
    since: Since,
    /// Only events of this server, as a name or TOOLBOX/SERVER
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Only calls of this tool
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Only what ended in this way
    #[arg(long, value_parser = PossibleValuesParser::new(CallOutcome::ALL.map(CallOutcome::as_str)))]
    outcome: Option<String>,
    /// Only events of this kind
    #[arg(long, value_parser = PossibleValuesParser::new(KINDS))]
    kind: Option<String>,
    /// Only the last N of them
    #[arg(long, value_name = "N")]
    last: Option<usize>,
    /// Go on with what happens from now on, until Ctrl-C
    #[arg(long)]
    follow: bool,
}

/// The beginning of the time that a verb looks at.
#[derive(Args)]
pub(super) struct Since {
    /// Only what happened since then: 90s, 15m, 2h or 7d ago, or at a time such as 2026-11-16T10:00:00Z
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Millis>,
}

/// The journal's words for what happens.
const KINDS: [&str; 9] = ["call", "read", "get", "open", "start", "fail", "end", "crash", "reload"];

impl Since {
    pub(super) fn includes(&self, time: Millis) -> bool {
        self.since.is_none_or(|since| time >= since)
    }
}

/// The moment that a person means.
fn since(text: &str) -> Result<Millis, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let ago = || {
        let (at, unit) = text.char_indices().next_back()?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            _ => return None,
        };
        let number = text[..at]
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| text[..at].parse::<u64>().ok())??;
        Some(now.saturating_sub(number.saturating_mul(seconds).saturating_mul(1000)))
    };
    let moment = date::millis(text).or_else(ago);
    moment.ok_or_else(|| "give 90s, 15m, 2h, 7d, or a time such as 2026-11-16T10:00:00Z".to_owned())
}

/// The journal of this user, and the file that says whether it is kept.
pub(super) struct UserJournal<'a> {
    pub(super) face: FaceKind,
    pub(super) file: Result<PathBuf, NotFound>,
    pub(super) world: &'a World,
}

impl UserJournal<'_> {
    /// Reads what is there, and says so where nothing is. The reader finds what is appended later.
    pub(super) fn read(self, output: OutputMode) -> Result<(JournalReader, Vec<JournalLine>), Failure> {
        let state = self.world.state_directory().ok_or_else(|| {
            let hint = "set HOME or XDG_STATE_HOME";
            Failure::failed("the directory for what programs remember about a user is not known", hint)
        })?;
        let mut reader = JournalReader::new(journal::directory(&state));
        let lines = reader.poll().map_err(|error| {
            let hint = "look at who may read its directory";
            Failure::failed(format!("the journal cannot be read: {error}"), hint)
        })?;
        if !reader.found_any() && !output.quiet {
            let words = match self.kept_by() {
                Some(file) => format!(
                    "The journal is empty: {} has `\"journal\": true`, and no gateway has written to it yet.",
                    file.display()
                ),
                None => {
                    "There is no journal: no gateway of this user keeps one. Write `\"journal\": true` into \
                         workbench-config.json, or `journal = true` into tools.toml."
                        .to_owned()
                }
            };
            writeln!(io::stderr(), "{}", output.message(&words))?;
        }
        Ok((reader, lines))
    }

    /// The file, if it switches the journal on.
    fn kept_by(self) -> Option<PathBuf> {
        let loader = Loader::for_asking(self.face, self.file, &Overrides::default(), self.world).ok()?;
        let (configured, _) = loader.read(contents(&loader.file).ok()?, None).0.ok()?;
        configured.face.common().journal.on.then_some(loader.file)
    }
}

/// Says how many lines were none of the journal's.
pub(super) fn tell_skipped(reader: &JournalReader, output: OutputMode) -> io::Result<()> {
    match reader.skipped() {
        0 => Ok(()),
        1 => writeln!(io::stderr(), "{}", output.warning("1 line is no line of the journal and was skipped")),
        some => {
            let words = format!("{some} lines are no lines of the journal and were skipped");
            writeln!(io::stderr(), "{}", output.warning(&words))
        }
    }
}

/// Shows what happened.
pub(super) fn run(
    wanted: &Log,
    journal: UserJournal<'_>,
    (output, screen): (OutputMode, Screen),
) -> Result<u8, Failure> {
    let (mut reader, mut lines) = journal.read(output)?;
    lines.retain(|line| wanted.includes(line));
    if let Some(last) = wanted.last {
        lines.drain(..lines.len().saturating_sub(last));
    }
    let mut out = io::stdout().lock();
    let mut show = |lines: &[JournalLine]| -> io::Result<()> {
        for line in lines {
            match (&line.happening, output.json) {
                (_, true) if screen.terminal => writeln!(out, "{}", spelled_out(&line.text))?,
                (_, true) => writeln!(out, "{}", line.text)?,
                (Some(happening), false) => writeln!(out, "{}", as_text(happening, screen))?,
                (None, false) => {}
            }
        }
        out.flush()
    };
    show(&lines)?;
    tell_skipped(&reader, output)?;
    if !wanted.follow {
        return Ok(0);
    }
    loop {
        sleep(BETWEEN_LOOKS);
        let mut lines = reader.poll()?;
        lines.retain(|line| wanted.includes(line));
        show(&lines)?;
    }
}

impl Log {
    fn includes(&self, line: &JournalLine) -> bool {
        if !self.since.includes(line.time) {
            return false;
        }
        // A line that this build does not know fits no filter.
        let Some(happening) = &line.happening else {
            return [&self.server, &self.tool, &self.outcome, &self.kind]
                .iter()
                .all(|filter| filter.is_none());
        };
        let fits = |filter: &Option<String>, fits: &dyn Fn(&str) -> bool| filter.as_deref().is_none_or(fits);
        fits(&self.kind, &|kind| happening.kind() == kind)
            && fits(&self.outcome, &|outcome| happening.outcome().is_some_and(|own| own.as_str() == outcome))
            && fits(&self.tool, &|tool| match &happening.fact {
                Fact::Call(AnsweredCall { subject: Subject::Tool(own), .. }) => **own == *tool,
                _ => false,
            })
            && fits(&self.server, &|name| {
                happening.server().is_some_and(|server| {
                    // A namespace of toolman is known by its own name.
                    *server.server == *name || server.to_string() == name
                })
            })
    }
}

/// An event on one line.
fn as_text(happening: &Happening, screen: Screen) -> String {
    let outcome = |outcome: CallOutcome| match outcome.is_failure() {
        true => screen.painted("31", outcome.as_str()),
        false => outcome.as_str().to_owned(),
    };
    let ms = |ms: f64| format!("{} ms", milliseconds(ms));
    let mut words = Vec::new();
    if let Some(server) = happening.server() {
        words.push(spelled_out(&server.to_string()));
    }
    match &happening.fact {
        Fact::Call(call) => {
            words.push(spelled_out(call.subject.name()));
            words.push(outcome(call.outcome));
            words.extend(
                call.error.map(|error| error.to_string()).filter(|error| *error != call.outcome.as_str()),
            );
            words.extend([ms(call.ms), format!("{} B", call.bytes_out), spelled_out(&call.who.client)]);
            words.extend(call.arguments.as_deref().map(spelled_out));
        }
        Fact::Open(open) => {
            let who = spelled_out(&open.who.client);
            words.extend([spelled_out(&open.group), outcome(open.outcome), ms(open.ms), who]);
        }
        Fact::Start(start) => {
            words.push(format!("{} tool{}", start.tools, if start.tools == 1 { "" } else { "s" }));
            words.push(ms(start.ms));
            words.extend(start.pid.map(|pid| format!("process {pid}")));
        }
        Fact::Fail(failure) => words.extend([ms(failure.ms), spelled_out(&failure.reason)]),
        Fact::End(end) | Fact::Crash(end) => words.push(spelled_out(&end.reason)),
        Fact::Reload(reload) => {
            words.push(if reload.ok { "in force" } else { "refused" }.to_owned());
            words.push(format!("{} problem{}", reload.problems, if reload.problems == 1 { "" } else { "s" }));
        }
    }
    let kind = format!("{:<6}", happening.kind());
    let kind = match happening.fact {
        Fact::Fail(_) | Fact::Crash(_) => screen.painted("31", &kind),
        _ => kind,
    };
    format!("{}  {kind}  {}", date::rfc3339_millis(happening.time), words.join("  "))
}

/// Milliseconds as people read them: short times with one decimal.
pub(super) fn milliseconds(ms: f64) -> String {
    if ms < 100.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPE: Screen =
        Screen { moves: false, asks: false, terminal: false, colour: false, unicode: true, width: None };

    #[test]
    fn moments_are_read() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
        for (text, seconds) in [("0s", 0), ("90s", 90), ("15m", 900), ("2h", 7_200), ("7d", 604_800)] {
            let read = since(text).expect(text);
            assert!(read.abs_diff(now - seconds * 1000) < 10_000, "{text}");
        }
        assert_eq!(since("2026-11-16T10:05:37Z"), Ok(1_794_823_537_000));
        assert_eq!(since("999999999999999999d"), Ok(0));
        for wrong in ["", "s", "15", "15 m", "-5m", "1.5h", "5w", "now", "2026-11-16", "é"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn events_are_shown_on_one_line_each() {
        let head = r#""time":"2026-11-16T10:05:37.123Z","face":"workbench","pid":7"#;
        for (line, expected) in [
            (
                r#""kind":"call","client":"a\u001b[31m","session":"0","toolbox":"dev","server":"fs","tool":"re\u202ead","ms":1.25,"outcome":"error","error":"-32602","bytesIn":1,"bytesOut":2"#,
                r"call    dev/fs  re\u202ead  error  -32602  1.2 ms  2 B  a\u001b[31m",
            ),
            (
                r#""kind":"call","client":"a","session":"0","toolbox":"dev","server":"fs","tool":"t","ms":1234.5,"outcome":"tool_error","error":"tool_error","bytesIn":1,"bytesOut":2,"arguments":["path"]"#,
                r#"call    dev/fs  t  tool_error  1234 ms  2 B  a  ["path"]"#,
            ),
            (
                r#""kind":"open","client":"a","session":"0","toolbox":"dev","ms":1,"outcome":"ok""#,
                "open    dev  ok  1.0 ms  a",
            ),
            (
                r#""kind":"start","toolbox":"dev","server":"fs","serverPid":8,"ms":5,"tools":1"#,
                "start   dev/fs  1 tool  5.0 ms  process 8",
            ),
            (
                r#""kind":"fail","toolbox":"dev","server":"fs","ms":5,"reason":"no\nway""#,
                r"fail    dev/fs  5.0 ms  no\u000away",
            ),
            (r#""kind":"crash","toolbox":"dev","server":"fs","reason":"gone""#, "crash   dev/fs  gone"),
            (r#""kind":"reload","ok":false,"problems":2"#, "reload  refused  2 problems"),
        ] {
            let (_, happening) = Happening::read(&format!("{{{head},{line}}}")).expect("a line of ours");
            let text = as_text(&happening.expect("a kind that we know"), PIPE);
            assert_eq!(text, format!("2026-11-16T10:05:37.123Z  {expected}"));
        }
    }
}
