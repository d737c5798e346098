//! Connections that are refused, and the addresses of those that are made. All names are looked up in the
//! test.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use tokio::time::timeout;

use super::HANGING;
use super::server::{Reply, Server};
use crate::transport::http_client::Authorities;
use crate::transport::http_client::connect::{Http, peer};
use crate::transport::http_client::reach::{Gate, Reach};

/// A gate whose look-ups return these addresses in turn, and the number of look-ups so far.
fn gate(reach: Reach, answers: &[[u8; 4]]) -> (Gate, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let (count, answers) = (asked.clone(), answers.to_vec());
    let lookup = move |_| {
        let answer = answers[count.fetch_add(1, Ordering::Relaxed) % answers.len()];
        Box::pin(async move { Ok(vec![SocketAddr::from((answer, 0))]) }) as _
    };
    (Gate { reach, lookup: Arc::new(lookup), authorities: Authorities::default() }, asked)
}

/// The outcome of a GET: the address that answered, or the failure.
async fn get(gate: &Gate, url: &str) -> Result<Option<IpAddr>, String> {
    let uri: Uri = url.parse().unwrap();
    let http = Http::new(&uri, HeaderMap::new(), gate.clone()).await.unwrap();
    let headers = HeaderMap::new();
    let response = timeout(HANGING, http.send(Method::GET, &uri, &headers, Bytes::new()));
    let response = response.await.map_err(|_| format!("{url} was connected to and does not answer"))?;
    response.map(|response| peer(&response)).map_err(|failure| failure.message)
}

/// A listener that nobody should connect to.
struct Trap(TcpListener);

impl Trap {
    fn new(address: &str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    fn is_untouched(&self) -> bool {
        self.0.accept().is_err()
    }
}

#[tokio::test]
async fn names_lead_servers_elsewhere_nowhere_special() {
    let trap = Trap::new("127.0.0.1:0");
    let port = trap.port();
    let here = [127, 0, 0, 1];
    for (host, answer, expected, lookups) in [
        ("evil.example", here, "evil.example resolves to 127.0.0.1, a loopback address", 1),
        ("evil.example", [169, 254, 169, 254], "resolves to 169.254.169.254, a link-local address", 1),
        ("evil.example", [10, 0, 0, 1], "resolves to 10.0.0.1, a private address", 1),
        ("evil.example", [0, 0, 0, 0], "resolves to 0.0.0.0, a special address", 1),
        ("127.0.0.1", here, "127.0.0.1 is a loopback address", 0),
        ("localhost", here, "localhost is a loopback name", 0),
        ("127.1", here, "127.1 is not a host name", 0),
        ("[::ffff:127.0.0.1]", here, "[::ffff:127.0.0.1] is a loopback address", 0),
    ] {
        let (gate, asked) = gate(Reach::NamedElsewhere, &[answer]);
        let failure = get(&gate, &format!("https://{host}:{port}/x")).await.unwrap_err();
        assert!(failure.contains(expected) && failure.contains("`headers`"), "{host}: {failure}");
        assert_eq!(asked.load(Ordering::Relaxed), lookups, "{host}");
        assert!(trap.is_untouched(), "{host}");
    }
    // A name that only looks like an address is not looked up for plain `http`.
    for reach in [Reach::NamedHere, Reach::NamedElsewhere] {
        let (gate, asked) = gate(reach, &[here]);
        let failure = get(&gate, &format!("http://127.evil.example:{port}/x")).await.unwrap_err();
        assert!(failure.contains("127.evil.example is neither"), "{failure}");
        assert_eq!((asked.load(Ordering::Relaxed), trap.is_untouched()), (0, true));
    }
    // A `localhost` that resolves elsewhere does not count as local.
    let (gate, _) = gate(Reach::NamedHere, &[[10, 0, 0, 1]]);
    let failure = get(&gate, &format!("http://localhost:{port}/x")).await.unwrap_err();
    assert!(failure.contains("localhost resolves to 10.0.0.1, which is not on this machine"), "{failure}");
}

/// A name that changes its answer must not get us to connect to the second one.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_address_that_was_checked_is_connected_to() {
    let server = Server::start(|_| Reply::status(200)).await;
    let port = server.url.parse::<Uri>().unwrap().port_u16().unwrap();
    let trap = Trap::new(&format!("127.0.0.2:{port}"));
    let (here, there) = ([127, 0, 0, 1], [127, 0, 0, 2]);

    let (gate, asked) = gate(Reach::NamedHere, &[here, there]);
    let answered = get(&gate, &format!("http://localhost:{port}/x")).await;
    assert_eq!(answered, Ok(Some(here.into())));
    assert_eq!((asked.load(Ordering::Relaxed), trap.is_untouched()), (1, true));

    // A server that has answered is asked again at the same address, whatever its name resolves to by now.
    let (gate, asked) = self::gate(Reach::Answered(here.into()), &[there]);
    let answered = get(&gate, &format!("http://mcp.example:{port}/x")).await;
    assert_eq!(answered, Ok(Some(here.into())));
    assert_eq!((asked.load(Ordering::Relaxed), trap.is_untouched()), (0, true));
}

#[tokio::test]
async fn redirects_lead_nowhere_else() {
    let trap = Trap::new("127.0.0.1:0");
    let port = trap.port();
    for target in [format!("http://127.0.0.1:{port}/x"), format!("//localhost:{port}/x")] {
        let location = target.clone();
        let server = Server::start(move |_| Reply::status(302).with("location", &location)).await;
        let (gate, _) = gate(Reach::Answered([127, 0, 0, 1].into()), &[[127, 0, 0, 1]]);
        let failure = get(&gate, &server.url.replace("127.0.0.1", "mcp.example")).await.unwrap_err();
        assert!(failure.contains("redirects to http://") && !failure.contains("configuration"), "{failure}");
        assert!(failure.contains(&port.to_string()) && trap.is_untouched(), "{failure}");
    }
}
