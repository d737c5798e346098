//! What stands between a gateway and its neighbours: a line to the store that can be cut, and a balancer before the gateways.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A line to a store.
pub(super) struct Line {
    pub(super) port: u16,
    state: Arc<Mutex<LineState>>,
}

struct LineState {
    mood: Mood,
    open: Vec<TcpStream>,
}

#[derive(Clone, Copy)]
enum Mood {
    /// Everything goes through.
    Whole,
    /// Connections break at once.
    Cut,
    /// Every command is answered with this error.
    Refusing(&'static str),
}

impl Line {
    /// One to the store at this port.
    pub(super) fn to(behind: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new(Mutex::new(LineState { mood: Mood::Whole, open: Vec::new() }));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut state = shared.lock().expect("no panic");
                state.open.push(stream.try_clone().expect("a socket"));
                match state.mood {
                    Mood::Cut => drop(stream.shutdown(Shutdown::Both)),
                    Mood::Refusing(error) => drop(std::thread::spawn(move || refuse(stream, error))),
                    Mood::Whole => {
                        let Ok(store) = TcpStream::connect(("127.0.0.1", behind)) else { continue };
                        state.open.push(store.try_clone().expect("a socket"));
                        couple(&stream, &store);
                        couple(&store, &stream);
                    }
                }
            }
        });
        Self { port, state }
    }

    /// The URL of the store at the other end, for a gateway's file.
    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    pub(super) fn cut(&self) {
        self.turn(Mood::Cut);
    }

    pub(super) fn refuse(&self, error: &'static str) {
        self.turn(Mood::Refusing(error));
    }

    pub(super) fn mend(&self) {
        self.turn(Mood::Whole);
    }

    fn turn(&self, mood: Mood) {
        let mut state = self.state.lock().expect("no panic");
        state.mood = mood;
        for stream in state.open.drain(..) {
            // One that is closed already is as good.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Passes on what comes, until either end is closed.
fn couple(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Answers every command with an error.
fn refuse(stream: TcpStream, error: &str) {
    let mut commands = BufReader::new(stream.try_clone().expect("a socket"));
    let mut line = String::new();
    let mut words = 0;
    while commands.read_line(&mut line).is_ok_and(|read| read > 0) {
        if let Some(count) = line.strip_prefix('*') {
            words = count.trim().parse().expect("a number of words");
        } else if let Some(length) = line.strip_prefix('$') {
            let length: usize = length.trim().parse().expect("a length");
            let mut word = vec![0; length + 2];
            if commands.read_exact(&mut word).is_err() {
                return;
            }
            words -= 1;
        }
        if words == 0 && write!(&stream, "-{error}\r\n").is_err() {
            return;
        }
        line.clear();
    }
}

/// A balancer that sends each request to the next gateway, whichever connection it comes on.
pub(super) struct Balancer {
    pub(super) url: String,
    served: Arc<[AtomicUsize]>,
}

impl Balancer {
    pub(super) fn before(gateways: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("it is bound"));
        let served: Arc<[AtomicUsize]> = gateways.iter().map(|_| AtomicUsize::new(0)).collect();
        let counts = served.clone();
        std::thread::spawn(move || {
            for (turn, client) in listener.incoming().flatten().enumerate() {
                let (at, counts) = (turn % gateways.len(), counts.clone());
                let gateway = gateways[at].clone();
                std::thread::spawn(move || {
                    if pass_on(&client, &gateway).is_ok() {
                        counts[at].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        Self { url, served }
    }

    /// How many requests each gateway was sent.
    pub(super) fn served(&self) -> Vec<usize> {
        self.served.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

/// Passes one request on, on a connection of its own, so that the next one comes on another.
fn pass_on(client: &TcpStream, gateway: &str) -> std::io::Result<()> {
    let mut request = BufReader::new(client.try_clone()?);
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if request.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let name = line.split(':').next().unwrap_or_default().to_lowercase();
        match &*name {
            "connection" => {}
            "host" => head.push_str(&format!("Host: {gateway}\r\n")),
            "\r\n" => break head.push_str("Connection: close\r\n\r\n"),
            _ => head.push_str(&line),
        }
    }
    let mut behind = TcpStream::connect(gateway)?;
    behind.write_all(head.as_bytes())?;
    let mut body = behind.try_clone()?;
    couple(&behind, client);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut request, &mut body);
        // The client is gone, or has sent all that it has.
        let _ = body.shutdown(Shutdown::Both);
    });
    Ok(())
}
