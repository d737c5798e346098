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
//!  "notes": [{"client", "file", "server", "key", "message"}], "warnings": [string]}
//! // add, remove; toolman: {…, "namespace"}; `secrets` is of add
//! {…, "toolbox", "server", "secrets": [{"variable", "key"}]}
//! // lock, which prints only this; toolman: "namespace" in place of "toolbox" and "server"
//! {"ok": bool, "changes": [{"toolbox", "server", "kind": "tool"|"prompt", "name",
//!  "change": "text"|"other"|"new"|"gone", "paths": [string], "characters": ["U+200B"]}],
//!  "failed": [{"toolbox", "server", "error"}]}
//! // connect, disconnect; the keys after `entry` are those of connect
//! {…, "client", "entry", "command", "args", "removed": [name], "kept": [name], "unset": [variable], "backup"}
//! ```

use super::failure::{Failure, Manner};
use super::screen::Screen;
use super::{World, add, change, connect, import, lock, schema};
use crate::config::ToolMode;
use crate::config::locate::{Face, NotFound};
use clap::{Args, Subcommand};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
pub(super) enum FileVerb {
    /// Bring the servers of all clients on this machine into a configuration
    #[command(display_order = 10)]
    Init {
        /// Write the user's own file, not one in the current directory
        #[arg(long)]
        user: bool,
        #[command(flatten)]
        toolbox: InToolbox,
        #[command(flatten)]
        change: Change,
    },
    /// Bring the servers of one client or file into the configuration
    #[command(display_order = 13)]
    Import {
        /// A client, such as cursor, or the path of a file
        #[arg(value_name = "CLIENT|FILE")]
        source: String,
        #[command(flatten)]
        toolbox: InToolbox,
        #[command(flatten)]
        change: Change,
    },
    /// Add a server to the configuration
    #[command(display_order = 30)]
    Add {
        /// What the server is called
        name: String,
        /// Where a server that runs already is
        #[arg(long, conflicts_with_all = ["command", "env"])]
        url: Option<String>,
        /// It speaks the deprecated HTTP+SSE transport
        #[arg(long, requires = "url")]
        sse: bool,
        /// A header to send, such as "Authorization: Bearer ${TOKEN}"
        #[arg(long, short = 'H', value_name = "NAME: VALUE", requires = "url")]
        header: Vec<String>,
        /// A variable for the program, such as API_KEY='${API_KEY}'
        #[arg(long, short, value_name = "NAME=VALUE")]
        env: Vec<String>,
        /// The program to start and its arguments
        #[arg(last = true)]
        command: Vec<String>,
        #[command(flatten)]
        toolbox: InToolbox,
        #[command(flatten)]
        change: Change,
    },
    /// Take a server out of the configuration
    #[command(display_order = 31)]
    Remove {
        /// What the server is called
        name: String,
        #[command(flatten)]
        toolbox: InToolbox,
        #[command(flatten)]
        change: Change,
    },
    /// Approve what the servers offer now, and write it into the lock file
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
        change: Change,
    },
    /// Register this gateway in a client's own file
    #[command(display_order = 11)]
    Connect {
        /// Such as claude-code
        client: String,
        /// Leave the client's other servers where they are
        #[arg(long)]
        keep: bool,
        /// Also write `"daemon": true` into our file: all sessions share one process and its servers
        #[arg(long)]
        daemon: bool,
        #[command(flatten)]
        change: Change,
    },
    /// Undo connect
    #[command(display_order = 12)]
    Disconnect {
        /// Such as claude-code
        client: String,
        #[command(flatten)]
        change: Change,
    },
    /// Print the JSON Schema of the configuration file
    #[command(display_order = 80)]
    Schema,
    /// Print what a shell needs to complete our words
    #[command(display_order = 81)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(display_order = 82)]
    Man,
}

#[derive(Args, Clone, Copy, Default)]
pub(super) struct Change {
    /// Write without asking
    #[arg(long, short)]
    yes: bool,
    /// Show the change and write nothing, also beside --yes
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
pub(super) struct InToolbox {
    /// The toolbox (default: the only one there is)
    #[arg(long, value_name = "NAME")]
    toolbox: Option<String>,
}

/// What the command line says besides the verb.
pub(super) struct Setting<'a> {
    pub(super) face: Face,
    /// The face of the program without `--face`.
    pub(super) own_face: Face,
    /// The path given with `--config`.
    pub(super) named: Option<&'a Path>,
    /// The configuration.
    pub(super) file: Result<PathBuf, NotFound>,
    pub(super) tool_mode: Option<ToolMode>,
    pub(super) manner: Manner,
    pub(super) screen: Screen,
    pub(super) world: &'a World,
    /// The whole command line, for completions and the manual page.
    pub(super) command: clap::Command,
}

/// Runs a verb and returns the exit status.
pub(super) fn run(verb: &FileVerb, setting: Setting<'_>) -> io::Result<u8> {
    let Setting { face, own_face, named, file, tool_mode, manner, screen, world, command } = setting;
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
    let Change { yes, dry_run } = verb.change();
    let mut console = change::Console {
        out: &mut out,
        err: &mut err,
        ask: if screen.asks { Some(&mut ask) } else { None },
        manner,
        colour: screen.colour,
        yes,
        dry_run,
        state: world.state_directory(),
        turn: change::Standing::default(),
        summary: Vec::new(),
    };
    if let FileVerb::Lock { items, check, .. } = verb {
        let order = lock::LockOrder { face, items, check: *check, screen, world };
        let outcome = file.map_err(Failure::from).and_then(|file| lock::lock(&order, &file, &mut console));
        return outcome.or_else(|failure| console.finish(Err(failure)));
    }
    let result = (|| match verb {
        FileVerb::Lock { .. } => unreachable!("it was run above"),
        FileVerb::Init { user, toolbox, .. } => {
            let order = import::Order { face, toolbox: toolbox.name(), world };
            import::init(&order, named, *user, &mut console)
        }
        FileVerb::Import { source, toolbox, .. } => {
            let order = import::Order { face, toolbox: toolbox.name(), world };
            import::import(&order, source, &file?, &mut console)
        }
        FileVerb::Add { name, url, sse, header, env, command, toolbox, .. } => {
            let new = add::New { name, url: url.as_deref(), sse: *sse, command, env, headers: header };
            let target = add::Target { face, file: &file?, toolbox: toolbox.name(), world };
            add::add(&target, &new, &mut console)
        }
        FileVerb::Remove { name, toolbox, .. } => {
            let target = add::Target { face, file: &file?, toolbox: toolbox.name(), world };
            add::remove(&target, name, &mut console)
        }
        FileVerb::Connect { client, keep, daemon, .. } => {
            let (program, keep, daemon) = (&program(world), *keep, *daemon);
            let order = connect::Order { client, face, own_face, tool_mode, keep, daemon, world, program };
            connect::connect(&order, &file?, &mut console)
        }
        FileVerb::Disconnect { client, .. } => connect::disconnect(client, face, world, &mut console),
        FileVerb::Schema => Ok(schema::schema(face, console.out)?),
        FileVerb::Completions { shell } => {
            Ok(schema::completions(*shell, command, face.program(), manner.json, console.out)?)
        }
        FileVerb::Man => Ok(schema::man(command, manner.json, console.out)?),
    })();
    console.finish(result)
}

impl FileVerb {
    fn change(&self) -> Change {
        match self {
            Self::Init { change, .. }
            | Self::Import { change, .. }
            | Self::Add { change, .. }
            | Self::Remove { change, .. }
            | Self::Lock { change, .. }
            | Self::Connect { change, .. }
            | Self::Disconnect { change, .. } => *change,
            Self::Schema | Self::Completions { .. } | Self::Man => Change::default(),
        }
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
