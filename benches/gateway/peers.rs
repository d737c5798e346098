//! Other programs that lead from HTTP to a server's pipe, beside us and in front of the same server. `benches/peers/run.mjs`
//! installs some and names them; whoever wants to measure others names them in the same way.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use serde::Deserialize;

use crate::Effort;
use crate::client::Shape;
use crate::contest::{Contestant, rounds};
use crate::roles::Era;
use crate::scene::{self, File, Size, Way};
use crate::system;
use crate::table;
use crate::web::{Server, Session, Visit};

/// Names the programs, as a JSON list of [`Peer`].
const VARIABLE: &str = "MCP_PEERS";
const ONE: Size = Size(1, 1, 1);
/// Some take milliseconds for a call, so there are fewer in flight than elsewhere.
const IN_FLIGHT: [usize; 2] = [1, 16];

/// A program that serves `/mcp` on a port.
#[derive(Deserialize)]
struct Peer {
    name: String,
    /// Its command line. `{port}` stands for the port; `{server}` for the server's command line, as several words where
    /// it is a word of its own and as a shell reads it elsewhere.
    command: Vec<String>,
}

/// Calls of 100 B, through everybody who is named.
pub(crate) fn measure(effort: Effort) {
    let Ok(named) = std::env::var(VARIABLE) else {
        return println!(
            "\nNo peers are named in {VARIABLE}: benches/peers/run.mjs installs some and names them."
        );
    };
    let peers: Vec<Peer> = serde_json::from_str(&named).expect("a list of peers");
    let (file, bridge) = (File::new(ONE), scene::role(&["bridge", Era::Legacy.name()]));
    let bridge = Rc::new(Server::start(bridge));
    let ours = Rc::new(Server::start(scene::http_gateway(&file, "dynamic")));
    let mut all = vec![
        ("minimal bridge".to_owned(), Session::stateless(bridge.address, Era::Legacy), bridge, Way::Plain),
        ("**ours**".to_owned(), Session::open(ours.address, Era::Legacy, ONE.0), ours, Way::Registered),
    ];
    for peer in peers {
        let (command, address) = peer.command();
        let server = Rc::new(Server::at(command, address));
        all.push((peer.name, Session::begin(address), server, Way::Plain));
    }
    let idle: Vec<_> = all.iter().map(|(_, _, server, _)| system::memory_of_tree(server.pid())).collect();
    let contestant = |(name, mut session, server, way): (String, Session, _, _)| {
        // While the others started, some have closed a connection that nobody used.
        session.rest();
        Contestant::new(name, Visit { server, session }, way, ONE)
    };
    let mut contestants: Vec<_> = all.into_iter().map(contestant).collect();
    let rounds = rounds(&mut contestants, Shape::Echo(100), &IN_FLIGHT, effort);
    const OURS: usize = 1;
    let row = |(at, contestant): (usize, &Contestant)| {
        vec![
            contestant.name.clone(),
            format!("{:.0}", rounds.of(at, |sample| sample.p50)),
            format!("{:.0}", rounds.of(at, |sample| sample.throughput[1])),
            format!("{:.1}", rounds.of(at, |sample| sample.cpu[1])),
            format!("{:.2}", rounds.ratio(at, OURS, |sample| sample.cpu[1])),
            format!("{:.1}", idle[at] / 1000.0),
        ]
    };
    let rows: Vec<_> = contestants.iter().enumerate().map(row).collect();
    let head =
        ["", "p50 µs", "calls/s, 16 in flight", "CPU µs/call", "× ours", "idle with its server, MB (PSS)"];
    let note = "From Streamable HTTP to the same server on a pipe, 100 B there and back, one session.";
    table::print("Beside other programs", note, &head, &rows);
}

impl Peer {
    /// How it is started, and where it will listen.
    fn command(&self) -> (Command, SocketAddr) {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|port| port.local_addr());
        let address = free.expect("a free port");
        let server = scene::upstream(1);
        let server: Vec<_> = std::iter::once(server.get_program())
            .chain(server.get_args())
            .map(|word| word.to_str().expect("plain paths"))
            .collect();
        let (port, line) = (address.port().to_string(), server.join(" "));
        let mut words = self.command.iter().flat_map(|word| match &**word {
            "{server}" => server.iter().map(|word| (*word).to_owned()).collect(),
            word => vec![word.replace("{port}", &port).replace("{server}", &line)],
        });
        let mut command = scene::program(Path::new(&words.next().expect("a program")));
        command.args(words);
        (command, address)
    }
}
