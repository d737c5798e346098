//! `serve`, and no verb at all: the MCP server.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;

use super::failure::{Failure, Manner};
use super::load::{Loaded, Overrides, load, read, runtime, signal};
use super::reload::FileWatch;
use super::{Http, World, serve_http};
use crate::config::locate::{Face, NotFound};
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
    let state = world.state_directory();
    let nothing = matches!(file, Err(NotFound::Anywhere { .. }));
    let loaded = load(face, file, &overrides, state.as_deref(), manner, world).map_err(|mut failure| {
        if nothing && io::stdin().is_terminal() {
            let program = face.program();
            failure.hint.push_str(&format!(
                "\nTo see it work with nothing configured: {program} demo\nAll options: {program} --help"
            ));
        }
        failure
    })?;
    let Loaded { file, bytes, configured } = loaded;
    if http.http.is_none() && io::stdin().is_terminal() && !manner.quiet {
        writeln!(
            io::stderr(),
            "This is an MCP server: it waits for a client on stdin. End it with Ctrl-D or Ctrl-C."
        )?;
    }
    let runtime = runtime()?;
    let around = world.engine_surroundings(true);
    let served = runtime.block_on(async {
        let shutdown = signal()?;
        let watch = |gateway: &Arc<Gateway>, rules: Option<Arc<Rules>>| {
            let (path, world) = (file.clone(), world.clone());
            let reload = move |bytes: &[u8]| read(face, &path, bytes, &overrides, state.as_deref(), &world);
            let (bytes, reload) = (Arc::new(bytes), Arc::new(reload));
            FileWatch { file, bytes, reload, manner, gateway: gateway.clone(), rules }.follow()
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
    // A thread may still be blocked on a stdin that is no pipe; it must not hold us up.
    runtime.shutdown_background();
    served
}
