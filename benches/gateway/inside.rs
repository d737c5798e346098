//! The gateway inside this executable, and a load for it: for tools that watch one process, such as valgrind, under
//! which the real one could not start itself again as a shim.

use std::io::Write;
use std::path::Path;
use std::rc::Rc;

use crate::client::{Call, Client, Shape};
use crate::contest::Caller;
use crate::events;
use crate::roles::Era;
use crate::scene::{self, File, Size, Way};
use crate::web::{Server, Session, Visit};

/// Serves as the gateway does.
pub(crate) fn gateway(file: &str) {
    mcp_workbench::inside::serve(Path::new(file), env!("CARGO_BIN_EXE_mcp-workbench"));
}

/// Serves as the gateway does over HTTP, and ends with stdin.
pub(crate) fn http_gateway(file: &str) {
    let (tell, ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = tell.send(());
    });
    let listens = |address| {
        println!("listening on http://{address}/mcp");
        std::io::stdout().flush().expect("somebody reads");
    };
    let end = async { drop(ended.await) };
    mcp_workbench::inside::serve_http(Path::new(file), env!("CARGO_BIN_EXE_mcp-workbench"), listens, end);
}

const ONE: Size = Size(1, 1, 1);

/// Starts the gateway by the words of `with` (`valgrind` and its options, or nothing) and makes calls. `way` says how
/// a tool is addressed and, after a dash, over what; `eras` what the client and the server speak.
pub(crate) fn load(
    way: &str,
    (client, server): (Era, Era),
    size: &str,
    in_flight: &str,
    calls: &str,
    with: &[&str],
) {
    let number = |text: &str| text.parse().expect("a number");
    // With a journal and metrics a call costs more, which has a budget of its own.
    let file = match way {
        "journalled" => File::of(server, ONE).with("journal", true.into()),
        _ => File::of(server, ONE),
    };
    let (addressed, over_http) = match way.strip_suffix("-http") {
        Some(addressed) => (addressed, true),
        None => (way, false),
    };
    let way = match addressed {
        "registered" | "journalled" | "traced" => Way::Registered,
        "use_tool" => Way::Used,
        other => panic!("no such way: {other}"),
    };
    let shape = Shape::Echo(number(size));
    let call = Call::new(scene::call(way, ONE), shape);
    let make = |mut caller: Box<dyn Caller>| {
        caller.check(&call, shape);
        caller.calls(&call, number(calls), number(in_flight));
    };
    if over_http {
        let server = Rc::new(Server::start(scene::inside("http-gateway", &file, with)));
        let session = Session::open(server.address, client, ONE.0);
        make(Box::new(Visit { server: server.clone(), session }));
        Rc::into_inner(server).expect("the session is over").end();
    } else {
        let mut command = scene::inside("gateway", &file, with);
        if addressed == "traced" {
            command.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", events::collector());
        }
        let mut client = Client::start(command).speaking(client);
        client.initialize();
        client.request("tools/call", &scene::open(0));
        make(Box::new(client));
    }
}
