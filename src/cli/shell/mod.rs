//! Verbs that look at what servers offer, and call it.
//!
//! They drive the engine in this process, as one client. What servers offer is taken from what is remembered of
//! them where `--fresh` does not forbid it; whoever must be asked is asked at the same time as all others.

mod arguments;
mod call;
mod catalog;
mod list;
mod screen;
mod show;
mod tokens;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};

use self::catalog::Catalog;
use self::screen::Screen;
use super::change::Failure;
use super::{FAILURE, World, check, colour, login, serve};
use crate::config::locate::{Face, NotFound};
use crate::config::{self, ToolMode};
use crate::core::catalog::Kind;
use crate::faces::toolman::Toolman;
use crate::faces::workbench::Workbench;
use crate::serve::shell::Shell;
use crate::serve::toolman::Bench;
use crate::serve::{self as gateway, Gateway};

/// A server wants a login that we do not have.
const AUTHORIZATION: u8 = 3;
/// No server could be reached.
const UNREACHABLE: u8 = 4;
/// The tool reported an error.
const TOOL: u8 = 5;

#[derive(Subcommand)]
pub(super) enum ShellVerb {
    /// List what there is
    List {
        /// What to list
        #[arg(value_enum, default_value = "servers")]
        what: What,
        #[command(flatten)]
        ask: Ask,
    },
    /// Show a tool, prompt or resource: where it is from, what it costs, its definition
    Show {
        /// toolbox/server/tool, the registered name, or any shorter form that is unique
        name: String,
        #[command(flatten)]
        ask: Ask,
    },
    /// Call a tool
    #[command(after_help = "\
Values are typed by the tool's schema. a.b=1 sets a member of an object, key=@FILE takes the text of a file,
key=@@x is the text @x, arrays and objects are given as JSON.")]
    Call {
        /// toolbox/server/tool, the registered name, or any shorter form that is unique
        name: String,
        /// key=value for each argument, or - for a JSON object on stdin
        #[arg(value_name = "KEY=VALUE", conflicts_with = "args")]
        arguments: Vec<String>,
        /// All arguments as a JSON object
        #[arg(long, value_name = "JSON")]
        args: Option<String>,
        #[command(flatten)]
        ask: Ask,
    },
    /// What the definitions of all servers cost in a model's context, and what the gateway costs instead
    Tokens {
        #[command(flatten)]
        ask: Ask,
    },
}

#[derive(Args, Clone, Copy)]
pub(super) struct Ask {
    /// Ask the servers again, whatever is remembered of them
    #[arg(long)]
    fresh: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum What {
    Servers,
    Toolboxes,
    Tools,
    Resources,
    Prompts,
}

/// What the command line says of output.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    pub(super) json: bool,
    pub(super) quiet: bool,
}

/// One run of a verb.
struct Run {
    face: Face,
    /// Name, description and number of servers of every toolbox or namespace.
    groups: Vec<(String, String, usize)>,
    manner: Manner,
    screen: Screen,
}

/// What a verb has to say on stdout, and the exit status.
struct Said {
    text: String,
    status: u8,
}

/// Runs a verb and answers the exit status.
pub(super) fn run(
    verb: &ShellVerb,
    face: Face,
    file: Result<PathBuf, NotFound>,
    tool_mode: Option<ToolMode>,
    manner: Manner,
    world: World,
) -> io::Result<u8> {
    let plain = world.variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    let screen = Screen {
        terminal: io::stderr().is_terminal() && !manner.quiet,
        asks: io::stdin().is_terminal() && io::stderr().is_terminal(),
        escapes: io::stdout().is_terminal() && !manner.json,
        colour: io::stdout().is_terminal() && !manner.json && !plain,
    };
    let result = load(face, file, tool_mode, manner, &world).and_then(|(at_work, groups)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let run = Run { face, groups, manner, screen };
        let said = runtime.block_on(async {
            let interrupted = serve::signal()?;
            let mut shell =
                Shell::new(Gateway::new(at_work, world.engine_surroundings(io::stderr().is_terminal())));
            let said = tokio::select! {
                said = run.verb(verb, &mut shell) => said,
                () = interrupted => Err(Failure::failed("interrupted", "")),
            };
            shell.end().await;
            said
        });
        // A thread may still wait for an answer on the terminal.
        runtime.shutdown_background();
        said
    });
    match result {
        Ok(said) => {
            let mut out = io::stdout().lock();
            match out.write_all(said.text.as_bytes()).and_then(|()| out.flush()) {
                // Whoever reads us has seen enough.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(said.status),
                Err(_) => Ok(FAILURE),
                Ok(()) => Ok(said.status),
            }
        }
        Err(failure) => tell(&failure, manner),
    }
}

/// Prints a failure as `--json` wants it.
fn tell(failure: &Failure, manner: Manner) -> io::Result<u8> {
    let Failure { status, kind, message, hint } = failure;
    if manner.json {
        let error = serde_json::json!({"error": {"kind": kind, "message": message, "hint": hint}});
        writeln!(io::stdout(), "{error}")?;
    } else {
        writeln!(io::stderr(), "error: {message}")?;
        if !hint.is_empty() {
            writeln!(io::stderr(), "{}", hint.trim_end())?;
        }
    }
    Ok(*status)
}

type Loaded = (gateway::Face, Vec<(String, String, usize)>);

fn load(
    face: Face,
    file: Result<PathBuf, NotFound>,
    tool_mode: Option<ToolMode>,
    manner: Manner,
    world: &World,
) -> Result<Loaded, Failure> {
    let file = file?;
    let bytes = std::fs::read(&file).map_err(|error| Failure::unreadable(&file, &error))?;
    let environment = |name: &str| world.variable(name);
    let loaded = match face {
        Face::Workbench => config::load(&file, &bytes, &environment).map(|(mut config, warnings)| {
            config.tool_mode = tool_mode.unwrap_or(config.tool_mode);
            let toolboxes = config.toolboxes.iter();
            let groups = toolboxes
                .map(|toolbox| {
                    (toolbox.name.as_str().to_owned(), toolbox.description.clone(), toolbox.servers.len())
                })
                .collect();
            ((gateway::Face::Workbench(Arc::new(Workbench { config })), groups), warnings)
        }),
        Face::Toolman => config::load_toolman(&file, &bytes, &environment).map(|(config, warnings)| {
            let mut groups: Vec<(String, String, usize)> = Vec::new();
            for server in &config.servers {
                match groups.iter_mut().find(|(name, ..)| *name == server.namespace) {
                    Some((.., count)) => *count += 1,
                    None => groups.push((server.namespace.clone(), String::new(), 1)),
                }
            }
            let bench = Bench::new(Toolman::new(config), None);
            ((gateway::Face::Toolman(Arc::new(bench)), groups), warnings)
        }),
    };
    match loaded {
        Ok((loaded, warnings)) => {
            if !manner.quiet {
                check::report(&warnings, colour(world), &mut io::stderr())?;
            }
            Ok(loaded)
        }
        Err(problems) => {
            check::report(&problems, colour(world), &mut io::stderr())?;
            let first = problems.iter().find(|problem| problem.is_error());
            let message = first.map_or_else(String::new, |problem| problem.message.clone());
            let message = format!("{} is not valid: {message}", file.display());
            Err(Failure::configuration(message, format!("`{} check` says more", face.program())))
        }
    }
}

impl Run {
    async fn verb(&self, verb: &ShellVerb, shell: &mut Shell) -> Result<Said, Failure> {
        match verb {
            ShellVerb::List { what: What::Toolboxes, .. } => Ok(self.list_toolboxes()),
            ShellVerb::List { what, ask } => {
                let catalog = self.gather(shell, ask.fresh, &|_| true).await;
                Ok(self.list(*what, &catalog))
            }
            ShellVerb::Show { name, ask } => {
                let catalog = self.gather_for(shell, ask.fresh, name).await;
                let found = catalog.find(name, &[Kind::Tool, Kind::Prompt, Kind::Resource, Kind::Template]);
                Ok(self.show(&catalog, found?))
            }
            ShellVerb::Call { name, arguments, args, ask } => {
                let given = arguments::Given::read(arguments, args.as_deref(), &mut io::stdin())?;
                self.call(shell, name, &given, ask.fresh).await
            }
            ShellVerb::Tokens { ask } => {
                let catalog = self.gather(shell, ask.fresh, &|_| true).await;
                Ok(self.tokens(shell, &catalog))
            }
        }
    }

    /// What is known of every server; those that are wanted and not remembered are asked.
    async fn gather(
        &self,
        shell: &Shell,
        fresh: bool,
        wanted: &dyn Fn(&crate::core::upstream::Upstream) -> bool,
    ) -> Catalog {
        let gather = || {
            self.screen.while_waiting("asking the servers", Catalog::gather(shell, self.face, fresh, wanted))
        };
        let mut catalog = gather().await;
        if login::go_through(catalog.logins()).await {
            catalog = gather().await;
        }
        if !self.manner.json {
            for (label, reason) in catalog.failures() {
                let _ = writeln!(io::stderr(), "warning: {label}: {reason}");
            }
        }
        catalog
    }

    /// As [`Self::gather`], where only servers are wanted that a thing of this name can be from.
    async fn gather_for(&self, shell: &Shell, fresh: bool, name: &str) -> Catalog {
        let from = |upstream: &crate::core::upstream::Upstream| catalog::may_have(self.face, upstream, name);
        let named = shell.upstreams().iter().any(|upstream| from(upstream));
        self.gather(shell, fresh, &|upstream| !named || from(upstream)).await
    }

    /// The word that stands for a toolbox.
    fn group_word(&self) -> &'static str {
        match self.face {
            Face::Workbench => "toolbox",
            Face::Toolman => "namespace",
        }
    }
}

impl Said {
    fn done(text: String) -> Self {
        Self { text, status: 0 }
    }
}
