//! `demo`: what the gateway saves, on one screen and with nothing configured.
//!
//! A catalogue of servers is counted, then a task is solved through real gateways, which are this executable
//! started again. Each face has its own story, which gets a [`Stage`]. Nothing is left behind, whatever
//! happens.

mod catalogue;
mod client;
mod page;
pub(super) mod server;
mod toolman;
mod workbench;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::failure::{Failure, OutputMode};
use super::screen::Screen;
use super::{World, load};
use crate::config::locate::FaceKind;
use crate::config::{Command, Secret};
use crate::core::process::Launcher;
use crate::known_clients::{CLIENTS, KnownClient};
use crate::tokens;
use catalogue::CatalogueServer;
use client::{Client, FAREWELL};
use page::{Page, grouped};

/// The task that is solved in every mode.
const TASK: &str = "The task: find the issue about the timeout, and assign it to Ada.";

/// What a story has to work with.
struct Stage<'a> {
    page: Page<'a>,
    servers: Vec<CatalogueServer>,
    /// This executable; `demo-server NAME` makes it one of the [`server`]s.
    executable: &'a Path,
    directory: &'a Path,
    launcher: Launcher,
    /// Each running gateway has a clone.
    alive: mpsc::Sender<()>,
    world: &'a World,
}

/// Tells the story of the face, says what to do next, and returns the exit status. With `wire` the story has
/// the JSON of every message.
pub(super) fn demo(
    face: FaceKind,
    world: &World,
    (output, screen): (OutputMode, Screen),
    wire: bool,
) -> Result<u8, Failure> {
    if !output.json {
        return tell(face, world, screen, wire, &mut io::stdout());
    }
    let mut text = Vec::new();
    let plain = Screen { terminal: false, colour: false, ..screen };
    let status = tell(face, world, plain, wire, &mut text)?;
    let text = String::from_utf8_lossy(&text);
    writeln!(io::stdout(), "{}", json!({ "text": text }))?;
    Ok(status)
}

fn tell(
    face: FaceKind,
    world: &World,
    screen: Screen,
    wire: bool,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    let executable = std::env::current_exe()?;
    let runtime = load::runtime()?;
    let outcome = runtime.block_on(async {
        let interrupted = load::signal()?;
        let directory = Directory::new()?;
        let (alive, mut all_gone) = mpsc::channel(1);
        let mut stage = Stage {
            page: Page { out, colour: screen.colour, unicode: screen.terminal && screen.unicode, wire },
            servers: catalogue::servers(),
            executable: &executable,
            directory: &directory.0,
            launcher: Launcher::new(),
            alive,
            world,
        };
        // A story that is dropped halfway takes its gateway with it.
        let outcome = tokio::select! {
            outcome = async {
                let total = stage.count()?;
                match face {
                    FaceKind::Workbench => workbench::story(&mut stage, total).await?,
                    FaceKind::Toolman => toolman::story(&mut stage, total).await?,
                }
                stage.say_what_next(face)
            } => outcome,
            () = interrupted => Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted")),
        };
        // What a gateway writes while it ends must not outlive the directory.
        drop(stage);
        let _ = timeout(FAREWELL, all_gone.recv()).await;
        outcome
    });
    match outcome {
        Ok(()) => Ok(0),
        // A reader that closed the pipe has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            Err(Failure::interrupted("nothing is left of the demo"))
        }
        Err(error) => Err(error.into()),
    }
}

/// A call of a tool, and how the page names it.
struct Act {
    label: String,
    tool: &'static str,
    arguments: Value,
}

impl Stage<'_> {
    /// Shows what each server of the catalogue costs; returns what all of them cost.
    fn count(&mut self) -> io::Result<usize> {
        let of_server =
            |server: &CatalogueServer| server.tools.iter().map(|tool| tokens::of_definition(tool)).sum();
        let costs: Vec<usize> = self.servers.iter().map(of_server).collect();
        let most = costs.iter().copied().max().unwrap_or_default();
        let (total, tools) =
            (costs.iter().sum(), self.servers.iter().map(|server| server.tools.len()).sum::<usize>());
        let page = &mut self.page;
        page.say(&format!(
            "Eight MCP servers with {tools} tools. This program pretends to be all of them.\n"
        ))?;
        for (server, cost) in self.servers.iter().zip(&costs) {
            page.row(server.name, server.tools.len(), *cost, most)?;
        }
        page.say(&format!(
            "\nConnected directly, they put {} tokens of definitions before your first question.",
            grouped(total)
        ))?;
        Ok(total)
    }

    /// Greets a gateway as a client of this name, and returns how many tokens its instructions have.
    async fn greet(&mut self, client: &mut Client, name: &str) -> io::Result<usize> {
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": name, "version": "1" },
        });
        let answer = client.request("initialize", &hello.to_string()).await?;
        self.page.messages(&answer.lines)?;
        client.notify("notifications/initialized").await?;
        let instructions = answer.result["instructions"].as_str().unwrap_or_default();
        Ok(tokens::count(instructions))
    }

    /// Lists the tools, and returns their number and how many tokens they have.
    async fn list(&mut self, client: &mut Client) -> io::Result<(usize, usize)> {
        let answer = client.request("tools/list", "{}").await?;
        self.page.messages(&answer.lines)?;
        let tools = answer.result["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok((tools.len(), tools.iter().map(|tool| tokens::of_definition(&tool.to_string())).sum()))
    }

    /// Calls a tool that must not fail, and returns the text of its answer.
    async fn call(&mut self, client: &mut Client, act: &Act) -> io::Result<String> {
        let params = json!({ "name": act.tool, "arguments": act.arguments });
        let answer = client.request("tools/call", &params.to_string()).await?;
        let text = answer.result["content"][0]["text"].as_str().unwrap_or_default();
        if answer.result["isError"] == true {
            return Err(io::Error::other(format!("{}: {text}", act.tool)));
        }
        self.page.messages(&answer.lines)?;
        Ok(text.to_owned())
    }

    /// Calls tools one after the other, and shows what each of them answers.
    async fn solve(&mut self, client: &mut Client, acts: &[Act]) -> io::Result<()> {
        for act in acts {
            let text = self.call(client, act).await?;
            self.page.step(&act.label, &text)?;
        }
        Ok(())
    }

    /// Shows what a model has read in the end, compared with everything.
    fn conclude(&mut self, read: usize, total: usize) -> io::Result<()> {
        let percent = 100 - read * 100 / total;
        let (read, total) = (grouped(read), grouped(total));
        self.page
            .step("tokens of definitions read in the end", &format!("{read} of {total}: {percent} % saved"))
    }

    fn say_what_next(&mut self, face: FaceKind) -> io::Result<()> {
        let (page, program) = (&mut self.page, face.program());
        page.heading("Next, with your own servers:")?;
        for (command, about) in [
            ("init", "bring the servers of your clients into one file"),
            ("connect claude-code", "put the gateway in their place (or cursor, codex, ...)"),
            ("demo --wire", "see the JSON behind this page"),
        ] {
            page.say(&format!("  {:<36}{about}", format!("{program} {command}")))?;
        }
        Ok(())
    }

    /// Writes a file into the demo's own directory.
    fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let file = self.directory.join(name);
        std::fs::write(&file, text)?;
        Ok(file)
    }

    /// Starts a gateway with these arguments.
    async fn gateway(&self, args: &[&str]) -> io::Result<Client> {
        let command = Command {
            program: self.executable.to_string_lossy().into_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            // What the demo's own servers offer is not worth remembering.
            env: vec![("XDG_CACHE_HOME".to_owned(), Secret::new(self.directory.to_string_lossy()))],
            cwd: Some(self.directory.to_owned()),
            inherit_env: Vec::new(),
        };
        let launch = self.launcher.prepare(&command, &self.world.vars, self.directory).await;
        Client::start(&self.launcher, &launch.map_err(io::Error::other)?, self.alive.clone())
    }
}

/// The first client of the table that is of this kind.
fn some_client(is_wanted: impl Fn(&KnownClient) -> bool) -> Option<&'static KnownClient> {
    CLIENTS.iter().find(|client| is_wanted(client) && !client.called().is_empty())
}

/// A directory of our own under the system's temporary one, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> io::Result<Self> {
        let base = std::env::temp_dir();
        let mut number = 0;
        loop {
            let path = base.join(format!("mcp-workbench-demo-{}-{number}", std::process::id()));
            match create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => number += 1,
                Err(error) => {
                    return Err(io::Error::new(
                        error.kind(),
                        format!("cannot create {}: {error}", path.display()),
                    ));
                }
            }
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Files that cannot be removed are left to the system, which cleans its temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Creates a directory that only its owner can use.
fn create(path: &Path) -> io::Result<()> {
    #[allow(unused_mut, reason = "only Unix has modes")]
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}
