//! `completions`: a script for each shell, and the hidden verb `complete` that the scripts ask for the words
//! that may come next.
//!
//! Verbs, options and their values come from the command line itself, names from the configuration and from
//! memory.
//!
//! Invariant: completing a word starts no server and prints nothing but words.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Arg, Command, ValueEnum};

use super::World;
use super::change::format;
use super::shell::remembered_tools;
use crate::client_files::{Group, read_config};
use crate::config::locate::FaceKind;
use crate::edit;
use crate::edit::file::contents;
use crate::known_clients::CLIENTS;

/// The shells that can complete our words.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Shell {
    Bash,
    Elvish,
    Fish,
    #[value(name = "powershell")]
    Pwsh,
    Zsh,
}

const BASH: &str = r#"FUNCTION() {
    local word words=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        # bash takes the equals sign of --option=value for a word of its own.
        [[ $word == = ]] || words+=("$word")
    done
    [[ ${COMP_WORDS[COMP_CWORD]} == = ]] && words+=("")
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("$(printf %q "$word")")
    done < <("${COMP_WORDS[0]/#\~/$HOME}" complete -- "${words[@]}" 2>/dev/null)
}
complete -o default -F FUNCTION PROGRAM
"#;

/// The function has the name of the file that zsh loads it from, so that it knows its first call.
const ZSH: &str = r#"#compdef PROGRAM
_PROGRAM() {
    local -a found
    found=("${(@f)$("${(Q)words[1]/#\~/$HOME}" complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n ${found[1]} ]]; then
        compadd -a found
    else
        _files
    fi
}
if [[ ${funcstack[1]} == _PROGRAM ]]; then
    _PROGRAM "$@"
else
    compdef _PROGRAM PROGRAM
fi
"#;

const FISH: &str = r#"function FUNCTION
    set -l words (commandline -opc) (commandline -ct)
    PROGRAM complete -- $words[2..] 2>/dev/null
end
complete -c PROGRAM -n 'count (FUNCTION) >/dev/null' -f -a '(FUNCTION)'
"#;

const POWERSHELL: &str = r#"Register-ArgumentCompleter -Native -CommandName 'PROGRAM' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements | Select-Object -Skip 1 | ForEach-Object { "$_" })
    # An empty word cannot be passed on by every PowerShell.
    $next = @()
    if ($wordToComplete -eq '') { $next = @('--next') }
    & 'PROGRAM' complete @next -- @words 2>$null | ForEach-Object {
        [System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_)
    }
}
"#;

const ELVISH: &str = r#"set edit:completion:arg-completer[PROGRAM] = {|@words|
    e:PROGRAM complete -- (all $words[1..]) 2>/dev/null | from-lines
}
"#;

/// The script that makes a shell complete the program's words.
pub(super) fn script(shell: Shell, program: &str) -> String {
    let script = match shell {
        Shell::Bash => BASH,
        Shell::Elvish => ELVISH,
        Shell::Fish => FISH,
        Shell::Pwsh => POWERSHELL,
        Shell::Zsh => ZSH,
    };
    script.replace("FUNCTION", &format!("_{}", program.replace('-', "_"))).replace("PROGRAM", program)
}

/// Prints the words that may stand where the last of these stands.
pub(super) fn complete(
    face: FaceKind,
    mut command: Command,
    words: &[String],
    world: &World,
) -> io::Result<()> {
    command.build();
    let place = Cursor::find(&command, words);
    let face = match place.face.as_deref() {
        Some("workbench") => FaceKind::Workbench,
        Some("toolman") => FaceKind::Toolman,
        _ => face,
    };
    let source = NameSource { face, config: place.config.as_deref().map(|path| at_home(path, world)), world };
    let mut out = io::stdout().lock();
    for word in place.candidates(&|names| source.names(names, &command).unwrap_or_default()) {
        writeln!(out, "{word}")?;
    }
    Ok(())
}

/// A path as a person writes it; shells ask before they expand `~`.
fn at_home(path: &str, world: &World) -> PathBuf {
    match (path.strip_prefix("~/"), &world.home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

/// The names that an argument can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Candidates {
    Clients,
    Toolboxes,
    Servers,
    Tools,
    Verbs,
}

impl Candidates {
    /// The names for an argument of a verb.
    fn of(verb: &str, argument: &str) -> Option<Self> {
        Some(match (verb, argument) {
            (_, "client") | ("import", "source") => Self::Clients,
            ("show" | "call", "name") => Self::Tools,
            ("man", "verb") => Self::Verbs,
            (_, "toolbox" | "to") => Self::Toolboxes,
            (_, "server" | "servers") | ("remove", "name") => Self::Servers,
            _ => return None,
        })
    }
}

/// Where names are looked up.
struct NameSource<'a> {
    face: FaceKind,
    config: Option<PathBuf>,
    world: &'a World,
}

impl NameSource<'_> {
    /// All names of one kind; `None` if the configuration cannot be read.
    fn names(&self, names: Candidates, command: &Command) -> Option<Vec<String>> {
        Some(match names {
            Candidates::Clients => CLIENTS.iter().map(|client| client.id.to_owned()).collect(),
            Candidates::Verbs => {
                let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
                verbs.map(|verb| verb.get_name().to_owned()).collect()
            }
            Candidates::Toolboxes => self.groups()?.into_iter().map(|group| group.name).collect(),
            Candidates::Servers => servers(&self.groups()?),
            Candidates::Tools => remembered_tools(self.face, self.file()?, self.world)?,
        })
    }

    fn file(&self) -> Option<PathBuf> {
        self.world.locate(self.face, self.config.as_deref()).ok()
    }

    fn groups(&self) -> Option<Vec<Group>> {
        let text = String::from_utf8(contents(&self.file()?).ok()?).ok()?;
        let parsed = edit::parse(format(self.face), &text).ok()?;
        Some(read_config(self.face, &parsed.value))
    }
}

/// The servers by their names, or by toolbox and name where several have the same.
fn servers(groups: &[Group]) -> Vec<String> {
    let names: Vec<_> = groups.iter().flat_map(|group| &group.servers).map(|server| &server.name).collect();
    let is_unique = |name: &String| names.iter().filter(|other| **other == name).count() == 1;
    let mut all = Vec::new();
    for group in groups {
        all.extend(group.servers.iter().map(|server| {
            match is_unique(&server.name) || group.name.is_empty() {
                true => server.name.clone(),
                false => format!("{}/{}", group.name, server.name),
            }
        }));
    }
    all
}

/// Where on the command line a word is to be completed.
struct Cursor<'c> {
    command: &'c Command,
    /// How many arguments without a name precede the word.
    positional: usize,
    /// The option whose value the word is.
    value_of: Option<&'c Arg>,
    /// Whether `--` precedes the word: what follows is not ours.
    literal: bool,
    config: Option<String>,
    face: Option<String>,
    word: &'c str,
}

impl<'c> Cursor<'c> {
    /// Follows the words to the last one, which is to be completed.
    fn find(command: &'c Command, words: &'c [String]) -> Self {
        let (word, before) = words.split_last().map_or(("", words), |(word, before)| (word.as_str(), before));
        let (config, face) = (None, None);
        let mut place = Self { command, positional: 0, value_of: None, literal: false, config, face, word };
        for word in before {
            place.pass(word);
        }
        place
    }

    fn pass(&mut self, word: &str) {
        if let Some(option) = self.value_of.take() {
            self.note(option, word);
        } else if self.literal {
        } else if word == "--" {
            self.literal = true;
        } else if let Some((name, value)) = word.split_once('=').filter(|_| word.starts_with("--")) {
            if let Some(option) = self.option(name) {
                self.note(option, value);
            }
        } else if word.starts_with('-') && word.len() > 1 {
            self.value_of = self.option(word);
        } else if let Some(verb) = self.command.find_subcommand(word) {
            self.command = verb;
        } else {
            self.positional += 1;
        }
    }

    /// Notes the value of an option that says where names come from.
    fn note(&mut self, option: &Arg, value: &str) {
        match option.get_id().as_str() {
            "config" => self.config = Some(value.to_owned()),
            "face" => self.face = Some(value.to_owned()),
            _ => {}
        }
    }

    /// The option that a word names, if it takes a value.
    fn option(&self, word: &str) -> Option<&'c Arg> {
        let is_named = |arg: &&Arg| match word.strip_prefix("--") {
            Some(long) => arg.get_long() == Some(long),
            None => arg.get_short().is_some() && arg.get_short() == word.chars().next_back(),
        };
        self.command.get_arguments().find(is_named).filter(|arg| arg.get_action().takes_values())
    }

    /// The words that may stand here, in the order in which they are known.
    fn candidates(&self, names: &dyn Fn(Candidates) -> Vec<String>) -> Vec<String> {
        let values = |arg: &Arg| -> Vec<String> {
            let fixed = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
            let fixed = fixed.map(|value| value.get_name().to_owned());
            let named = Candidates::of(self.command.get_name(), arg.get_id().as_str()).map(names);
            fixed.chain(named.unwrap_or_default()).collect()
        };
        let mut all = Vec::new();
        match (self.value_of, self.word.split_once('=')) {
            _ if self.literal => {}
            (Some(option), _) => all = values(option),
            (None, Some((option, _))) if option.starts_with("--") => {
                let values = self.option(option).map(values).unwrap_or_default();
                all.extend(values.into_iter().map(|value| format!("{option}={value}")));
            }
            (None, _) if self.word.starts_with('-') => {
                let options = self.command.get_arguments().filter(|arg| !arg.is_hide_set());
                all.extend(options.filter_map(Arg::get_long).map(|long| format!("--{long}")));
            }
            (None, _) => {
                let verbs = self.command.get_subcommands().filter(|verb| !verb.is_hide_set());
                all.extend(verbs.map(|verb| verb.get_name().to_owned()));
                let repeats = |arg: &&Arg| arg.get_num_args().is_some_and(|count| count.max_values() > 1);
                let own: Vec<_> = self.command.get_positionals().filter(|arg| !arg.is_last_set()).collect();
                let own = own.get(self.positional).or(own.last().filter(|arg| repeats(arg)));
                all.extend(own.map(|arg| values(arg)).unwrap_or_default());
            }
        }
        all.retain(|candidate| candidate.starts_with(self.word));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: Candidates) -> Vec<String> {
        let names: &[&str] = match names {
            Candidates::Clients => &["cursor", "codex"],
            Candidates::Toolboxes => &["dev"],
            Candidates::Servers => &["files", "net/api"],
            Candidates::Tools => &["dev/files/read_file", "read_file"],
            Candidates::Verbs => &["add"],
        };
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_next_word() {
        let mut command = crate::cli::command(FaceKind::Workbench);
        command.build();
        for (line, expected) in [
            ("conn", "connect"),
            ("connect ", "cursor codex"),
            ("connect cu", "cursor"),
            ("connect cursor ", ""),
            ("disconnect co", "codex"),
            ("import c", "cursor codex"),
            ("remove ", "files net/api"),
            ("logout net", "net/api"),
            ("show dev/", "dev/files/read_file"),
            ("call read", "read_file"),
            ("--config x.json call read", "read_file"),
            ("call --client cursor read", "read_file"),
            ("call --client cu", "cursor"),
            ("add x --toolbox ", "dev"),
            ("add x --toolbox=", "--toolbox=dev"),
            ("add x -- ", ""),
            ("list too", "toolboxes tools"),
            ("--tool-mode ", "dynamic proxy auto flat"),
            ("list --fr", "--fresh"),
            ("list --tool-mode=pr", "--tool-mode=proxy"),
            ("completions z", "zsh"),
            ("man a", "add"),
            ("demo-", ""),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let found = Cursor::find(&command, &words).candidates(&names).join(" ");
            assert_eq!(found, expected, "{line}");
        }
        let words = ["--config=a.json", "--face", "toolman", "show", ""].map(str::to_owned);
        let place = Cursor::find(&command, &words);
        assert_eq!((place.config.as_deref(), place.face.as_deref()), (Some("a.json"), Some("toolman")));
    }
}
