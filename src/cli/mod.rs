//! The command line: one file per verb, and all terminal text and exit codes.

mod add;
mod advice;
mod change;
mod check;
mod completions;
mod connect;
mod console;
mod daemon;
mod demo;
mod diagnosis;
mod doctor;
mod failure;
mod files;
mod first_start;
mod fresh;
mod help;
mod import;
mod load;
mod lock;
mod log;
mod logging;
mod login;
mod relay;
mod reload;
mod schema;
mod screen;
mod secrets;
mod serve;
mod serve_http;
mod shape;
mod shell;
mod stats;
mod status;
mod version;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use tracing::level_filters::LevelFilter;

use self::failure::{Failure, FailureKind, OutputMode};
use self::load::Overrides;
use self::screen::Screen;
use crate::config::locate::{
    FaceKind, NotFound, Platform, Purpose, Surroundings, locate, user_directory, user_file,
};
use crate::config::{Environment, ToolMode};
use crate::core::engine;
use crate::core::logins::Attendance;
use crate::core::process::{Launcher, Variables, trim_heap};
use crate::events::environment::Telemetry;
use crate::events::{self, Hub};
use crate::known_clients::KnownClient;

/// The heading of the options that every verb has.
const EVERYWHERE: &str = "Options everywhere";

/// Puts all your MCP servers behind a single one, whose tools the model opens as it needs them.
///
/// Without a command it runs as an MCP server on stdin and stdout, for an MCP client to start.
#[derive(Parser)]
#[command(version = version::version(), propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    everywhere: Everywhere,
}

/// The options that every verb has, and the server without one.
#[derive(Args)]
struct Everywhere {
    /// The configuration file (default: workbench-config.json or tools.toml in this directory, else your own)
    #[arg(long, value_name = "FILE", global = true, help_heading = EVERYWHERE)]
    config: Option<PathBuf>,
    /// The surface: workbench has toolboxes, toolman one catalogue of tools
    #[arg(long, value_enum, global = true, help_heading = EVERYWHERE)]
    face: Option<FaceName>,
    /// How opened tools reach the client; overrides the file
    #[arg(long, value_enum, value_name = "MODE", global = true, help_heading = EVERYWHERE)]
    tool_mode: Option<ToolModeName>,
    /// The name of the gateway's entry in the client's file, which the client puts before the names of tools (default: workbench or toolman)
    #[arg(long, value_name = "NAME", global = true, help_heading = EVERYWHERE)]
    entry: Option<String>,
    /// Print one JSON value instead of text
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    json: bool,
    /// Only print results and errors
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = EVERYWHERE)]
    quiet: bool,
    /// Log to stderr how servers start and end; -vv also logs every request
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = EVERYWHERE)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Verb {
    /// Run as an MCP server on stdin and stdout (the default), or over HTTP
    #[command(display_order = 70)]
    Serve(Http),
    /// Check the configuration without starting anything
    #[command(display_order = 40)]
    Check,
    /// Start every server once, and say what is wrong and how to fix it
    #[command(display_order = 41)]
    Doctor {
        /// Ask the servers instead of using what is remembered, which doctor always does
        #[arg(long)]
        fresh: bool,
        #[command(flatten)]
        names: Names,
    },
    /// Log in to a server, or list the servers that need a login
    #[command(display_order = 42)]
    Login {
        /// The server, as a name or TOOLBOX/SERVER
        server: Option<String>,
        /// Print the address of the login instead of opening a browser, and accept the pasted callback address
        #[arg(long)]
        no_browser: bool,
    },
    /// Forget the login to a server
    #[command(display_order = 43)]
    Logout {
        /// The server, as a name or TOOLBOX/SERVER
        server: String,
    },
    /// Show the daemon with its sessions and servers
    #[command(display_order = 72)]
    Status,
    /// Show what happens, in the browser: servers, tools, calls
    #[command(display_order = 74)]
    Console {
        /// Serve the pages at this port of 127.0.0.1 (default: a free one)
        #[arg(long, value_name = "PORT", default_value = "0", hide_default_value = true)]
        port: u16,
        /// Print the address, and do not open it in the browser
        #[arg(long)]
        no_open: bool,
    },
    /// End all daemons of this user, and their servers
    #[command(display_order = 73)]
    Stop,
    /// Show what happened, as the journal tells it
    #[command(display_order = 74)]
    Log(log::Log),
    /// Count calls, errors and times by server and by tool, as the journal tells them
    #[command(display_order = 75)]
    Stats(log::Since),
    /// Be the daemon, which sessions start by themselves
    #[command(hide = true)]
    DaemonProcess {
        /// Where its socket is
        #[arg(long)]
        directory: PathBuf,
        /// Where it logs
        #[arg(long)]
        log: Option<PathBuf>,
    },
    /// Show what the gateway saves, with nothing configured
    #[command(display_order = 71)]
    Demo {
        /// Show the JSON of every message
        #[arg(long)]
        wire: bool,
    },
    /// Be one of the servers that the demo uses
    #[command(hide = true)]
    DemoServer {
        /// Which
        name: String,
    },
    #[command(flatten)]
    Files(files::FileVerb),
    #[command(flatten)]
    Shell(shell::ShellVerb),
}

/// Whose names of tools are shown.
#[derive(Args, Clone, Copy)]
struct Names {
    /// Show the names that tools have in this client, such as claude-code (default: at most 64 characters)
    #[arg(long = "client", value_name = "NAME", value_parser = known_client)]
    client: Option<&'static KnownClient>,
}

fn known_client(id: &str) -> Result<&'static KnownClient, String> {
    KnownClient::named(id).ok_or_else(|| format!("the clients are {}", import::clients()))
}

impl Names {
    /// What the client calls itself; nothing where none is named.
    fn client(self) -> &'static str {
        self.client.map_or("", KnownClient::called)
    }
}

/// How to serve over HTTP.
#[derive(Args, Default)]
struct Http {
    /// Serve HTTP at this address, such as 127.0.0.1:8850, or at this port of 127.0.0.1; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// Require the bearer token stored in FILE
    #[arg(long, value_name = "FILE", requires = "http")]
    auth_token_file: Option<PathBuf>,
    /// Another host name that clients may use
    #[arg(long, value_name = "HOST", requires = "http")]
    allow_host: Vec<String>,
    /// Another origin whose web pages may call, such as https://app.example
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    allow_origin: Vec<String>,
    /// Show what happens, in the browser, at /console
    #[arg(long, requires = "http")]
    console: bool,
    /// How long calls in flight may go on when the server is told to end
    #[arg(long, value_name = "SECONDS", requires = "http", default_value = "3")]
    drain: f64,
    /// Serve metrics at /metrics, for Prometheus
    #[arg(long, requires = "http")]
    metrics: bool,
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
    Flat,
}

/// What the command line takes from the world around it.
#[derive(Clone)]
struct World {
    vars: Variables,
    directory: PathBuf,
    home: Option<PathBuf>,
}

/// Runs the program; `face` is the one that the program's name stands for.
pub fn main(face: FaceKind) -> ExitCode {
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let arguments = match Arguments::read(face) {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") => {
            let text = error.to_string();
            let (message, hint) = text.split_once('\n').unwrap_or((&text, ""));
            let failure = Failure::usage(message.strip_prefix("error: ").unwrap_or(message), hint);
            let output = OutputMode { json: true, ..OutputMode::default() };
            return ExitCode::from(failure.tell(output, &mut out, &mut err).unwrap_or(failure.kind.status()));
        }
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { FailureKind::Usage.status() } else { 0 });
        }
    };
    // Whoever watches an HTTP server on a terminal sees who comes.
    let is_watched = matches!(&arguments.verb, Some(Verb::Serve(Http { http: Some(_), .. })))
        && io::stderr().is_terminal()
        && !arguments.everywhere.quiet;
    let selected = std::env::var(logging::VARIABLE).ok();
    let log = logging::Log { level: log_level(&arguments), life: is_watched, selected };
    match &arguments.verb {
        // The daemon lets go of every descriptor before it opens one of its own, its log included. A relay logs
        // nothing, and many of them should not hold memory for it.
        None | Some(Verb::Serve(_) | Verb::DaemonProcess { .. }) => {}
        Some(_) => log.start(),
    }
    let mut output = OutputMode {
        json: arguments.everywhere.json,
        quiet: arguments.everywhere.quiet,
        ..OutputMode::default()
    };
    let outcome = World::here().and_then(|world| {
        output.colour = io::stderr().is_terminal() && world.colours();
        output.width = terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| width.0.into());
        // The home directory is leaked once, so that every message can be shaped where it is printed.
        output.home = world.home.as_ref().map(|home| &*home.to_string_lossy().into_owned().leak());
        run(face, &arguments, output, world, &log)
    });
    let status = outcome.or_else(|failure| failure.tell(output, &mut out, &mut err));
    ExitCode::from(status.unwrap_or(FailureKind::Failure.status()))
}

/// The whole command line, under the name of a face.
fn command(face: FaceKind) -> clap::Command {
    let program = face.program();
    let adding = format!(
        "{program} add [OPTIONS] <NAME> -- <COMMAND>...\n       {program} add [OPTIONS] <NAME> --url <URL>"
    );
    let command = Arguments::command()
        .name(program)
        .bin_name(program)
        .mut_subcommand("add", |command| command.override_usage(adding));
    let command = match face {
        FaceKind::Workbench => command,
        FaceKind::Toolman => shape::ShapeVerb::OF_TOOLBOXES
            .into_iter()
            .fold(command, |command, verb| command.mut_subcommand(verb, |verb| verb.hide(true)))
            .mut_subcommand("lock", |verb| verb.mut_arg("items", |items| items.help(lock::ITEMS_OF_TOOLMAN))),
    };
    help::with_examples(command, program)
}

fn run(
    own_face: FaceKind,
    arguments: &Arguments,
    output: OutputMode,
    world: World,
    log: &logging::Log,
) -> Result<u8, Failure> {
    let face = match arguments.everywhere.face {
        Some(FaceName::Workbench) => FaceKind::Workbench,
        Some(FaceName::Toolman) => FaceKind::Toolman,
        None => own_face,
    };
    if let (FaceKind::Toolman, Some(ToolModeName::Flat)) = (face, arguments.everywhere.tool_mode) {
        let hint =
            "write `active_toolsets = [\"*\"]` into tools.toml, and everything is active from the start";
        return Err(Failure::usage("`--tool-mode flat` is for toolboxes; toolman has none", hint));
    }
    let file = world.locate(face, arguments.everywhere.config.as_deref());
    let screen = Screen::new(output, &world);
    if let Some(Verb::Check | Verb::Files(_)) = &arguments.verb {
        load::exit_when_interrupted()?;
    }
    match &arguments.verb {
        Some(Verb::Demo { wire }) => demo::demo(face, &world, (output, screen), *wire),
        Some(Verb::Status) => status::status(&world, output, screen),
        Some(Verb::Stop) => status::stop(&world, output),
        Some(Verb::DaemonProcess { directory, log }) => daemon::run(directory.clone(), log.as_deref()),
        Some(Verb::Log(wanted)) => {
            log::run(wanted, log::UserJournal { face, file, world: &world }, (output, screen))
        }
        Some(Verb::Stats(since)) => {
            stats::run(since, log::UserJournal { face, file, world: &world }, (output, screen))
        }
        Some(Verb::DemoServer { name }) => {
            let server = demo::server::Name::named(name).ok_or_else(|| {
                let message = format!("the demo has no server `{name}`");
                Failure::usage(message, "try `demo-server notes`")
            })?;
            demo::server::serve(&server, io::stdin().lock(), io::stdout().lock())?;
            Ok(0)
        }
        Some(Verb::Console { port, no_open }) => {
            let (overrides, opens) = (arguments.overrides(), !no_open);
            console::ConsoleOrder { face, file, overrides, port: *port, opens, output, world: &world }.run()
        }
        Some(Verb::Check) => {
            let environment = |name: &str| world.variable(name);
            check::check(face, file, &environment, output, &mut io::stdout(), &mut io::stderr())
        }
        Some(Verb::Files(verb)) => {
            let setting = files::Setting {
                face,
                own_face,
                named: arguments.everywhere.config.as_deref(),
                file,
                tool_mode: arguments.tool_mode(),
                output,
                screen,
                world: &world,
                command: command(face),
            };
            Ok(files::run(verb, setting)?)
        }
        Some(Verb::Login { server, no_browser }) => {
            login::Servers { face, file, output, screen, world }.login(server.as_deref(), *no_browser)
        }
        Some(Verb::Logout { server }) => login::Servers { face, file, output, screen, world }.logout(server),
        Some(Verb::Doctor { names, .. }) => {
            doctor::run(face, file, &arguments.overrides(), names.client(), (output, screen), world)
        }
        Some(Verb::Shell(verb)) => {
            shell::run(verb, face, file, &arguments.overrides(), (output, screen), world)
        }
        None => serve::run(face, file, arguments.overrides(), &Http::default(), output, &world, log),
        Some(Verb::Serve(http)) => serve::run(face, file, arguments.overrides(), http, output, &world, log),
    }
}

impl Arguments {
    /// The arguments of this process.
    fn read(face: FaceKind) -> Result<Self, clap::Error> {
        // A client starts the server without a verb. To describe every verb takes a good part of the time until the
        // first answer, so that is done only if something is said that the options alone do not cover.
        let options = clap::Command::new(face.program()).disable_help_flag(true).disable_version_flag(true);
        if let Ok(given) = Everywhere::augment_args(options).try_get_matches() {
            return Ok(Self { verb: None, everywhere: Everywhere::from_arg_matches(&given)? });
        }
        let given = command(face).try_get_matches()?;
        let arguments = Self::from_arg_matches(&given)?;
        drop(given);
        // What lives on would lie in the holes that the parser leaves, and keep all of its pages.
        trim_heap();
        Ok(arguments)
    }

    fn overrides(&self) -> Overrides {
        Overrides { tool_mode: self.tool_mode(), entry: self.everywhere.entry.clone() }
    }

    fn tool_mode(&self) -> Option<ToolMode> {
        self.everywhere.tool_mode.map(|mode| match mode {
            ToolModeName::Dynamic => ToolMode::Dynamic,
            ToolModeName::Proxy => ToolMode::Proxy,
            ToolModeName::Auto => ToolMode::Auto,
            ToolModeName::Flat => ToolMode::Flat,
        })
    }
}

impl World {
    /// The surroundings of this process.
    fn here() -> Result<Self, Failure> {
        let directory = std::env::current_dir().map_err(|error| {
            let hint = "change to a directory that exists and that you may read";
            Failure::failed(format!("the working directory cannot be read: {error}"), hint)
        })?;
        Ok(Self { vars: std::env::vars_os().collect(), directory, home: std::env::home_dir() })
    }

    /// Whether a terminal may get colours.
    fn colours(&self) -> bool {
        let set = |name: &str| self.variable(name).filter(|value| !value.is_empty());
        set("NO_COLOR").is_none() && set("TERM").as_deref() != Some("dumb")
    }

    /// Whether a terminal can show more than ASCII.
    fn speaks_unicode(&self) -> bool {
        let set = |name: &str| self.variable(name).filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        cfg!(windows) || locale.to_ascii_lowercase().replace('-', "").contains("utf8")
    }

    /// Whether a browser can be opened for the person at this machine.
    fn has_browser(&self) -> bool {
        let set = |name: &str| self.variable(name).is_some_and(|value| !value.is_empty());
        let remote = set("SSH_CONNECTION") || set("SSH_TTY");
        let display = cfg!(any(windows, target_os = "macos")) || set("DISPLAY") || set("WAYLAND_DISPLAY");
        display && !remote
    }

    /// Who can be asked to log in, for a verb that lives long enough for a login.
    fn attendance(&self) -> Attendance {
        if io::stderr().is_terminal() { Attendance::Somebody } else { Attendance::Nobody }
    }

    fn variable(&self, name: &str) -> Option<String> {
        let same = |key: &OsString| if cfg!(windows) { key.eq_ignore_ascii_case(name) } else { key == name };
        let found = self.vars.iter().find(|(key, _)| same(key));
        found.map(|(_, value)| value.to_string_lossy().into_owned())
    }

    /// The directory for what programs remember about a user.
    fn state_directory(&self) -> Option<PathBuf> {
        let environment = |name: &str| self.variable(name);
        user_directory(Purpose::State, &self.surroundings(&environment))
    }

    /// The directory for files that programs can do without.
    fn cache_directory(&self) -> Option<PathBuf> {
        let environment = |name: &str| self.variable(name);
        user_directory(Purpose::Cache, &self.surroundings(&environment))
    }

    /// The surroundings that the engine needs.
    fn engine_surroundings(&self, attendance: Attendance) -> engine::Surroundings {
        let (cache, state) = (self.cache_directory(), self.state_directory());
        engine::Surroundings {
            launcher: Launcher::new(),
            vars: self.vars.clone(),
            directory: self.directory.clone(),
            cache,
            state,
            attendance,
            daemon: false,
            events: Hub::off(),
        }
    }

    /// The surroundings of an engine that serves clients, and tells what happens there.
    fn serving_surroundings(&self, face: FaceKind) -> engine::Surroundings {
        let environment = |name: &str| self.variable(name);
        let (telemetry, problems) = events::environment::read(&environment, face.program());
        for problem in problems {
            tracing::warn!("{problem}");
        }
        self.journalling_surroundings(face, Attendance::Somebody, telemetry)
    }

    /// The surroundings of an engine whose calls stand in the journal, if the file has it on.
    fn journalling_surroundings(
        &self,
        face: FaceKind,
        attendance: Attendance,
        telemetry: Telemetry,
    ) -> engine::Surroundings {
        let around = self.engine_surroundings(attendance);
        let journal = around.state.as_deref().map(events::journal::directory);
        engine::Surroundings { events: Hub::new(face, journal, telemetry), ..around }
    }

    fn locate(&self, face: FaceKind, named: Option<&Path>) -> Result<PathBuf, NotFound> {
        let environment = |name: &str| self.variable(name);
        locate(face, named, &self.surroundings(&environment))
    }

    /// The user's own file, whether it exists or not.
    fn user_file(&self, face: FaceKind) -> Option<PathBuf> {
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

/// The least severe log lines that are wanted: warnings, unless the verb, `-q` or `-v` says otherwise.
fn log_level(arguments: &Arguments) -> LevelFilter {
    // These verbs report failing servers in words of their own.
    let calm = matches!(
        arguments.verb,
        Some(
            Verb::Shell(_)
                | Verb::Login { .. }
                | Verb::Logout { .. }
                | Verb::Files(files::FileVerb::Lock { .. })
        )
    );
    let reports =
        matches!(arguments.verb, Some(Verb::Doctor { .. } | Verb::Files(files::FileVerb::Init { .. })));
    match (
        arguments.everywhere.quiet || (calm && arguments.everywhere.verbose == 0),
        arguments.everywhere.verbose,
    ) {
        // These report by themselves what is wrong.
        (_, 0) if reports => LevelFilter::OFF,
        (true, _) => LevelFilter::ERROR,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::INFO,
        (false, _) => LevelFilter::DEBUG,
    }
}
