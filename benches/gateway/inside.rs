//! The gateway inside this executable, and a load for it: for tools that watch one process, such as valgrind, under
//! which the real one could not start itself again as a shim.

use std::path::Path;

use crate::client::{Call, Client, Shape};
use crate::roles::Era;
use crate::scene::{self, File, Size, Way};

/// Serves as the gateway does.
pub(crate) fn gateway(file: &str) {
    mcp_workbench::inside::serve(Path::new(file), env!("CARGO_BIN_EXE_mcp-workbench"));
}

/// Starts the gateway by the words of `with` (`valgrind` and its options, or nothing) and makes calls. `way` says how
/// a tool is addressed, `eras` what the client and the server speak.
pub(crate) fn load(
    way: &str,
    (client, server): (Era, Era),
    size: &str,
    in_flight: &str,
    calls: &str,
    with: &[&str],
) {
    const ONE: Size = Size(1, 1, 1);
    let number = |text: &str| text.parse().expect("a number");
    // With a journal and metrics a call costs more, which has a budget of its own.
    let file = match way {
        "journalled" => File::of(server, ONE).with("journal", true.into()),
        _ => File::of(server, ONE),
    };
    let mut client = Client::start(scene::inside(&file, with)).speaking(client);
    client.initialize();
    client.request("tools/call", &scene::open(0));
    client.settle();
    let way = match way {
        "registered" | "journalled" => Way::Registered,
        "use_tool" => Way::Used,
        other => panic!("no such way: {other}"),
    };
    let shape = Shape::Echo(number(size));
    let call = Call::new(scene::call(way, ONE), shape);
    client.check(&call, shape);
    client.calls(&call, number(calls), number(in_flight));
}
