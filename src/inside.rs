//! What integration tests, the benchmark and the examples reach besides the executables.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crate::config::Command;
pub use crate::core::process::{Child, Control, Exit, Launch, Launcher};
pub use crate::known_clients::page as page_of_clients;
pub use crate::search::{Hit, Index, ParamDoc, ServerDoc, ToolDoc};
pub use crate::tokens::{count, of_definition};

use tokio::net::TcpListener;

use crate::config;
use crate::config::Serving;
use crate::config::locate::FaceKind;
use crate::core::engine::Surroundings;
use crate::core::logins::Attendance;
use crate::events::{Hub, environment, journal};
use crate::face::workbench::Workbench;
use crate::gateway::{Configured, Gateway, finish_events, http, stdio};
use crate::transport;

/// Serves a file on stdin and stdout as the gateway does, with this executable as the shim. A journal stands beside the
/// file, and whoever keeps one counts as well. Spans go where the environment says.
pub fn serve(file: &Path, shim: impl Into<PathBuf>) {
    run(async {
        let (stdin, stdout) = (transport::stdio::stdin(), transport::stdio::stdout());
        let (gateway, _) = gateway(file, shim);
        stdio::run(gateway.clone(), (None, None), stdin, stdout, std::future::pending()).await;
        finish_events(&gateway);
    });
}

/// Serves a file over HTTP on a free port, which `listens` is told, until `end` resolves.
pub fn serve_http(
    file: &Path,
    shim: impl Into<PathBuf>,
    listens: impl FnOnce(SocketAddr),
    end: impl Future<Output = ()>,
) {
    run(async {
        let (gateway, serving) = gateway(file, shim);
        gateway.begin_http();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        listens(listener.local_addr().expect("it is bound"));
        let settings = http::Settings::new(http::Rules::new(&serving, None));
        http::serve(Arc::new(gateway.clone()), listener, settings, end).await.expect("it serves");
        gateway.end().await;
    });
}

fn run(serving: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(serving);
}

fn gateway(file: &Path, shim: impl Into<PathBuf>) -> (Arc<Gateway>, Serving) {
    let text = std::fs::read(file).expect("the file is there");
    let Ok((config, _)) = config::load(file, &text, &config::Inputs::of(&|_| None)) else {
        panic!("a good file")
    };
    let (telemetry, _) = environment::read(&|name| std::env::var(name).ok(), FaceKind::Workbench.program());
    let directory = journal::directory(&file.with_extension("state"));
    let events = Hub::new(FaceKind::Workbench, Some(directory), telemetry);
    if config.common.journal.on {
        events.count();
    }
    let around = Surroundings {
        launcher: Launcher::with_shim(shim),
        vars: std::env::vars_os().collect(),
        directory: std::env::temp_dir(),
        cache: None,
        state: None,
        attendance: Attendance::Nobody,
        daemon: false,
        events,
    };
    let serving = config.common.serving.clone();
    let configured = Configured { face: Arc::new(Workbench { config }), switch_file: None };
    (Gateway::new(configured, around), serving)
}
