//! One file a verb; all terminal text and exit codes.

mod add;
mod change;
pub mod check;
mod connect;
mod import;
mod schema;
mod serve;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::config::locate::{Face, NotFound, Platform, Surroundings, locate};
use crate::config::{Environment, ToolMode};

/// Something went wrong.
const FAILURE: u8 = 1;
/// The command line or the configuration is wrong.
const USAGE: u8 = 2;

/// All your MCP servers behind one, with a small surface that the model opens when it needs more.
///
/// Without a verb it is an MCP server on stdin and stdout, to be started by an MCP client.
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// The configuration file (default: workbench-config.json or tools.toml here, then the user's own)
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// The product surface
    #[arg(long, value_enum, global = true)]
    face: Option<FaceName>,
    /// How opened tools reach the client, whatever the file says
    #[arg(long, value_enum, value_name = "MODE", global = true)]
    tool_mode: Option<ToolModeName>,
    /// One JSON value on stdout instead of text
    #[arg(long, global = true)]
    json: bool,
    /// Errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// More log messages; twice for all
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Verb {
    /// Be an MCP server on stdin and stdout (the default)
    Serve,
    /// Say what is wrong with the configuration; starts nothing
    Check,
    /// Bring the servers of all clients on this machine into a configuration
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
    #[command(override_usage = "mcp-workbench add [OPTIONS] <NAME> -- <COMMAND>...\n       \
        mcp-workbench add [OPTIONS] <NAME> --url <URL>")]
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
    Remove {
        /// What the server is called
        name: String,
        #[command(flatten)]
        toolbox: InToolbox,
        #[command(flatten)]
        change: Change,
    },
    /// Register this gateway in a client's own file
    Connect {
        /// Such as claude-code
        client: String,
        /// Leave the client's other servers where they are
        #[arg(long)]
        keep: bool,
        #[command(flatten)]
        change: Change,
    },
    /// Undo connect
    Disconnect {
        /// Such as claude-code
        client: String,
        #[command(flatten)]
        change: Change,
    },
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Print what a shell needs to complete our words
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}

#[derive(Args, Clone, Copy, Default)]
struct Change {
    /// Write without asking
    #[arg(long, short)]
    yes: bool,
    /// Show the change and write nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

#[derive(Args)]
struct InToolbox {
    /// The toolbox (default: the only one there is)
    #[arg(long, value_name = "NAME")]
    toolbox: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum FaceName {
    Workbench,
    Toolman,
}

#[derive(Clone, Copy, ValueEnum)]
enum ToolModeName {
    Dynamic,
    Proxy,
    Auto,
}

/// What the command line gets from the world around it.
struct World {
    vars: Vec<(OsString, OsString)>,
    directory: PathBuf,
    home: Option<PathBuf>,
    /// This program, absolute, as a client can start it.
    program: PathBuf,
}

/// Runs the program; `face` is the one that its name stands for.
pub fn main(face: Face) -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    start_logging(&arguments);
    let directory = match std::env::current_dir() {
        Ok(directory) => directory,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: the working directory cannot be read: {error}");
            return ExitCode::from(FAILURE);
        }
    };
    let vars: Vec<_> = std::env::vars_os().collect();
    let program = program(&vars, &directory);
    let world = World { vars, directory, home: std::env::home_dir(), program };
    ExitCode::from(run(face, &arguments, world).unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "error: {error}");
        FAILURE
    }))
}

fn run(own_face: Face, arguments: &Arguments, world: World) -> io::Result<u8> {
    let face = match arguments.face {
        Some(FaceName::Workbench) => Face::Workbench,
        Some(FaceName::Toolman) => Face::Toolman,
        None => own_face,
    };
    let file = world.locate(face, arguments.config.as_deref());
    let tool_mode = arguments.tool_mode.map(|mode| match mode {
        ToolModeName::Dynamic => ToolMode::Dynamic,
        ToolModeName::Proxy => ToolMode::Proxy,
        ToolModeName::Auto => ToolMode::Auto,
    });
    match &arguments.verb {
        Some(Verb::Schema) => schema::schema(face, &mut io::stdout()),
        Some(Verb::Man) => schema::man(command(face), &mut io::stdout()),
        Some(Verb::Completions { shell }) => {
            schema::completions(*shell, command(face), face.program(), &mut io::stdout())
        }
        Some(verb) if verb.change().is_some() => {
            change_files(verb, face, own_face, file, tool_mode, arguments, &world)
        }
        Some(Verb::Check) => {
            let style = check::Style { json: arguments.json, colour: colour(&world) };
            check::check(
                face,
                file,
                &|name| world.variable(name),
                style,
                &mut io::stdout(),
                &mut io::stderr(),
            )
        }
        _ => serve::serve(face, file, tool_mode, world),
    }
}

/// Runs a verb that changes a file.
fn change_files(
    verb: &Verb,
    face: Face,
    own_face: Face,
    file: Result<PathBuf, NotFound>,
    tool_mode: Option<ToolMode>,
    arguments: &Arguments,
    world: &World,
) -> io::Result<u8> {
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let mut ask = |question: &str| -> io::Result<bool> {
        write!(io::stderr(), "{question} [y/N] ")?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
    };
    let terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    let Change { yes, dry_run } = verb.change().unwrap_or_default();
    let colour =
        io::stdout().is_terminal() && world.variable("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut console = change::Console {
        out: &mut out,
        err: &mut err,
        ask: if terminal { Some(&mut ask) } else { None },
        json: arguments.json,
        quiet: arguments.quiet,
        colour,
        yes,
        dry_run,
    };
    let result = (|| match verb {
        Verb::Init { user, toolbox, .. } => {
            let request = import::Request { face, toolbox: toolbox.toolbox.as_deref(), world };
            import::init(&request, arguments.config.as_deref(), *user, &mut console)
        }
        Verb::Import { source, toolbox, .. } => {
            let request = import::Request { face, toolbox: toolbox.toolbox.as_deref(), world };
            import::import(&request, source, &file?, &mut console)
        }
        Verb::Add { name, url, sse, header, env, command, toolbox, .. } => {
            let new = add::New { name, url: url.as_deref(), sse: *sse, command, env, headers: header };
            let target = add::Target { face, file: &file?, toolbox: toolbox.toolbox.as_deref(), world };
            add::add(&target, &new, &mut console)
        }
        Verb::Remove { name, toolbox, .. } => {
            let target = add::Target { face, file: &file?, toolbox: toolbox.toolbox.as_deref(), world };
            add::remove(&target, name, &mut console)
        }
        Verb::Connect { client, keep, .. } => {
            let request = connect::Request { client, face, own_face, tool_mode, keep: *keep, world };
            connect::connect(&request, &file?, &mut console)
        }
        Verb::Disconnect { client, .. } => {
            let request = connect::Request { client, face, own_face, tool_mode, keep: false, world };
            connect::disconnect(&request, &mut console)
        }
        _ => Ok(serde_json::Map::new()),
    })();
    console.finish(result)
}

impl Verb {
    /// How to go about a change; `None` for verbs that change nothing.
    fn change(&self) -> Option<Change> {
        match self {
            Self::Init { change, .. }
            | Self::Import { change, .. }
            | Self::Add { change, .. }
            | Self::Remove { change, .. }
            | Self::Connect { change, .. }
            | Self::Disconnect { change, .. } => Some(*change),
            _ => None,
        }
    }
}

fn command(face: Face) -> clap::Command {
    Arguments::command().name(face.program()).bin_name(face.program())
}

/// The path that a client can start us by: as we were found, since the real file may have a version in its path.
fn program(vars: &[(OsString, OsString)], directory: &Path) -> PathBuf {
    let real = std::env::current_exe().unwrap_or_default();
    let called = PathBuf::from(std::env::args_os().next().unwrap_or_default());
    let mut candidates = Vec::new();
    if called.components().count() > 1 {
        candidates.push(directory.join(&called));
    } else if let Some((_, path)) = vars.iter().find(|(name, _)| name == "PATH") {
        let entries = std::env::split_paths(path).filter(|entry| entry.is_absolute());
        candidates.extend(entries.map(|entry| entry.join(&called)));
    }
    let same =
        |path: &PathBuf| path.canonicalize().ok().is_some_and(|path| real.canonicalize().ok() == Some(path));
    candidates.into_iter().find(same).unwrap_or(real)
}

/// A number and what it counts, which takes an `s`.
fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

impl World {
    fn variable(&self, name: &str) -> Option<String> {
        let found = self.vars.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.to_string_lossy().into_owned())
    }

    fn locate(&self, face: Face, named: Option<&Path>) -> Result<PathBuf, NotFound> {
        let environment = |name: &str| self.variable(name);
        locate(face, named, &self.surroundings(&environment))
    }

    fn surroundings<'a>(&'a self, environment: &'a Environment<'a>) -> Surroundings<'a> {
        Surroundings {
            environment,
            directory: &self.directory,
            home: self.home.as_deref(),
            platform: Platform::current(),
            exists: &Path::exists,
        }
    }

    /// The variable that holds the user's home.
    fn home_variable(&self) -> &'static str {
        if Platform::current() == Platform::Windows { "USERPROFILE" } else { "HOME" }
    }

    /// Where programs keep what they remember.
    fn state_directory(&self) -> Option<PathBuf> {
        let variable = |name| self.variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = |rest: &str| self.home.as_ref().map(|home| home.join(rest));
        variable("XDG_STATE_HOME").or_else(|| match Platform::current() {
            Platform::Unix => home(".local/state"),
            Platform::MacOs => home("Library/Application Support"),
            Platform::Windows => variable("LOCALAPPDATA").or_else(|| home("AppData/Local")),
        })
    }
}

fn colour(world: &World) -> bool {
    io::stderr().is_terminal() && world.variable("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Log lines go to stderr: warnings and errors, unless `-q`, `-v` or `RUST_LOG` say otherwise.
fn start_logging(arguments: &Arguments) {
    let level = match (arguments.quiet, arguments.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, _) => "debug",
    };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level))
        .format(|out, record| writeln!(out, "{}: {}", record.level().as_str().to_lowercase(), record.args()))
        .init();
}
