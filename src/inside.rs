//! What integration tests, the benchmark and the examples reach besides the executables.

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crate::config::Command;
pub use crate::core::process::{Child, Control, Exit, Launch, Launcher};
pub use crate::known_clients::page as page_of_clients;
pub use crate::search::{Hit, Index, ParamDoc, ServerDoc, ToolDoc};
pub use crate::tokens::{count, of_definition};

use crate::config;
use crate::config::locate::FaceKind;
use crate::core::engine::Surroundings;
use crate::core::logins::Attendance;
use crate::events::{Hub, environment, journal};
use crate::face::workbench::Workbench;
use crate::gateway::{Configured, Gateway, finish_events, stdio};
use crate::transport;

/// Serves a file on stdin and stdout as the gateway does, with this executable as the shim. A journal stands beside the
/// file, and whoever keeps one counts as well. Spans go where the environment says.
pub fn serve(file: &Path, shim: impl Into<PathBuf>) {
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (stdin, stdout) = (transport::stdio::stdin(), transport::stdio::stdout());
        let configured = Configured { face: Arc::new(Workbench { config }), switch_file: None };
        let gateway = Gateway::new(configured, around);
        stdio::run(gateway.clone(), None, stdin, stdout, std::future::pending()).await;
        finish_events(&gateway);
    });
}
