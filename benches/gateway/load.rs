//! A load for the gateway alone, which some tool watches: `benches/instructions.sh`.

use std::rc::Rc;

use crate::client::{Call, Client, Shape};
use crate::contest::Caller;
use crate::events;
use crate::roles::Era;
use crate::scene::{self, File, Size, Way};
use crate::web::{Server, Session, Visit};

const ONE: Size = Size(1, 1, 1);

/// Starts the gateway by the words of `started` (`valgrind`, its options, the executable) and makes calls. `way` says how
/// a tool is addressed and, after a dash, over what; `eras` what the client and the server speak.
pub(crate) fn run(
    way: &str,
    (client, server): (Era, Era),
    size: &str,
    in_flight: &str,
    calls: &str,
    started: &[&str],
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
        let server = Rc::new(Server::start(scene::inside("http", &file, started)));
        let session = Session::open(server.address, client, ONE.0);
        make(Box::new(Visit { server: server.clone(), session }));
        Rc::into_inner(server).expect("the session is over").end();
    } else {
        let mut command = scene::inside("stdio", &file, started);
        if addressed == "traced" {
            command.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", events::collector());
        }
        let mut client = Client::start(command).speaking(client);
        client.initialize();
        client.request("tools/call", &scene::open(0));
        make(Box::new(client));
    }
}
