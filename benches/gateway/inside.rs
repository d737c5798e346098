//! The gateway inside this executable, and a load for it: for tools that watch one process, such as valgrind, under
//! which the real one could not start itself again as a shim.

use std::path::Path;

use std::sync::Arc;

use mcp_workbench::config;
use mcp_workbench::core::engine::Surroundings;
use mcp_workbench::core::process::Launcher;
use mcp_workbench::faces::workbench::Workbench;
use mcp_workbench::serve::{Configured, Gateway, stdio};

use crate::client::{Call, Client, Shape};
use crate::scene::{self, File, Size, Way};

/// Serves as the gateway does.
pub(crate) fn gateway(file: &str) {
    let text = std::fs::read(file).expect("the file is there");
    let loaded = config::load(Path::new(file), &text, &|_| None);
    let Ok((config, _)) = loaded else { panic!("a good file") };
    let around = Surroundings {
        launcher: Launcher::with_shim(env!("CARGO_BIN_EXE_mcp-workbench")),
        vars: std::env::vars_os().collect(),
        directory: std::env::temp_dir(),
        cache: None,
        state: None,
        attended: false,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (stdin, stdout) = (mcp_workbench::wire::stdio::stdin(), mcp_workbench::wire::stdio::stdout());
        stdio::run(
            Gateway::new(Configured { face: Arc::new(Workbench { config }), switch_file: None }, around),
            stdin,
            stdout,
            std::future::pending(),
        )
        .await;
    });
}

/// Starts the gateway by the words of `with` (`valgrind` and its options, or nothing) and makes calls.
pub(crate) fn load(mode: &str, size: &str, in_flight: &str, calls: &str, with: &[&str]) {
    const ONE: Size = Size(1, 1, 1);
    let number = |text: &str| text.parse().expect("a number");
    let file = File::new(ONE);
    let mut client = Client::start(scene::inside(&file, with));
    client.initialize();
    client.request("tools/call", &scene::open(0));
    client.settle();
    let (way, shape) = (if mode == "proxy" { Way::Used } else { Way::Registered }, Shape::Echo(number(size)));
    let call = Call::new(scene::call(way, ONE), shape);
    client.check(&call, shape);
    client.calls(&call, number(calls), number(in_flight));
}
