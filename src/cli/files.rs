//! Verbs that change files, and those that print something about us.
//!
//! What `--json` prints; further keys may follow:
//!
//! ```jsonc
//! // all that change a file; values of env and headers are never in the diff
//! {"file", "changed": bool, "written": bool, "diff": string}
//! // init, import
//! {…, "added": [{"toolbox", "server", "client", "disabled", "renamedFrom": string|null}],
//!  "merged": [{"server", "client", "sameAs"}], "secrets": [{"variable", "server", "key"}],
//!  "notes": [{"client", "file", "server", "key", "message"}], "warnings": [string],
//!  "elsewhere": number (init: servers that are for the other file)}
//! // init --start: also what `doctor` says of each server
//! {…, "servers": […]}
//! // add, remove, enable, disable; toolman: {…, "namespace"}
//! {…, "toolbox", "server", "secrets": [{"variable", "key"}] (add), "removedToolboxes": [name] (remove),
//!  "disabled": bool (enable, disable)}
//! // move
//! {…, "toolbox", "moved": [{"server", "from"}], "removedToolboxes": [name]}
//! // describe
//! {…, "toolbox", "description"}
//! // rename; `tokens` are those that name the toolbox
//! {…, "toolbox", "renamedFrom", "tokens": [name]}
//! // lock, which prints only this; toolman: "namespace" in place of "toolbox" and "server"
//! {"ok": bool, "changes": [{"toolbox", "server", "kind": "tool"|"prompt", "name",
//!  "change": "text"|"other"|"new"|"gone", "paths": [string], "characters": ["U+200B"]}],
//!  "failed": [{"toolbox", "server", "error"}]}
//! // connect, disconnect; the keys after `entry` are those of connect
//! {…, "client", "entry", "command", "args", "removed": [name], "kept": [name], "unset": [variable], "backup"}
//! ```

use super::failure::{Failure, OutputMode};
use super::screen::Screen;
use super::{World, add, change, completions, connect, first_start, import, lock, schema, shape};
use crate::client_files::FileScope;
use crate::config::ToolMode;
use crate::config::locate::{FaceKind, NotFound};
use clap::{Args, Subcommand};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
pub(super) enum FileVerb {
    /// Import the servers of all clients on this machine into your configuration
    #[command(display_order = 10)]
    Init {
        /// Write this directory's file, from the servers that belong to this project
        #[arg(long)]
        project: bool,
        /// Write your own file, from the servers that you have in every project (the default)
        #[arg(long, conflicts_with = "project")]
        user: bool,
        #[command(flatten)]
        toolbox: InToolbox,
        #[command(flatten)]
        start: first_start::Choice,
        #[command(flatten)]
        change: ChangeFlags,
    },
    /// Import the servers of one client or file into the configuration
    #[command(display_order = 13)]
    Import {
        #[arg(value_name = "CLIENT|FILE", help = format!("A client ({}), or the path of a file", import::clients()))]
        source: String,
        #[command(flatten)]
        toolbox: InToolbox,
        #[command(flatten)]
        change: ChangeFlags,
    },
    /// Add a server to the configuration
    #[command(display_order = 30)]
    Add {
        /// The name of the server
        name: String,
        /// The URL of a server that is already running
        #[arg(long, conflicts_with_all = ["command", "env"])]
        url: Option<String>,
        /// Use the deprecated HTTP+SSE transport
        #[arg(long, requires = "url")]
        sse: bool,
        /// A header to send, such as "Authorization: Bearer ${TOKEN}"
        #[arg(long, short = 'H', value_name = "NAME: VALUE", requires = "url")]
        header: Vec<String>,
        /// A variable for the program, such as API_KEY='${API_KEY}'
        #[arg(long, short, value_name = "NAME=VALUE")]
        env: Vec<String>,
        /// What its toolbox is for; the model reads this text
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// The program to start and its arguments
        #[arg(last = true)]
        command: Vec<String>,
        #[command(flatten)]
        toolbox: InToolbox,
        #[command(flatten)]
        change: ChangeFlags,
    },
    /// Approve what the servers offer now, by writing it into the lock file
    #[command(
        display_order = 44,
        after_help = "\
While the lock file exists, models see only the definitions in it. Commit it, and review how it changes."
    )]
    Lock {
        /// TOOLBOX/SERVER, TOOLBOX/SERVER/TOOL or anything shorter that is unique (default: everything)
        #[arg(value_name = "ITEM")]
        items: Vec<String>,
        /// Only show what differs, and exit with 1 if anything does
        #[arg(long, conflicts_with_all = ["yes", "dry_run"])]
        check: bool,
        #[command(flatten)]
        change: ChangeFlags,
    },
    #[command(flatten)]
    Shape(shape::ShapeVerb),
    /// Register the gateway in a client's own file
    #[command(display_order = 11)]
    Connect {
        #[arg(help = format!("The client: {}", import::clients()))]
        client: String,
        /// Register this directory's configuration in the client's project file
        #[arg(long)]
        project: bool,
        /// Leave the client's other servers where they are
        #[arg(long)]
        keep: bool,
        /// Also write `"daemon": true` into the configuration: all sessions share one process and its servers
        #[arg(long)]
        daemon: bool,
        #[command(flatten)]
        change: ChangeFlags,
    },
    /// Undo connect
    #[command(display_order = 12)]
    Disconnect {
        #[arg(help = format!("The client: {}", import::clients()))]
        client: String,
        /// Undo connect --project
        #[arg(long)]
        project: bool,
        #[command(flatten)]
        change: ChangeFlags,
    },
    /// Print the JSON Schema of the configuration file
    #[command(display_order = 80)]
    Schema,
    /// Generate shell completions
    #[command(display_order = 81)]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: completions::Shell,
    },
    /// Print the words that may come next; the scripts of `completions` ask for them
    #[command(hide = true)]
    Complete {
        /// The word to complete is empty and follows the others
        #[arg(long)]
        next: bool,
        /// The words after the program's name; the last one is to be completed
        #[arg(last = true)]
        words: Vec<String>,
    },
    /// Print the manual page
    #[command(display_order = 82)]
    Man {
        /// The verb whose page is printed (default: the program's own page)
        #[arg(conflicts_with = "out")]
        verb: Option<String>,
        /// Write all pages into this directory instead
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

#[derive(Args, Clone, Copy, Default)]
pub(super) struct ChangeFlags {
    /// Write without asking
    #[arg(long, short)]
    yes: bool,
    /// Show the change and write nothing, even with --yes
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
pub(super) struct InToolbox {
    /// The toolbox to put servers into (default: one per server, named after it)
    #[arg(long, value_name = "NAME")]
    toolbox: Option<String>,
}

/// What the command line says besides the verb.
pub(super) struct Setting<'a> {
    pub(super) face: FaceKind,
    /// The face of the program without `--face`.
    pub(super) own_face: FaceKind,
    /// The path given with `--config`.
    pub(super) named: Option<&'a Path>,
    /// The configuration.
    pub(super) file: Result<PathBuf, NotFound>,
    pub(super) tool_mode: Option<ToolMode>,
    pub(super) output: OutputMode,
    pub(super) screen: Screen,
    pub(super) world: &'a World,
    /// The whole command line, for completions and the manual page.
    pub(super) command: clap::Command,
}

/// Runs a verb and returns the exit status.
pub(super) fn run(verb: &FileVerb, setting: Setting<'_>) -> io::Result<u8> {
    let Setting { face, own_face, named, file, tool_mode, output, screen, world, command } = setting;
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let mut ask = |question: &str| -> io::Result<String> {
        write!(io::stderr(), "{question}")?;
        let mut answer = String::new();
        if io::stdin().read_line(&mut answer)? == 0 {
            // The input ended before the line did.
            writeln!(io::stderr())?;
        }
        Ok(answer.trim().to_owned())
    };
    let ChangeFlags { yes, dry_run } = verb.change();
    let mut console = change::Console {
        out: &mut out,
        err: &mut err,
        ask: if screen.asks { Some(&mut ask) } else { None },
        output,
        colour: screen.colour,
        yes,
        dry_run,
        state: world.state_directory(),
        turn: change::FileTurns::default(),
        summary: Vec::new(),
    };
    if let FileVerb::Lock { items, check, .. } = verb {
        let order = lock::LockOrder { face, items, check: *check, screen, world };
        let outcome = file.map_err(Failure::from).and_then(|file| lock::lock(&order, &file, &mut console));
        return outcome.or_else(|failure| console.finish(Err(failure)));
    }
    let result = (|| match verb {
        FileVerb::Lock { .. } => unreachable!("it was run above"),
        FileVerb::Init { project, toolbox, start, .. } => {
            let order = import::Order { face, toolbox: toolbox.name(), world };
            import::init(&order, named, scope(*project), (*start, screen), &mut console)
        }
        FileVerb::Import { source, toolbox, .. } => {
            let order = import::Order { face, toolbox: toolbox.name(), world };
            import::import(&order, source, &there_or_own(file, world)?, &mut console)
        }
        FileVerb::Add { name, url, sse, header, env, description, command, toolbox, .. } => {
            let new = add::New { name, url: url.as_deref(), sse: *sse, command, env, headers: header };
            let (file, description) = (there_or_own(file, world)?, description.as_deref());
            let target = add::Destination { face, file: &file, toolbox: toolbox.name(), description, world };
            add::add(&target, &new, &mut console)
        }
        FileVerb::Shape(verb) => {
            shape::run(verb, &shape::OwnFile { face, file: &file?, world }, &mut console)
        }
        FileVerb::Connect { client, project, keep, daemon, .. } => {
            let (program, scope, keep, daemon) = (&program(world), scope(*project), *keep, *daemon);
            let order =
                connect::Order { client, face, own_face, tool_mode, scope, keep, daemon, world, program };
            connect::connect(&order, named, &mut console)
        }
        FileVerb::Disconnect { client, project, .. } => {
            connect::disconnect(client, (face, scope(*project)), world, &mut console)
        }
        FileVerb::Schema => Ok(schema::schema(face, console.out)?),
        FileVerb::Completions { shell } => Ok(schema::completions(*shell, face, output.json, console.out)?),
        FileVerb::Complete { next, words } => {
            let words: Vec<_> = words.iter().cloned().chain(next.then(String::new)).collect();
            completions::complete(face, command, &words, world)?;
            Ok(change::JsonAnswer::new())
        }
        FileVerb::Man { out: Some(directory), .. } => {
            schema::write_man(command, &world.directory.join(directory), &mut console)
        }
        FileVerb::Man { verb, .. } => schema::man(command, verb.as_deref(), output.json, console.out),
    })();
    console.finish(result)
}

impl FileVerb {
    fn change(&self) -> ChangeFlags {
        match self {
            Self::Init { change, .. }
            | Self::Import { change, .. }
            | Self::Add { change, .. }
            | Self::Lock { change, .. }
            | Self::Connect { change, .. }
            | Self::Disconnect { change, .. } => *change,
            Self::Shape(verb) => verb.change(),
            Self::Schema | Self::Completions { .. } | Self::Complete { .. } | Self::Man { .. } => {
                ChangeFlags::default()
            }
        }
    }
}

fn scope(project: bool) -> FileScope {
    if project { FileScope::Project } else { FileScope::User }
}

/// The configuration or, where there is none, the user's own file, which is then created. A file that was named
/// must be there, since a new one would hide a slip in the name.
fn there_or_own(file: Result<PathBuf, NotFound>, world: &World) -> Result<PathBuf, Failure> {
    match file {
        Err(missing @ NotFound::Anywhere { face, .. }) => Ok(world.user_file(face).ok_or(missing)?),
        file => Ok(file?),
    }
}

impl InToolbox {
    fn name(&self) -> Option<&str> {
        self.toolbox.as_deref()
    }
}

/// The path by which a client can start us: the one by which we were found, since the real file may have a
/// version in its path.
fn program(world: &World) -> PathBuf {
    let real = std::env::current_exe().unwrap_or_default();
    let called = PathBuf::from(std::env::args_os().next().unwrap_or_default());
    let mut candidates = Vec::new();
    if called.components().count() > 1 {
        candidates.push(world.directory.join(&called));
    } else if let Some((_, path)) = world.vars.iter().find(|(name, _)| name == "PATH") {
        let entries = std::env::split_paths(path).filter(|entry| entry.is_absolute());
        candidates.extend(entries.map(|entry| entry.join(&called)));
    }
    let same =
        |path: &PathBuf| path.canonicalize().ok().is_some_and(|path| real.canonicalize().ok() == Some(path));
    candidates.into_iter().find(same).unwrap_or(real)
}
