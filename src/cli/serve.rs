//! `serve`, which also runs without a verb: the MCP server.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;

use super::failure::{Failure, Manner};
use super::load::{Loader, Overrides, env_file, runtime, signal};
use super::reload::FileWatch;
use super::{Http, World, serve_http};
use crate::config::locate::{Face, NotFound};
use crate::core::logins::Attendance;
use crate::gateway::http::Rules;
use crate::gateway::{Gateway, stdio};

/// Serves one client on stdin and stdout, or many over HTTP.
pub(super) fn run(
    face: Face,
    file: Result<PathBuf, NotFound>,
    overrides: Overrides,
    http: &Http,
    manner: Manner,
    world: &World,
) -> Result<u8, Failure> {
    let nothing = matches!(file, Err(NotFound::Anywhere { .. }));
    let file = file.map_err(|missing| {
        let mut failure = Failure::from(missing);
        if nothing && io::stdin().is_terminal() {
            let program = face.program();
            failure.hint.push_str(&format!(
                "\nTo see it work with nothing configured: {program} demo\nAll options: {program} --help"
            ));
        }
        failure
    })?;
    let state = world.state_directory();
    let (skip_missing, reader, obeys_lock) = (false, env_file, true);
    let world_of_loader = world.clone();
    let loader =
        Loader { face, file, overrides, state, skip_missing, reader, obeys_lock, world: world_of_loader };
    let (configured, read) = loader.load(manner)?;
    let lock = configured.face.common().approved.clone();
    if http.http.is_none() && io::stdin().is_terminal() && !manner.quiet {
        writeln!(
            io::stderr(),
            "This is an MCP server: it waits for a client on stdin. End it with Ctrl-D or Ctrl-C."
        )?;
    }
    let runtime = runtime()?;
    let around = world.engine_surroundings(Attendance::Somebody);
    let served = runtime.block_on(async {
        let shutdown = signal()?;
        let watch = |gateway: &Arc<Gateway>, rules: Option<Arc<Rules>>| {
            let (file, gateway) = (loader.file.clone(), gateway.clone());
            let reload = Arc::new(move |bytes, lock| loader.read(bytes, lock));
            FileWatch { file, read: Arc::new(read), reload, lock, manner, gateway, rules }.follow()
        };
        if let Some(address) = &http.http {
            let ready = serve_http::prepare(address, http, &configured.face.common().serving)?;
            let gateway = Gateway::new(configured, around);
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
        let gateway = Gateway::new(configured, around);
        let watching = watch(&gateway, None)?;
        let (stdin, stdout) = (crate::transport::stdio::stdin(), crate::transport::stdio::stdout());
        tokio::select! {
            () = stdio::run(gateway, stdin, stdout, shutdown) => {}
            () = watching => {}
        }
        Ok(0)
    });
    // A thread may still be blocked on a stdin that is not a pipe; it must not hold us up.
    runtime.shutdown_background();
    served
}
