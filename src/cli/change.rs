//! Sums up a change, asks, and writes it; also reports how a verb ended. Every verb that changes a file goes
//! through [`Console`]: it says with [`Console::plan`] what is to happen, and [`Console::settle`] does the
//! rest.
//!
//! Invariant: nobody is asked about a change without its summary, whatever `-q` and `--json` leave out.

use super::World;
use super::check::errors;
use super::failure::{Failure, OutputMode};
use super::load::env_file;
use crate::client_files::shown;
use crate::config::Redactor;
use crate::config::env_file::SECRETS;
use crate::config::locate::FaceKind;
use crate::config::{Access, EnvFile, Inputs, Problem, load, load_toolman};
use crate::edit::file::{Audience, Snapshot};
use crate::edit::{Format, mask, paint, unified};
use crate::memory::turn::Turn;
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What `--json` prints; empty for verbs that have printed everything themselves.
pub(super) type JsonAnswer = Map<String, Value>;

/// Asks a question and returns the line that was typed; it is empty if the input ended.
pub(super) type Ask<'a> = dyn FnMut(&str) -> io::Result<String> + 'a;

/// Where a verb prints, and how it may ask.
pub(super) struct Console<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) err: &'a mut dyn Write,
    /// Asks a question on a terminal; `None` without a terminal.
    pub(super) ask: Option<&'a mut Ask<'a>>,
    pub(super) output: OutputMode,
    /// Whether stdout may be coloured.
    pub(super) colour: bool,
    pub(super) yes: bool,
    pub(super) dry_run: bool,
    /// The directory for what programs remember about a user. The locks for files are kept there.
    pub(super) state: Option<PathBuf>,
    pub(super) turn: FileTurns,
    /// The summary of the change that is being planned.
    pub(super) summary: Vec<String>,
}

/// Our position among the processes that want to change a file.
#[derive(Default)]
pub(super) struct FileTurns {
    /// The files that nobody else can change now.
    turns: Vec<(PathBuf, Turn)>,
    /// Whether another process has changed the file since we read it.
    overtaken: bool,
}

/// How often a file may change while we work on it.
const MOST_ATTEMPTS: usize = 10;

/// A change of one file.
pub(super) struct Proposal<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) format: Format,
    /// The new text; `None` removes the file.
    pub(super) after: Option<&'a str>,
    /// Who may read the file if it is new.
    pub(super) audience: Audience,
    /// Values that must not appear in what is shown, with their names.
    pub(super) secrets: Redactor,
}

/// The outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// There was nothing to change.
    Same,
    /// The change was shown and not written: it was a dry run, or nobody agreed.
    Shown,
    /// The change was written.
    Written,
}

impl Console<'_> {
    /// Ends a verb: prints its JSON answer or its failure, and returns the exit status.
    pub(super) fn finish(&mut self, result: Result<JsonAnswer, Failure>) -> io::Result<u8> {
        match result {
            Ok(answer) => {
                if self.output.json && !answer.is_empty() {
                    writeln!(self.out, "{}", Value::Object(answer))?;
                }
                Ok(0)
            }
            Err(failure) => failure.tell(self.output, self.out, self.err),
        }
    }

    /// Prints a line for a person, on stderr.
    pub(super) fn say(&mut self, line: &str) -> io::Result<()> {
        if self.output.json || self.output.quiet { Ok(()) } else { self.tell(line) }
    }

    /// Adds a line to the summary of a change: what moves where, what stays, which files are written.
    pub(super) fn plan(&mut self, line: impl Into<String>) {
        self.summary.push(line.into());
    }

    fn tell(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.err, "{}", self.output.message(line))
    }

    /// Prints a line on stderr that a person should heed.
    pub(super) fn warn(&mut self, line: &str) -> io::Result<()> {
        self.say(&self.output.warning(line))
    }

    /// Whether a person agrees; nobody does without a terminal.
    pub(super) fn confirms(&mut self, question: &str) -> io::Result<bool> {
        let question = self.output.message(&format!("{question} [y/N] "));
        match &mut self.ask {
            Some(ask) => Ok(is_yes(&ask(&question)?)),
            None => Ok(false),
        }
    }

    /// Runs work that reads and changes a file, and runs it again if another process has changed the file
    /// meanwhile. Other processes that want to change the file wait until the work is done, but never for a
    /// person's answer: if a person is asked, they wait from the answer on, and the change is shown anew for
    /// what the file holds by then.
    pub(super) fn in_turn<T>(
        &mut self,
        file: &Path,
        mut work: impl FnMut(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        for _ in 1..MOST_ATTEMPTS {
            let result = self.attempt(file, &mut work);
            if !std::mem::take(&mut self.turn.overtaken) {
                return result;
            }
            self.say(&format!("{} was changed in the meantime; reading it again", file.display()))?;
        }
        self.attempt(file, &mut work)
    }

    fn attempt<T>(
        &mut self,
        file: &Path,
        work: &mut impl FnMut(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if self.yes && !self.dry_run {
            self.take_turn(file)?;
        }
        self.summary.clear();
        let result = work(self);
        self.turn.turns.clear();
        result
    }

    fn take_turn(&mut self, file: &Path) -> Result<(), Failure> {
        if self.turn.turns.iter().all(|(other, _)| other != file) {
            let turn = Turn::take(self.state.as_deref(), file).map_err(|error| {
                let message = format!("cannot change {}: {error}", file.display());
                Failure::failed(message, "end the other mcp-workbench or toolman, and try again")
            })?;
            self.turn.turns.push((file.to_owned(), turn));
        }
        Ok(())
    }

    /// Keeps others from changing a file until the work is done. Fails if they have changed it already.
    pub(super) fn hold(&mut self, snapshot: &Snapshot) -> Result<(), Failure> {
        self.take_turn(&snapshot.path)?;
        let current = snapshot.is_current().map_err(|error| Failure::unreadable(&snapshot.path, &error))?;
        if !current {
            self.turn.overtaken = true;
            let message = format!("{} keeps changing; nothing was written", snapshot.path.display());
            return Err(Failure::failed(message, "stop the program that changes it, and try again"));
        }
        Ok(())
    }

    /// Sums up a change, asks and writes it; `first` runs just before the file is written. The answer for
    /// `--json` gets `file`, `changed`, `written` and `diff`.
    pub(super) fn settle(
        &mut self,
        proposal: &Proposal<'_>,
        answer: &mut JsonAnswer,
        first: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<Settled, Failure> {
        let snapshot = proposal.snapshot;
        let before = snapshot.text().unwrap_or_default();
        let file = snapshot.path.display().to_string();
        let same = match (&snapshot.bytes, proposal.after) {
            (Some(_), Some(after)) => before == after,
            (None, after) => after.is_none(),
            (Some(_), None) => false,
        };
        let diff = if same { String::new() } else { self.diff(proposal, before, &file) };
        for (key, value) in [
            ("file", json!(file)),
            ("changed", json!(!same)),
            ("written", json!(false)),
            ("diff", json!(diff)),
        ] {
            answer.insert(key.to_owned(), value);
        }
        if same {
            return Ok(Settled::Same);
        }
        let verb = match proposal.after {
            Some(_) if snapshot.bytes.is_some() => "Change",
            Some(_) => "Create",
            None => "Remove",
        };
        if !self.is_agreed(&format!("{verb} {file}?"), &diff)? {
            return Ok(Settled::Shown);
        }
        self.hold(snapshot)?;
        first(self)?;
        let written = match proposal.after {
            Some(after) => snapshot.replace(after.as_bytes(), proposal.audience).map(drop),
            None => snapshot.remove(),
        };
        written.map_err(|error| {
            let hint = "the file is unchanged; check its permissions and the free space on the disk";
            Failure::failed(format!("cannot write {file}: {error}"), hint)
        })?;
        answer.insert("written".to_owned(), json!(true));
        self.say(&format!("{} {file}", if proposal.after.is_some() { "Wrote" } else { "Removed" }))?;
        Ok(Settled::Written)
    }

    /// Whether the change is to be written: prints its summary, and asks unless `--yes` or `--dry-run` is the
    /// answer.
    pub(super) fn is_agreed(&mut self, question: &str, diff: &str) -> Result<bool, Failure> {
        let asks = !self.yes && !self.dry_run;
        let summary = std::mem::take(&mut self.summary);
        for line in &summary {
            if asks { self.tell(line)? } else { self.say(line)? }
        }
        if self.dry_run {
            if !self.output.json {
                self.show(diff)?;
            }
            self.say("Nothing was written: this is a dry run.")?;
            return Ok(false);
        }
        if self.yes {
            return Ok(true);
        }
        let question = self.output.message(&format!("{question} [y/N/d] "));
        loop {
            let Some(ask) = &mut self.ask else {
                // A person who reads this cannot ask for the diff.
                self.show(diff)?;
                let message = "nothing was written: there is no terminal to ask on";
                return Err(Failure::usage(
                    message,
                    "add --yes to write the change, or --dry-run to see it only",
                ));
            };
            match ask(&question)?.as_str() {
                "d" | "D" | "diff" => self.show(diff)?,
                answer if is_yes(answer) => return Ok(true),
                _ => {
                    self.tell("Nothing changed.")?;
                    return Ok(false);
                }
            }
        }
    }

    /// Shows a diff where a person can see it and no program takes it for data.
    pub(super) fn show(&mut self, diff: &str) -> io::Result<()> {
        let painted = |colour| if colour { paint(diff) } else { diff.to_owned() };
        if self.output.json {
            return write!(self.err, "{}", painted(self.output.colour));
        }
        write!(self.out, "{}", painted(self.colour))?;
        self.out.flush()
    }

    fn diff(&self, proposal: &Proposal<'_>, before: &str, file: &str) -> String {
        let hide = |text: &str| match text.trim().is_empty() {
            true => String::new(),
            false => mask(proposal.format, &text.replace("\r\n", "\n"), &shown),
        };
        let file = &self.output.paths(file);
        let old = if proposal.snapshot.bytes.is_some() { file } else { "/dev/null" };
        let new = if proposal.after.is_some() { file } else { "/dev/null" };
        let diff = unified(old, new, &hide(before), &hide(proposal.after.unwrap_or_default()));
        match diff.is_empty() {
            true => format!("--- {old}\n+++ {new}\n (the change is in hidden values)\n"),
            false => {
                let body = diff.match_indices('\n').nth(1).map_or(0, |(at, _)| at + 1);
                format!("{}{}", &diff[..body], shortened(&proposal.secrets.redact(&diff[body..])))
            }
        }
    }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.to_ascii_lowercase().as_str(), "y" | "yes")
}

/// The text with very long lines cut: some clients keep a whole file on one line.
fn shortened(text: &str) -> String {
    const MOST: usize = 400;
    let line = |line: &str| match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…\n", &line[..end]),
        None => line.to_owned(),
    };
    text.split_inclusive('\n').map(line).collect()
}

/// A configuration of ours that can be changed: its snapshot, its text, and what the text means.
pub(super) struct Config {
    pub(super) snapshot: Snapshot,
    pub(super) text: String,
    pub(super) value: crate::edit::Value,
}

/// Reads a configuration in order to change it; no variable needs to be set. `fresh` is the text for a file
/// that does not exist yet.
pub(super) fn open(
    face: FaceKind,
    file: &Path,
    world: &World,
    fresh: Option<&str>,
) -> Result<Config, Failure> {
    let snapshot = Snapshot::read(file).map_err(|error| Failure::unreadable(file, &error))?;
    let text = match (&snapshot.bytes, fresh) {
        (None, Some(fresh)) => fresh.to_owned(),
        _ => {
            validate(face, file, snapshot.bytes.as_deref().unwrap_or_default(), None, world)?;
            snapshot.text().unwrap_or_default().to_owned()
        }
    };
    let parsed = crate::edit::parse(format(face), &text).map_err(|refusal| {
        Failure::configuration(format!("{}: {refusal}", file.display()), "correct it; nothing was changed")
    })?;
    Ok(Config { snapshot, text, value: parsed.value })
}

/// Checks a new text of our configuration. Values with unset variables count as sound. `secrets` is what
/// `secrets.env` will hold.
pub(super) fn validate(
    face: FaceKind,
    file: &Path,
    bytes: &[u8],
    secrets: Option<&str>,
    world: &World,
) -> Result<(), Failure> {
    let mut problems = problems(face, file, bytes, secrets, world);
    problems.retain(|problem| !problem.unset);
    if problems.is_empty() {
        return Ok(());
    }
    let count = errors(&problems);
    Err(Failure::invalid(file, problems, format!("{count}; correct the file first; nothing was changed")))
}

/// Why `check` would refuse this text of our configuration.
pub(super) fn problems(
    face: FaceKind,
    file: &Path,
    bytes: &[u8],
    secrets: Option<&str>,
    world: &World,
) -> Vec<Problem> {
    let environment = |name: &str| world.variable(name);
    let read = |path: &Path| match secrets {
        Some(text) if path == file.with_file_name(SECRETS) => {
            Ok(EnvFile { bytes: text.into(), others: Access::None, committable: false })
        }
        _ => env_file(path),
    };
    let inputs = Inputs { environment: &environment, read: &read, skip_missing: false };
    let problems = match face {
        FaceKind::Workbench => load(file, bytes, &inputs).err(),
        FaceKind::Toolman => load_toolman(file, bytes, &inputs).err(),
    };
    let mut problems = problems.unwrap_or_default();
    problems.retain(Problem::is_error);
    problems
}

/// The format of a face's file.
pub(super) fn format(face: FaceKind) -> Format {
    match face {
        FaceKind::Workbench => Format::Json,
        FaceKind::Toolman => Format::Toml,
    }
}

/// The failure to change a text, which stays as it is.
pub(super) fn refused(file: &Path, refusal: &crate::edit::Refusal) -> Failure {
    Failure::configuration(
        format!("{} was left as it is: {refusal}", file.display()),
        "correct it, or make the change by hand",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What became of a change to a file that holds `{}`.
    struct Changed {
        outcome: Result<Settled, Failure>,
        asked: Vec<String>,
        shown: String,
        text: String,
    }

    /// Changes a file where a person gives these answers.
    fn change(name: &str, answers: &[&str], first: Result<(), Failure>) -> Changed {
        let path: PathBuf =
            std::env::temp_dir().join(format!("mcp-workbench-change-{}-{name}", std::process::id()));
        std::fs::write(&path, "{}").expect("the temporary directory is writable");
        let snapshot = Snapshot::read(&path).expect("readable");
        let (mut out, mut err, mut asked) = (Vec::new(), Vec::new(), Vec::new());
        let mut ask = |question: &str| {
            asked.push(question.replace(&path.display().to_string(), "FILE"));
            Ok(answers[asked.len() - 1].to_owned())
        };
        let mut console = Console {
            out: &mut out,
            err: &mut err,
            ask: Some(&mut ask),
            output: OutputMode::default(),
            colour: false,
            yes: false,
            dry_run: false,
            state: None,
            turn: FileTurns::default(),
            summary: vec!["a moves".to_owned()],
        };
        let after = Some("{\"a\": 1}");
        let proposal = Proposal {
            snapshot: &snapshot,
            format: Format::Json,
            after,
            audience: Audience::Usual,
            secrets: Redactor::default(),
        };
        let outcome = console.settle(&proposal, &mut JsonAnswer::new(), |_| first);
        let text = std::fs::read_to_string(&path).expect("it is there");
        std::fs::remove_file(&path).expect("it is there");
        let shown = String::from_utf8([out, err].concat()).expect("we write UTF-8");
        Changed { outcome, asked, shown: shown.replace(&path.display().to_string(), "FILE"), text }
    }

    #[test]
    fn a_person_decides() {
        const END: &str = "\\ No newline at end of file\n";
        let diff = format!("--- FILE\n+++ FILE\n@@ -1 +1 @@\n-{{}}\n{END}+{{\"a\": 1}}\n{END}");
        for (answers, settled, shown) in [
            (&["y"][..], Settled::Written, "a moves\nWrote FILE\n"),
            (&["YES"], Settled::Written, "a moves\nWrote FILE\n"),
            (&["n"], Settled::Shown, "a moves\nNothing changed.\n"),
            (&[""], Settled::Shown, "a moves\nNothing changed.\n"),
            (&["d", "y"], Settled::Written, "a moves\nWrote FILE\n"),
            (&["d", "d", "n"], Settled::Shown, "a moves\nNothing changed.\n"),
        ] {
            let change = change(&answers.concat(), answers, Ok(()));
            assert_eq!(change.outcome.expect("no failure"), settled, "{answers:?}");
            assert_eq!(change.asked, vec!["Change FILE? [y/N/d] "; answers.len()], "{answers:?}");
            let diffs = diff.repeat(answers.len() - 1);
            assert_eq!(change.shown, format!("{diffs}{shown}"), "{answers:?}");
            let written = settled == Settled::Written;
            assert_eq!(change.text, if written { "{\"a\": 1}" } else { "{}" }, "{answers:?}");
        }
        let change = change("backup", &["y"], Err(Failure::failed("no backup", "")));
        let failure = change.outcome.expect_err("failed");
        assert_eq!((failure.message.as_str(), change.text.as_str()), ("no backup", "{}"));
    }

    #[test]
    fn long_lines_are_cut() {
        let text = format!("+{}\n-b\n", "ü".repeat(500));
        assert_eq!(shortened(&text), format!("+{}…\n-b\n", "ü".repeat(399)));
    }
}
