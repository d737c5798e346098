//! The verbs that look at what servers offer, and call it.
//!
//! They drive the engine in this process, as one client. What servers offer is taken from memory unless
//! `--fresh` forbids it; all servers that must be asked are asked at the same time.

mod arguments;
mod call;
mod catalog;
mod list;
mod search;
mod show;
mod tokens;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use self::catalog::{Asking, Catalog};
use super::failure::{Failure, OutputMode};
use super::load::{Loader, Overrides, runtime, signal};
use super::login;
use super::screen::Screen;
use super::{Names, World};
use crate::catalog::Kind;
use crate::config::locate::{FaceKind, NotFound};
use crate::core::logins::Attendance;
use crate::edit::file::contents;
use crate::events::environment::Telemetry;
use crate::face;
use crate::gateway::Gateway;
use crate::gateway::shell::Shell;

#[derive(Subcommand)]
pub(super) enum ShellVerb {
    /// List servers, toolboxes, tools, resources or prompts
    #[command(display_order = 50)]
    List {
        /// What to list
        #[arg(value_enum, default_value = "servers")]
        what: What,
        #[command(flatten)]
        ask: Ask,
    },
    /// Show a tool, prompt or resource: its origin, its cost in tokens, its definition
    #[command(display_order = 51)]
    Show {
        /// toolbox/server/tool, the registered name, or any shorter form that is unique
        name: String,
        #[command(flatten)]
        ask: Ask,
    },
    /// Call a tool
    #[command(after_help = "\
Values are typed by the tool's schema:
  a.b=1        a member of an object
  key=@FILE    the text of a file
  key=@@x      the text @x
  key='[1,2]'  arrays and objects are JSON")]
    #[command(display_order = 52)]
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
    /// Find tools by what they do
    #[command(
        display_order = 53,
        after_help = "\
Name a platform and what it is to do: `search github create issue`. Tools whose name matches come first."
    )]
    Search {
        /// What to look for
        #[arg(required = true)]
        words: Vec<String>,
        /// How many tools to show at most
        #[arg(long, value_name = "NUMBER", default_value = "10", value_parser = clap::value_parser!(u16).range(1..))]
        limit: u16,
        #[command(flatten)]
        ask: Ask,
    },
    /// Count the tokens that all definitions cost a model, and those that the gateway costs instead
    #[command(display_order = 55)]
    Tokens {
        #[command(flatten)]
        ask: Ask,
    },
}

#[derive(Args, Clone, Copy)]
pub(super) struct Ask {
    /// Ask the servers again instead of using what is remembered
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    names: Names,
}

impl Ask {
    fn asking(self) -> Asking {
        if self.fresh { Asking::All } else { Asking::Unknown }
    }
}

impl ShellVerb {
    fn names(&self) -> Names {
        let (Self::List { ask, .. }
        | Self::Show { ask, .. }
        | Self::Call { ask, .. }
        | Self::Search { ask, .. }
        | Self::Tokens { ask }) = self;
        ask.names
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum What {
    Servers,
    Toolboxes,
    Tools,
    Resources,
    Prompts,
}

/// One run of a verb.
struct Run {
    face: FaceKind,
    /// The name, description and number of servers of every toolbox or namespace.
    groups: Vec<(String, String, usize)>,
    output: OutputMode,
    screen: Screen,
}

/// A verb's text for stdout, and the exit status.
struct Said {
    text: String,
    status: u8,
}

/// Runs a verb and returns the exit status.
pub(super) fn run(
    verb: &ShellVerb,
    face: FaceKind,
    file: Result<PathBuf, NotFound>,
    overrides: &Overrides,
    (output, screen): (OutputMode, Screen),
    world: World,
) -> Result<u8, Failure> {
    let (loaded, _) = Loader::for_asking(face, file, overrides, &world)?.load(output)?;
    let run = Run { face, groups: groups(&*loaded.face), output, screen };
    let runtime = runtime()?;
    let said = runtime.block_on(async {
        let interrupted = signal()?;
        let around = match verb {
            ShellVerb::Call { .. } => {
                world.journalling_surroundings(face, world.attendance(), Telemetry::default())
            }
            _ => world.engine_surroundings(world.attendance()),
        };
        let gateway = Gateway::new(loaded, around);
        let mut shell = Shell::new(gateway, verb.names().client());
        let said = tokio::select! {
            said = run.verb(verb, &mut shell) => said,
            () = interrupted => {
                screen.clear();
                Err(Failure::interrupted("all servers that were started have been ended"))
            }
        };
        shell.end().await;
        said
    });
    // A thread may still wait for an answer on the terminal.
    runtime.shutdown_background();
    let said = said?;
    let mut out = io::stdout().lock();
    match out.write_all(said.text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that closed the pipe has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(said.status),
        Err(error) => Err(Failure::failed(format!("cannot write to stdout: {error}"), "")),
        Ok(()) => Ok(said.status),
    }
}

/// The names of all tools that are remembered, in full and, where that is enough, as the server calls them.
/// Starts nothing; `None` if the file is not valid.
pub(super) fn remembered_tools(face: FaceKind, file: PathBuf, world: &World) -> Option<Vec<String>> {
    let loader = Loader::for_asking(face, Ok(file), &Overrides::default(), world).ok()?;
    let (loaded, _) = loader.read(contents(&loader.file).ok()?, None).0.ok()?;
    runtime().ok()?.block_on(async {
        let shell = Shell::new(Gateway::new(loaded, world.engine_surroundings(Attendance::Nobody)), "");
        let catalog = Catalog::gather(&shell, face, Asking::Unknown, &|_| false).await;
        shell.end().await;
        Some(catalog.names())
    })
}

/// The name, description and number of servers of every toolbox or namespace.
fn groups(face: &dyn face::Face) -> Vec<(String, String, usize)> {
    let servers = face.servers();
    let mut groups: Vec<(String, String, usize)> = Vec::new();
    for name in face.groups() {
        if !groups.iter().any(|(known, ..)| known == name) {
            let count = servers.iter().filter(|server| server.group == name).count();
            groups.push((name.to_owned(), face.about(name).to_owned(), count));
        }
    }
    groups
}

impl Run {
    async fn verb(&self, verb: &ShellVerb, shell: &mut Shell) -> Result<Said, Failure> {
        match verb {
            ShellVerb::List { what: What::Toolboxes, .. } => Ok(self.list_toolboxes()),
            ShellVerb::List { what, ask } => {
                let catalog = self.gather(shell, ask.asking(), &|_| true).await;
                self.warn_of_failures(&catalog);
                Ok(self.list(*what, &catalog))
            }
            ShellVerb::Show { name, ask } => {
                let catalog = self.gather_for(shell, ask.asking(), name).await;
                let kinds = [Kind::Tool, Kind::Prompt, Kind::Resource, Kind::Template];
                let found = catalog.find(name, &kinds)?;
                self.name_unasked(&catalog);
                Ok(self.show(&catalog, found))
            }
            ShellVerb::Call { name, arguments, args, ask } => {
                let given = arguments::Given::read(arguments, args.as_deref(), &mut io::stdin())?;
                self.call(shell, name, &given, ask.asking()).await
            }
            ShellVerb::Search { words, limit, ask } => {
                let catalog = self.gather(shell, ask.asking(), &|_| true).await;
                self.warn_of_failures(&catalog);
                Ok(self.search(&catalog, &words.join(" "), usize::from(*limit)))
            }
            ShellVerb::Tokens { ask } => {
                let catalog = self.gather(shell, ask.asking(), &|_| true).await;
                self.warn_of_failures(&catalog);
                Ok(self.tokens(shell, &catalog))
            }
        }
    }

    /// What is known of every server; wanted servers that are not remembered are asked.
    async fn gather(
        &self,
        shell: &Shell,
        asking: Asking,
        wanted: &dyn Fn(&crate::core::upstream::Upstream) -> bool,
    ) -> Catalog {
        let gather = |asking| {
            let gather = Catalog::gather(shell, self.face, asking, wanted);
            self.screen.while_waiting("asking the servers", || shell.starting(), gather)
        };
        let catalog = gather(asking).await;
        match login::go_through(self.screen, catalog.logins()).await {
            true => gather(Asking::Failed).await,
            false => catalog,
        }
    }

    /// Says in one line which servers were not asked because they failed a short while ago.
    fn name_unasked(&self, catalog: &Catalog) {
        let unasked: Vec<_> = catalog
            .failed_before()
            .map(|(label, error)| format!("{label} ({})", error.problem.lines().next().unwrap_or_default()))
            .collect();
        if !unasked.is_empty() {
            let line = format!("could not be asked: {}; --fresh asks again", unasked.join(", "));
            let _ = writeln!(io::stderr(), "{}", self.output.message(&self.output.warning(&line)));
        }
    }

    fn warn_of_failures(&self, catalog: &Catalog) {
        self.name_unasked(catalog);
        let unasked: Vec<_> = catalog.failed_before().map(|(label, _)| label).collect();
        let mut failures = catalog.failures().filter(|(label, _)| !unasked.contains(label)).peekable();
        if failures.peek().is_none() {
            return;
        }
        for (label, error) in failures {
            let warning = self.output.warning(&format!("{label}: {}", error.problem));
            let _ = writeln!(io::stderr(), "{}", self.output.message(&warning));
        }
        if !self.output.quiet && !self.output.json {
            let _ = writeln!(io::stderr(), "`{} doctor` says more about it", self.face.program());
        }
    }

    /// As [`Self::gather`], but only servers that can have a thing of this name are wanted.
    async fn gather_for(&self, shell: &Shell, asking: Asking, name: &str) -> Catalog {
        let from = |upstream: &crate::core::upstream::Upstream| catalog::may_have(self.face, upstream, name);
        let named = shell.upstreams().iter().any(|upstream| from(upstream));
        self.gather(shell, asking, &|upstream| !named || from(upstream)).await
    }

    /// The word for a toolbox or namespace.
    fn group_word(&self) -> &'static str {
        match self.face {
            FaceKind::Workbench => "toolbox",
            FaceKind::Toolman => "namespace",
        }
    }
}

impl Said {
    fn done(text: String) -> Self {
        Self { text, status: 0 }
    }
}
