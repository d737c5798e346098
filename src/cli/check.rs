//! `check`: reads the configuration and reports its problems, offline; nothing is started.

use super::failure::{Failure, FailureKind, OutputMode};
use super::load::{checked_env_file, form};
use super::screen::wrapped;
use crate::config::locate::{FaceKind, NotFound};
use crate::config::{Environment, Inputs, Problem, approved, load, load_toolman, lock_file};
use crate::edit::file::contents;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Checks a file and returns the exit status. Problems go to `err` as text, or to `out` as JSON.
pub(super) fn check(
    face: FaceKind,
    file: Result<PathBuf, NotFound>,
    environment: &Environment<'_>,
    output: OutputMode,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<u8, Failure> {
    let file = file?;
    let bytes = contents(&file).map_err(|error| Failure::unreadable(&file, &error))?;
    let inputs = Inputs { environment, read: &checked_env_file, skip_missing: false };
    let (summary, problems) = examine(face, &file, &bytes, &inputs);
    let ok = summary.is_some();
    if output.json {
        let mut answer = json!({});
        add_problems(&mut answer, &problems);
        writeln!(out, "{answer}")?;
    } else {
        list_problems(&problems, output, err)?;
        match summary {
            Some(_) if output.quiet => {}
            Some(summary) => writeln!(out, "{}", output.paths(&format!("{}: {summary}", file.display())))?,
            None => writeln!(err, "{}; nothing was started", errors(&problems))?,
        }
    }
    Ok(if ok { 0 } else { FailureKind::Configuration.status() })
}

/// Prints problems for a person, with an empty line after each; `-q` leaves only errors.
pub(super) fn list_problems(problems: &[Problem], output: OutputMode, err: &mut dyn Write) -> io::Result<()> {
    let mut told = problems.iter().filter(|problem| problem.is_error() || !output.quiet);
    told.try_for_each(|problem| {
        let rendered = output.paths(&problem.render(output.colour));
        // An excerpt of the file keeps its lines, since marks below them point at columns.
        let line = |line: &str| match line.contains('|') {
            true => line.to_owned(),
            false => wrapped(line, output.width),
        };
        let lines: Vec<_> = rendered.lines().map(line).collect();
        writeln!(err, "{}\n", lines.join("\n"))
    })
}

/// Adds `ok`, `problems` and `warnings` to an answer in JSON.
pub(super) fn add_problems(answer: &mut Value, problems: &[Problem]) {
    let listed =
        |errors| problems.iter().filter(|problem| problem.is_error() == errors).map(as_json).collect();
    answer["ok"] = problems.iter().all(|problem| !problem.is_error()).into();
    answer["problems"] = Value::Array(listed(true));
    answer["warnings"] = Value::Array(listed(false));
}

/// The number of errors among the problems, in words.
pub(super) fn errors(problems: &[Problem]) -> String {
    counted(problems.iter().filter(|problem| problem.is_error()).count(), "error", "errors")
}

/// What a valid file holds, in words, and all its problems.
fn examine(face: FaceKind, file: &Path, bytes: &[u8], inputs: &Inputs<'_>) -> (Option<String>, Vec<Problem>) {
    let loaded = match face {
        FaceKind::Workbench => load(file, bytes, inputs).map(|(workbench, warnings)| {
            let servers = workbench.toolboxes.iter().map(|toolbox| toolbox.servers.len()).sum();
            let toolboxes = counted(workbench.toolboxes.len(), "toolbox", "toolboxes");
            let summary = format!("ok, {toolboxes} with {}", counted(servers, "server", "servers"));
            (summary, warnings, workbench.common.lock)
        }),
        FaceKind::Toolman => load_toolman(file, bytes, inputs).map(|(toolman, warnings)| {
            let summary = format!("ok, {}", counted(toolman.servers.len(), "server", "servers"));
            (summary, warnings, toolman.common.lock)
        }),
    };
    match loaded {
        Ok((summary, mut problems, rule)) => {
            let lock = lock_file(file);
            let read = contents(&lock);
            let read = read.as_deref().map_err(|error| error.kind().into());
            match approved(rule, form(face), &lock, read) {
                Ok(_) => (Some(summary), problems),
                Err(more) => {
                    problems.extend(more);
                    (None, problems)
                }
            }
        }
        Err(problems) => (None, problems),
    }
}

fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn as_json(problem: &Problem) -> Value {
    json!({
        "file": problem.file.to_string_lossy(),
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": problem.message,
        "hint": problem.hint,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exit status, stdout and stderr of checking a text, with `FILE` for the file's path.
    fn checked(name: &str, text: &str, json: bool) -> (u8, String, String) {
        let file = std::env::temp_dir().join(format!("mcp-workbench-check-{}-{name}", std::process::id()));
        std::fs::write(&file, text).expect("the temporary directory is writable");
        let result = run(Ok(file.clone()), json);
        std::fs::remove_file(&file).expect("it was written above");
        let shown = file.display().to_string();
        // Windows' backslashes are doubled in JSON.
        let shown = if json { shown.replace('\\', r"\\") } else { shown };
        (result.0, result.1.replace(&shown, "FILE"), result.2.replace(&shown, "FILE"))
    }

    fn run(file: Result<PathBuf, NotFound>, json: bool) -> (u8, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let output = OutputMode { json, ..OutputMode::default() };
        let checked = check(FaceKind::Workbench, file, &|_| None, output, &mut out, &mut err);
        let status = checked
            .unwrap_or_else(|failure| failure.tell(output, &mut out, &mut err).expect("writes to memory"));
        let text = |bytes| String::from_utf8(bytes).expect("we write UTF-8");
        (status, text(out), text(err))
    }

    const SOUND: &str =
        r#"{"toolboxes": {"dev": {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}}}"#;
    const WARNING: &str = r#"{"toolboxes": {"dev": {"mcpServers": {"a": {"command": "x", "timeout": 5}}}}}"#;

    #[test]
    fn a_sound_file() {
        let expected = (0, "FILE: ok, 1 toolbox with 2 servers\n".to_owned(), String::new());
        assert_eq!(checked("sound", SOUND, false), expected);
        let expected = (0, "{\"ok\":true,\"problems\":[],\"warnings\":[]}\n".to_owned(), String::new());
        assert_eq!(checked("sound-json", SOUND, true), expected);
    }

    #[test]
    fn warnings_do_not_fail() {
        let (status, out, err) = checked("warning", WARNING, false);
        assert_eq!((status, out.as_str()), (0, "FILE: ok, 1 toolbox with 1 server\n"));
        assert!(err.starts_with("warning: unknown key `timeout` is ignored\n --> FILE:1:61\n"), "{err}");
        let (status, out, err) = checked("warning-json", WARNING, true);
        let answer: Value = serde_json::from_str(&out).expect("one JSON value");
        assert_eq!((status, err.as_str(), &answer["ok"]), (0, "", &json!(true)));
        assert_eq!(answer["warnings"][0]["path"], "toolboxes.dev.mcpServers.a.timeout");
    }

    #[test]
    fn errors_are_told_all_at_once() {
        let text = "{\n  \"toolboxes\": {},\n  \"serch\": true,\n  \"names\": 1\n}";
        let (status, out, err) = checked("errors", text, false);
        assert_eq!((status, out.as_str()), (2, ""));
        let expected = r#"error: unknown key `serch`
 --> FILE:3:3
  |
3 |   "serch": true,
  |   ^^^^^^^
  |
  = at: serch
  = help: did you mean `search`?

error: expected a string, found the number 1
 --> FILE:4:12
  |
4 |   "names": 1
  |            ^
  |
  = at: names
  = help: put the value in double quotes

2 errors; nothing was started
"#;
        assert_eq!(err, expected);
        let (status, out, err) = checked("errors-json", text, true);
        let answer: Value = serde_json::from_str(&out).expect("one JSON value");
        let expected = json!({"ok": false, "warnings": [], "problems": [
            {"file": "FILE", "line": 3, "column": 3, "path": "serch", "message": "unknown key `serch`",
             "hint": "did you mean `search`?"},
            {"file": "FILE", "line": 4, "column": 12, "path": "names",
             "message": "expected a string, found the number 1", "hint": "put the value in double quotes"},
        ]});
        assert_eq!((status, err.as_str(), answer), (2, "", expected));
    }

    #[test]
    fn each_face_has_its_format() {
        let minimal = FaceKind::Toolman.minimal_file().as_bytes();
        let (summary, problems) =
            examine(FaceKind::Toolman, Path::new("tools.toml"), minimal, &Inputs::of(&|_| None));
        assert_eq!((summary.as_deref(), problems.len()), (Some("ok, 1 server"), 0));
        let (summary, problems) =
            examine(FaceKind::Workbench, Path::new("tools.toml"), minimal, &Inputs::of(&|_| None));
        assert_eq!((summary, problems.len()), (None, 1));
    }

    #[test]
    fn no_file() {
        let missing = NotFound::Named { file: "/none.json".into(), by: "--config" };
        let (status, out, err) = run(Err(missing.clone()), false);
        let text =
            "error: the file /none.json that --config names does not exist\ncheck the path after --config\n";
        assert_eq!((status, out.as_str(), err.as_str()), (2, "", text));
        let (status, out, _) = run(Err(missing), true);
        let answer: Value = serde_json::from_str(&out).expect("one JSON value");
        assert_eq!((status, &answer["error"]["kind"]), (2, &json!("configuration")));
        let (status, _, err) = run(Ok(std::env::temp_dir()), false);
        assert!(status == 2 && err.starts_with("error: cannot read "), "{err}");
    }
}
