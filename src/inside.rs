//! What integration tests and the examples reach besides the executables, and what the benchmark counts.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::{env, fs, thread};

pub use crate::config::Command;
pub use crate::core::process::{Child, Control, Exit, Launch, Launcher};
pub use crate::known_clients::page as page_of_clients;
pub use crate::search::{Hit, Index, ParamDoc, ServerDoc, ToolDoc};
pub use crate::tokens::{count, of_definition};

use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::config;
use crate::config::Serving;
use crate::config::locate::FaceKind;
use crate::core::engine::Surroundings;
use crate::core::logins::Attendance;
use crate::events::{Hub, environment, journal};
use crate::face::workbench::Workbench;
use crate::gateway::{Configured, Gateway, finish_events, http, stdio};
use crate::transport;

/// What executables run if they are built with `--cfg counting`: the gateway alone, for tools that watch one process, such
/// as valgrind. The arguments are `stdio` or `http`, and a file.
pub fn main(_: FaceKind) -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match &*arguments {
        [way, file] if way == "stdio" => serve(Path::new(file)),
        [way, file] if way == "http" => serve_http(Path::new(file)),
        other => panic!("no such way: {other:?}"),
    }
    ExitCode::SUCCESS
}

/// Serves a file on stdin and stdout as the gateway does. A journal stands beside the file, and whoever keeps one counts as
/// well. Spans go where the environment says.
fn serve(file: &Path) {
    run(async {
        let (stdin, stdout) = (transport::stdio::ClientInput::default(), transport::stdio::stdout());
        let (gateway, _) = gateway(file);
        stdio::run(gateway.clone(), (None, None), stdin, stdout, std::future::pending()).await;
        finish_events(&gateway);
    });
}

/// Serves a file over HTTP on a free port, which is said on stdout, until stdin ends.
fn serve_http(file: &Path) {
    let (tell, ended) = oneshot::channel();
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = tell.send(());
    });
    run(async {
        let (gateway, serving) = gateway(file);
        gateway.begin_http();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        writeln!(io::stdout(), "listening on http://{address}/mcp").expect("somebody reads");
        let settings = http::Settings::new(http::Rules::new(&serving, None));
        let end = async { drop(ended.await) };
        http::serve(Arc::new(gateway.clone()), listener, settings, end).await.expect("it serves");
        gateway.end().await;
    });
}

fn run(serving: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(serving);
}

fn gateway(file: &Path) -> (Arc<Gateway>, Serving) {
    let text = fs::read(file).expect("the file is there");
    let Ok((config, _)) = config::load(file, &text, &config::Inputs::of(&|_| None)) else {
        panic!("a good file")
    };
    let (telemetry, _) = environment::read(&|name| env::var(name).ok(), FaceKind::Workbench.program());
    let directory = journal::directory(&file.with_extension("state"));
    let events = Hub::new(FaceKind::Workbench, Some(directory), telemetry);
    if config.common.journal.on {
        events.count();
    }
    let around = Surroundings {
        // Under valgrind, `/proc/self/exe` would start valgrind.
        launcher: Launcher::with_shim(env::current_exe().expect("it runs")),
        vars: env::vars_os().collect(),
        directory: env::temp_dir(),
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
