//! `serve`, and no verb at all: the MCP server.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::reload::Watch;
use super::{FAILURE, Http, USAGE, World, check, colour, serve_http};
use crate::config::locate::{Face, NotFound};
use crate::config::{self, Problem, ToolMode};
use crate::faces::toolman::Toolman;
use crate::faces::workbench::Workbench;
use crate::serve::http::Rules;
use crate::serve::toolman::{Bench, Memory};
use crate::serve::{self, Gateway, stdio};
use crate::store::Switched;

/// Serves one client on stdin and stdout, or many over HTTP.
pub(super) fn run(
    face: Face,
    file: Result<PathBuf, NotFound>,
    tool_mode: Option<ToolMode>,
    http: &Http,
    world: World,
) -> io::Result<u8> {
    let mut err = io::stderr();
    let file = match file {
        Ok(file) => file,
        Err(missing) => {
            writeln!(err, "error: {}\n{}", missing.message(), missing.hint().trim_end())?;
            if io::stdin().is_terminal() {
                let program = face.program();
                writeln!(
                    err,
                    "\nTo see it work with nothing configured: {program} demo\nAll options: {program} --help"
                )?;
            }
            return Ok(USAGE);
        }
    };
    let bytes = match std::fs::read(&file) {
        Ok(bytes) => bytes,
        Err(error) => {
            writeln!(err, "error: cannot read {}: {error}", file.display())?;
            return Ok(USAGE);
        }
    };
    let kind = face;
    let face = match load(kind, &file, &bytes, tool_mode, &world) {
        Ok((loaded, warnings)) => {
            check::report(&warnings, colour(&world), &mut err)?;
            loaded
        }
        Err(problems) => {
            check::report(&problems, colour(&world), &mut err)?;
            return Ok(USAGE);
        }
    };
    if http.http.is_none() && io::stdin().is_terminal() {
        writeln!(
            err,
            "This is an MCP server: it waits for a client on stdin. End it with Ctrl-D or Ctrl-C."
        )?;
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            writeln!(err, "error: cannot start: {error}")?;
            return Ok(FAILURE);
        }
    };
    let around = world.engine_surroundings(true);
    let status = runtime.block_on(async {
        let shutdown = signal()?;
        let watch = |gateway: &Arc<Gateway>, rules: Option<Arc<Rules>>| {
            let reload = |bytes: &[u8]| load(kind, &file, bytes, tool_mode, &world);
            let colour = colour(&world);
            Watch { file: &file, bytes, reload, colour, gateway: gateway.clone(), rules }.follow()
        };
        if let Some(address) = &http.http {
            let ready = match serve_http::prepare(address, http, face.serving()) {
                Ok(ready) => ready,
                Err(refusal) => {
                    writeln!(err, "error: {}", refusal.message)?;
                    return Ok(refusal.status);
                }
            };
            let gateway = Gateway::new(face, around);
            gateway.begin_http();
            let rules = ready.settings.rules.clone();
            let watching = watch(&gateway, Some(rules))?;
            let mut out = io::stdout();
            let backend = Arc::new(gateway.clone());
            tokio::select! {
                served = serve_http::run(backend, ready, &mut out, shutdown) => served?,
                () = watching => {}
            }
            gateway.end().await;
            return Ok(0);
        }
        let gateway = Gateway::new(face, around);
        let watching = watch(&gateway, None)?;
        let (stdin, stdout) = (crate::wire::stdio::stdin(), crate::wire::stdio::stdout());
        tokio::select! {
            () = stdio::run(gateway, stdin, stdout, shutdown) => {}
            () = watching => {}
        }
        Ok::<_, io::Error>(0)
    })?;
    // A thread may still be blocked on a stdin that is no pipe; it must not hold us up.
    runtime.shutdown_background();
    Ok(status)
}

/// What a file stands for, with warnings, or everything that is wrong with it.
pub(super) fn load(
    face: Face,
    file: &Path,
    bytes: &[u8],
    tool_mode: Option<ToolMode>,
    world: &World,
) -> Result<(serve::Face, Vec<Problem>), Vec<Problem>> {
    let environment = |name: &str| world.variable(name);
    match face {
        Face::Workbench => config::load(file, bytes, &environment).map(|(mut config, warnings)| {
            config.tool_mode = tool_mode.unwrap_or(config.tool_mode);
            (serve::Face::Workbench(Arc::new(Workbench { config })), warnings)
        }),
        Face::Toolman => config::load_toolman(file, bytes, &environment).map(|(config, warnings)| {
            let state = config.remember.then(|| world.state_directory()).flatten();
            let memory =
                state.map(|state| Memory { path: Switched::path(&state, file), config: file.to_owned() });
            (serve::Face::Toolman(Arc::new(Bench::new(Toolman::new(config), memory))), warnings)
        }),
    }
}

/// Resolves when the system asks us to end.
pub(super) fn signal() -> io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        })
    }
    #[cfg(not(unix))]
    {
        Ok(async {
            let _ = tokio::signal::ctrl_c().await;
        })
    }
}
