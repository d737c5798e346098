//! `demo`: the gateway at work with nothing configured, and how to register it.
//!
//! Each face has its own walk, which gets a [`Stage`]: a page to write on, a directory for its files, and
//! gateways, which are this executable started again. Nothing is left behind, whatever happens.

mod client;
mod clients;
mod page;
pub(super) mod server;
mod steps;
mod toolman;
mod workbench;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::failure::{Failure, Manner};
use super::screen::Screen;
use super::{World, load};
use crate::config::locate::{Face, Platform};
use crate::config::{Command, Secret};
use crate::core::process::Launcher;
use client::Client;
use page::Page;

/// What a walk has to work with.
struct Stage<'a> {
    page: Page<'a>,
    /// This executable; `demo-server NAME` makes it one of the [`server`]s.
    executable: &'a Path,
    directory: &'a Path,
    launcher: Launcher,
    world: &'a World,
}

/// Walks through the face, prints how to register it, and returns the exit status.
pub(super) fn demo(face: Face, world: &World, manner: Manner, screen: Screen) -> Result<u8, Failure> {
    if !manner.json {
        return walk(face, world, screen, &mut io::stdout());
    }
    let mut text = Vec::new();
    let plain = Screen { terminal: false, colour: false, ..screen };
    let status = walk(face, world, plain, &mut text)?;
    let text = String::from_utf8_lossy(&text);
    writeln!(io::stdout(), "{}", serde_json::json!({ "text": text }))?;
    Ok(status)
}

fn walk(face: Face, world: &World, screen: Screen, out: &mut dyn Write) -> Result<u8, Failure> {
    let executable = std::env::current_exe()?;
    let runtime = load::runtime()?;
    let outcome = runtime.block_on(async {
        let interrupted = load::signal()?;
        let directory = Directory::new()?;
        let mut stage = Stage {
            page: Page { out, colour: screen.colour, unicode: screen.terminal && screen.unicode },
            executable: &executable,
            directory: &directory.0,
            launcher: Launcher::new(),
            world,
        };
        // A walk that is dropped halfway takes its gateway with it.
        tokio::select! {
            outcome = async {
                match face {
                    Face::Workbench => workbench::walk(&mut stage).await?,
                    Face::Toolman => toolman::walk(&mut stage).await?,
                }
                register(face, &mut stage)
            } => outcome,
            () = interrupted => Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted")),
        }
    });
    match outcome {
        Ok(()) => Ok(0),
        // A reader that closed the pipe has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            Err(Failure::interrupted("nothing is left of it"))
        }
        Err(error) => Err(error.into()),
    }
}

fn register(face: Face, stage: &mut Stage<'_>) -> io::Result<()> {
    let page = &mut stage.page;
    page.heading("Your own servers")?;
    let here = face.file_name();
    match stage.world.user_file(face) {
        Some(file) => page.say(&format!("Write them to {} and register this program.", file.display()))?,
        None => page.say(&format!("Write them to a {here} and register this program with --config FILE."))?,
    }
    if face == Face::Workbench {
        page.say("With \"toolMode\": \"auto\" in it, clients that take up a changed list get dynamic mode, others proxy mode.")?;
    }
    let beside =
        stage.executable.with_file_name(format!("{}{}", face.program(), std::env::consts::EXE_SUFFIX));
    let program = if beside.is_file() { &beside } else { stage.executable };
    for (client, entry) in clients::registrations(face, program, Platform::current()) {
        let (first, rest) = entry.split_once('\n').unwrap_or((&entry, ""));
        page.say(&format!("\n{client:<16}{first}"))?;
        for line in rest.lines() {
            page.say(&format!("  {line}"))?;
        }
    }
    Ok(())
}

impl Stage<'_> {
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
        Client::start(&self.launcher, &launch.map_err(io::Error::other)?)
    }
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
