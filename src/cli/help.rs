//! The examples that end every `--help`. [`super::command`] adds them to the verbs.

use clap::Command;

/// Two examples for every verb, without the program's name before them; `PROGRAM` stands for it elsewhere, and
/// the empty name for the program itself. They must work for both faces.
const EXAMPLES: &[(&str, [&str; 2])] = &[
    ("", ["init", "connect claude-code"]),
    ("init", ["init", "init --dry-run"]),
    ("connect", ["connect claude-code", "connect cursor --keep --dry-run"]),
    ("disconnect", ["disconnect claude-code", "disconnect cursor --dry-run"]),
    ("import", ["import cursor", "import ./.mcp.json --dry-run"]),
    (
        "add",
        [
            "add files -- npx -y @modelcontextprotocol/server-filesystem .",
            "add linear --url https://mcp.linear.app/mcp",
        ],
    ),
    ("remove", ["remove files", "remove linear --yes"]),
    ("move", ["move files notes --to writing", "move files --to dev --dry-run"]),
    (
        "describe",
        ["describe dev 'Files and issues of this project'", "describe web 'Browse and search' --yes"],
    ),
    ("rename", ["rename dev project", "rename dev project --dry-run"]),
    ("enable", ["enable linear", "enable linear --yes"]),
    ("disable", ["disable linear", "disable linear --yes"]),
    ("lock", ["lock", "lock --check"]),
    ("status", ["status", "status --json"]),
    ("stop", ["stop", "stop --json"]),
    ("log", ["log --since 15m", "log --json"]),
    ("stats", ["stats", "stats --since 7d --json"]),
    ("console", ["console", "console --json"]),
    ("check", ["check", "check --json --config other.json"]),
    ("doctor", ["doctor", "doctor --json"]),
    ("login", ["login", "login linear --no-browser"]),
    ("logout", ["logout linear", "logout linear --json"]),
    ("list", ["list", "list tools --fresh"]),
    ("show", ["show read_file", "show files/read_file --json"]),
    (
        "call",
        ["call files/read_file path=README.md", "call files/read_file --args '{\"path\": \"README.md\"}'"],
    ),
    ("search", ["search create github issue", "search read file --limit 3"]),
    ("tokens", ["tokens", "tokens --fresh --json"]),
    ("serve", ["serve", "serve --http 8850"]),
    ("demo", ["demo", "demo --wire"]),
    ("schema", ["schema", "schema > schema.json"]),
    (
        "completions",
        [
            "completions bash > ~/.local/share/bash-completion/completions/PROGRAM",
            "completions fish | source",
        ],
    ),
    ("man", ["man | man -l -", "man --out ~/.local/share/man/man1"]),
];

/// The command line with examples at the end of every help.
pub(super) fn with_examples(command: Command, program: &str) -> Command {
    let names: Vec<_> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let command = names.iter().fold(command, |command, name| {
        command.mut_subcommand(name, |verb| match examples(name, program) {
            Some(examples) => with(verb, &examples),
            None => verb,
        })
    });
    match examples("", program) {
        Some(examples) => with(command, &examples),
        None => command,
    }
}

/// A command whose help ends with these examples, after all else that follows its options.
fn with(command: Command, examples: &str) -> Command {
    let before = command.get_after_help().map(|text| format!("{text}\n\n")).unwrap_or_default();
    command.after_help(format!("{before}{examples}"))
}

fn examples(verb: &str, program: &str) -> Option<String> {
    let (_, examples) = EXAMPLES.iter().find(|(name, _)| *name == verb)?;
    let lines = examples.map(|example| format!("  {program} {}", example.replace("PROGRAM", program)));
    Some(format!("Examples:\n{}", lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use crate::cli::{Arguments, command};
    use crate::config::locate::FaceKind;
    use clap::FromArgMatches;

    #[test]
    fn every_help_ends_with_two_examples_that_can_be_parsed() {
        for face in [FaceKind::Workbench, FaceKind::Toolman] {
            let mut whole = command(face);
            whole.build();
            let verbs =
                whole.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
            for verb in verbs.chain([&whole]) {
                let help = verb.clone().render_long_help().to_string();
                let (_, examples) = help.rsplit_once("\nExamples:\n").unwrap_or_else(|| panic!("{help}"));
                let examples: Vec<_> = examples.lines().map(str::trim).collect();
                assert_eq!(examples.len(), 2, "{}: {help}", verb.get_name());
                for example in examples {
                    let line = example.split(['|', '>']).next().unwrap_or_default().trim();
                    let words = words(line);
                    let matches = command(face).try_get_matches_from(&words).expect(line);
                    Arguments::from_arg_matches(&matches).expect(line);
                    let begins = [face.program(), verb.get_name()];
                    assert!(words[0] == begins[0] && (verb.get_name() == begins[0] || words[1] == begins[1]));
                }
            }
        }
    }

    /// The words of a line, of which some are quoted.
    fn words(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate();
        let words = parts.flat_map(|(n, part)| match n % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        words.collect()
    }
}
