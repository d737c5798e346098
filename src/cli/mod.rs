//! One file a verb; all terminal text and exit codes.

mod add;
mod change;
pub mod check;
mod connect;
mod demo;
mod doctor;
mod files;
mod import;
mod login;
mod reload;
mod schema;
mod serve;
mod serve_http;
mod shell;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::config::locate::{Face, NotFound, Platform, Surroundings, locate, user_file};
use crate::config::{Environment, ToolMode};
use crate::core::engine;
use crate::core::process::Launcher;

/// Something went wrong.
const FAILURE: u8 = 1;
/// The command line or the configuration is wrong.
const USAGE: u8 = 2;
/// A server cannot be reached.
const UNREACHABLE: u8 = 4;

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
    /// Be an MCP server on stdin and stdout (the default), or over HTTP
    Serve(Http),
    /// Say what is wrong with the configuration; starts nothing
    Check,
    /// Start every server once and say what is wrong with it, and what to do
    Doctor,
    /// Show the gateway at work with nothing configured, and how to register it
    Demo,
    /// Be one of the servers that the demo uses
    #[command(hide = true)]
    DemoServer {
        /// Which
        #[arg(value_enum)]
        name: demo::server::Name,
    },
    #[command(flatten)]
    Files(files::FileVerb),
    #[command(flatten)]
    Shell(shell::ShellVerb),
}

/// How to serve over HTTP.
#[derive(Args, Default)]
struct Http {
    /// Serve HTTP at this address, for example 127.0.0.1:8850; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// Let in only who has the token that this file holds
    #[arg(long, value_name = "FILE", requires = "http")]
    auth_token_file: Option<PathBuf>,
    /// Another name that clients may call this host by
    #[arg(long, value_name = "HOST", requires = "http")]
    allow_host: Vec<String>,
    /// Another origin of web pages that may call, for example https://app.example
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    allow_origin: Vec<String>,
    /// What calls in flight may take to finish when the server is told to end
    #[arg(long, value_name = "SECONDS", requires = "http", default_value = "3")]
    drain: f64,
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
}

/// Runs the program; `face` is the one that its name stands for.
pub fn main(face: Face) -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
                let text = error.to_string();
                let (message, hint) = text.split_once('\n').unwrap_or((&text, ""));
                let message = message.strip_prefix("error: ").unwrap_or(message);
                let error = serde_json::json!({"kind": "usage", "message": message, "hint": hint.trim()});
                let _ = writeln!(io::stdout(), "{}", serde_json::json!({"error": error}));
                return ExitCode::from(USAGE);
            }
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
    let world = World { vars: std::env::vars_os().collect(), directory, home: std::env::home_dir() };
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
    match &arguments.verb {
        Some(Verb::Demo) => demo::demo(face, &world),
        Some(Verb::DemoServer { name }) => {
            demo::server::serve(*name, io::stdin().lock(), io::stdout().lock()).map(|()| 0)
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
        Some(Verb::Files(verb)) => {
            let setting = files::Setting {
                face,
                own_face,
                named: arguments.config.as_deref(),
                file,
                tool_mode: arguments.tool_mode(),
                json: arguments.json,
                quiet: arguments.quiet,
                world: &world,
                command: Arguments::command().name(face.program()).bin_name(face.program()),
            };
            files::run(verb, setting)
        }
        Some(Verb::Doctor) => {
            let style = check::Style { json: arguments.json, colour: colour(&world) };
            doctor::run(face, file, style, world)
        }
        Some(Verb::Shell(verb)) => {
            let manner = shell::Manner { json: arguments.json, quiet: arguments.quiet };
            shell::run(verb, face, file, arguments.tool_mode(), manner, world)
        }
        None => serve::run(face, file, arguments.tool_mode(), &Http::default(), world),
        Some(Verb::Serve(http)) => serve::run(face, file, arguments.tool_mode(), http, world),
    }
}

impl Arguments {
    fn tool_mode(&self) -> Option<ToolMode> {
        self.tool_mode.map(|mode| match mode {
            ToolModeName::Dynamic => ToolMode::Dynamic,
            ToolModeName::Proxy => ToolMode::Proxy,
            ToolModeName::Auto => ToolMode::Auto,
        })
    }
}

impl World {
    fn variable(&self, name: &str) -> Option<String> {
        let found = self.vars.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.to_string_lossy().into_owned())
    }

    /// Where programs keep what they remember of a user.
    fn state_directory(&self) -> Option<PathBuf> {
        let named = self.variable("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        named.or_else(|| self.home.as_ref().map(|home| home.join(".local/state")))
    }

    /// Where programs keep what they can do without.
    fn cache_directory(&self) -> Option<PathBuf> {
        let named = self.variable("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        named.or_else(|| self.home.as_ref().map(|home| home.join(".cache")))
    }

    /// What the engine needs of it; `attended` where somebody can be asked to log in to a server.
    fn engine_surroundings(&self, attended: bool) -> engine::Surroundings {
        let (cache, state) = (self.cache_directory(), self.state_directory());
        engine::Surroundings {
            launcher: Launcher::new(),
            vars: self.vars.clone(),
            directory: self.directory.clone(),
            cache,
            state,
            attended,
        }
    }

    fn locate(&self, face: Face, named: Option<&Path>) -> Result<PathBuf, NotFound> {
        let environment = |name: &str| self.variable(name);
        locate(face, named, &self.surroundings(&environment))
    }

    /// The user's own file, whether it exists or not.
    fn user_file(&self, face: Face) -> Option<PathBuf> {
        let environment = |name: &str| self.variable(name);
        user_file(face, &self.surroundings(&environment))
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
}

fn colour(world: &World) -> bool {
    io::stderr().is_terminal() && world.variable("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Log lines go to stderr: warnings and errors, unless `-q`, `-v` or `RUST_LOG` say otherwise.
fn start_logging(arguments: &Arguments) {
    // These name servers that fail in words of their own.
    let calm = matches!(arguments.verb, Some(Verb::Shell(_)));
    let level = match (arguments.quiet || (calm && arguments.verbose == 0), arguments.verbose) {
        // It says by itself what is wrong.
        (_, 0) if matches!(arguments.verb, Some(Verb::Doctor)) => "off",
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, _) => "debug",
    };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level))
        .format(|out, record| writeln!(out, "{}: {}", record.level().as_str().to_lowercase(), record.args()))
        .init();
}
