//! The `PATH` of the user's login shell.
//!
//! A graphical client starts us with the desktop's minimal `PATH`, while `npx` or `uvx` are where a version
//! manager put them, which only the shell's start-up files know.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, copy, sink};

use super::{Child, Launch, Launcher, command};

/// The time that a shell has to run its start-up files.
const DEADLINE: Duration = Duration::from_secs(5);

/// The largest output of a shell, in bytes.
const MOST_OUTPUT: u64 = 1 << 20;

/// The marks around the value. They are needed because a shell's start-up files may print anything.
const BEGIN: &str = "[mcp-workbench:PATH=";
const END: &str = "=PATH:mcp-workbench]";

/// Asks `$SHELL`. If it does not answer in time, the result is `None` and the log says so.
pub(super) async fn ask(launcher: &Launcher, vars: &[(OsString, OsString)]) -> Option<OsString> {
    if !cfg!(unix) {
        return None;
    }
    let launch = question(vars);
    let output = match tokio::time::timeout(DEADLINE, output_of(launcher, &launch)).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => {
            tracing::warn!("could not ask {} for its PATH: {error}", launch.program.display());
            return None;
        }
        Err(_) => {
            let seconds = DEADLINE.as_secs();
            tracing::warn!("{} did not print its PATH within {seconds} s", launch.program.display());
            return None;
        }
    };
    let path = answer(&output);
    if path.is_none() {
        tracing::warn!("{} did not print its PATH", launch.program.display());
    }
    path
}

/// The command for an interactive login shell. Editors start one for the same reason: many version managers
/// put themselves into a file that only interactive shells read.
fn question(vars: &[(OsString, OsString)]) -> Launch {
    let shell = vars.iter().find(|(name, _)| name == "SHELL").map(|(_, shell)| shell.as_os_str());
    let shell = shell.filter(|shell| Path::new(shell).is_absolute()).unwrap_or(OsStr::new("/bin/sh"));
    let mut env = command::environment(vars, &[], &[]);
    env.retain(|(name, _)| name != "TERM");
    env.push(("TERM".into(), "dumb".into()));
    let script = format!("printf '%s%s%s\\n' '{BEGIN}' \"$PATH\" '{END}'");
    Launch {
        program: shell.into(),
        args: ["-l", "-i", "-c", &script].map(String::from).to_vec(),
        env,
        cwd: None,
        umask: None,
    }
}

/// Everything that the program writes to stdout. Dropping the future kills the program with all that it
/// started.
async fn output_of(launcher: &Launcher, launch: &Launch) -> std::io::Result<Vec<u8>> {
    let Child { stdin, stdout, mut stderr, control: _control } = launcher.spawn(launch)?;
    drop(stdin);
    let mut output = Vec::new();
    let mut stdout = stdout.take(MOST_OUTPUT);
    let mut nowhere = sink();
    let (read, drained) = tokio::join!(stdout.read_to_end(&mut output), copy(&mut stderr, &mut nowhere));
    read.and(drained).map(|_| output)
}

/// The value between the last pair of marks.
fn answer(output: &[u8]) -> Option<OsString> {
    let begin = memchr::memmem::rfind(output, BEGIN.as_bytes())? + BEGIN.len();
    let length = memchr::memmem::find(&output[begin..], END.as_bytes())?;
    let value = str::from_utf8(&output[begin..begin + length]).ok()?;
    (!value.is_empty() && !value.contains('\n')).then(|| value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_found_in_noise() {
        let cases = [
            ("[mcp-workbench:PATH=/a:/b=PATH:mcp-workbench]\n", Some("/a:/b")),
            ("Welcome!\n\x1b[1m[mcp-workbench:PATH=/a=PATH:mcp-workbench]\nBye\n", Some("/a")),
            ("[mcp-workbench:PATH=$PATH\n[mcp-workbench:PATH=/a=PATH:mcp-workbench]", Some("/a")),
            ("[mcp-workbench:PATH=/a", None),
            ("[mcp-workbench:PATH==PATH:mcp-workbench]", None),
            ("[mcp-workbench:PATH=/a\n/b=PATH:mcp-workbench]", None),
            ("printf: not found", None),
            ("", None),
        ];
        for (output, expected) in cases {
            assert_eq!(answer(output.as_bytes()), expected.map(OsString::from), "{output:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_shell_is_the_users_own_and_gets_no_secrets() {
        let vars = |pairs: &[(&str, &str)]| -> Vec<(OsString, OsString)> {
            pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
        };
        let cases = [(Some("/bin/zsh"), "/bin/zsh"), (Some("zsh"), "/bin/sh"), (None, "/bin/sh")];
        for (shell, expected) in cases {
            let mut vars = vars(&[("API_KEY", "secret"), ("TERM", "xterm"), ("USER", "me")]);
            vars.extend(shell.map(|shell| ("SHELL".into(), shell.into())));
            let launch = question(&vars);
            assert_eq!(launch.program, Path::new(expected));
            assert!(launch.env.contains(&("TERM".into(), "dumb".into())));
            assert!(launch.env.contains(&("USER".into(), "me".into())));
            assert!(!launch.env.iter().any(|(name, _)| name == "API_KEY"));
        }
    }
}
