//! A server at its worst: the tool `chaos`, and starts that go wrong.

use std::io::Write;
use std::process::exit;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use serde_json::value::RawValue;

use crate::fault::{Chance, Fault};
use crate::options::Options;
use crate::peer::{Peer, work_for};
use crate::server::Server;
use crate::stubborn;

/// How much a text is padded to be as long as it may be, and longer. The driver's limit lies between.
const LARGE: usize = 60_000;
const TOO_LONG: usize = 300_000;

/// Lines that are no message.
const GARBAGE: &str = "npm warn deprecated\n{\"jsonrpc\":\"2.0\",\"id\":\n\n\r\n[]\nnull\n{}\n\u{feff}\n\
     {\"jsonrpc\":\"2.0\",\"method\":5}\n[[[[[[[[\n\0\0\0\n\"text\"\n";

/// Answers a call with its mark, and does what its fault says; without one it does what it should.
pub(crate) fn call(server: &Arc<Server>, id: &RawValue, mark: &str, fault: Option<Fault>) {
    let peer = &server.peer;
    let text =
        if fault == Some(Fault::Large) { mark.to_owned() + &"x".repeat(LARGE) } else { mark.to_owned() };
    let result = json!({"content": [{"type": "text", "text": text}]}).to_string();
    let answer = |result: &str| peer.result(id, result);
    // Over HTTP there are no lines to spoil.
    let fault = fault.filter(|fault| server.options.http.is_none() || on_any_transport(*fault));
    let Some(fault) = fault else { return answer(&result) };
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
    let written = |bytes: &[u8]| {
        peer.forget(id);
        peer.write(bytes);
    };
    match fault {
        Fault::Garbage => written(format!("{GARBAGE}{line}").as_bytes()),
        Fault::Pieces => {
            peer.forget(id);
            peer.write_in_pieces(line.as_bytes());
        }
        Fault::ByteOrderMark => written(format!("\u{feff}{line}").as_bytes()),
        Fault::CarriageReturn => written(line.replace('\n', "\r\n").as_bytes()),
        Fault::NotUtf8 => written(&[&b"\xff\xfe\x80 text\n"[..], line.as_bytes()].concat()),
        Fault::Corrupt => written(line.replacen("\"text\":\"", "\"text\":\"\u{1}", 1).as_bytes()),
        Fault::Large => answer(&result),
        Fault::TooLong => {
            let padded = json!({"content": [{"type": "text", "text": "x".repeat(TOO_LONG)}]});
            answer(&padded.to_string());
        }
        Fault::TooLongIdLast => {
            let padded = json!({"content": [{"type": "text", "text": "x".repeat(TOO_LONG)}]});
            written(format!("{{\"result\":{padded},\"jsonrpc\":\"2.0\",\"id\":{id}}}\n").as_bytes());
        }
        Fault::WrongIds => {
            let ids = [&format!("\"x{id}\""), &format!("{id}000000"), "-1", "null", "[]", "1e400", "0.5"];
            written(format!("{}{line}", forged(&ids)).as_bytes());
        }
        Fault::ForeignIds => {
            let answered = peer.update(|heard| heard.answered.clone());
            let ids: Vec<&str> = answered.iter().map(String::as_str).collect();
            written(format!("{}{line}", forged(&ids)).as_bytes());
        }
        Fault::Twice => written(format!("{line}{}", forged(&[id.get()])).as_bytes()),
        Fault::Refused => peer.error(id, &json!({"code": -32000, "message": mark}).to_string()),
        Fault::Stderr => {
            for _ in 0..3000 {
                eprintln!("{}", "flood ".repeat(13));
            }
            answer(&result);
        }
        Fault::Storm => {
            for _ in 0..200 {
                peer.notify("notifications/tools/list_changed", None);
            }
            answer(&result);
        }
        Fault::CrashBefore => {
            eprintln!("crashed before {mark}");
            exit(3);
        }
        Fault::CrashDuring => {
            written(&line.as_bytes()[..line.len() / 2]);
            exit(4);
        }
        Fault::CrashAfter => {
            answer(&result);
            exit(0);
        }
        Fault::CrashWithTree => {
            stubborn::spawn(1, &server.options.marker);
            exit(5);
        }
        Fault::Hang => {}
        Fault::Slow | Fault::Late => {
            let (server, id, result) = (Arc::clone(server), id.to_owned(), result);
            std::thread::spawn(move || {
                work_for(&id);
                match fault {
                    Fault::Late => wait_for_cancellation(&server.peer, &id),
                    _ => std::thread::sleep(Duration::from_millis(20)),
                }
                server.peer.result(&id, &result);
            });
        }
    }
}

/// Something goes wrong with this start, or nothing does. `starts` counts those so far.
pub(crate) fn begin(options: &mut Options, seed: u64, starts: u64) -> &'static str {
    let mut chance = Chance(seed ^ (starts << 32));
    match chance.below(12) {
        0 | 1 => {
            options.delay = 200;
            "slow"
        }
        2 | 3 => {
            options.stdout.extend(GARBAGE.lines().map(ToOwned::to_owned));
            "noise"
        }
        4 if starts > 1 => {
            options.exit_after_handshake = true;
            "exit"
        }
        5 => {
            options.stubborn = 1;
            options.ignore_term = true;
            "tree"
        }
        _ => "start",
    }
}

fn on_any_transport(fault: Fault) -> bool {
    matches!(fault, Fault::Large | Fault::Slow | Fault::Late | Fault::Hang | Fault::Refused | Fault::Storm)
}

/// Answers that are nobody's, one a line.
fn forged(ids: &[&str]) -> String {
    let result = r#"{"content":[{"type":"text","text":"forged"}]}"#;
    ids.iter().map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n")).collect()
}

fn wait_for_cancellation(peer: &Peer, id: &RawValue) {
    let cancelled = |heard: &mut crate::peer::Heard| heard.cancelled.contains(id.get()).then_some(());
    peer.wait_for(Duration::from_secs(3), cancelled);
}

impl Peer {
    /// Writes bytes a few at a time; nobody else writes meanwhile.
    fn write_in_pieces(&self, bytes: &[u8]) {
        let mut stdout = std::io::stdout().lock();
        for piece in bytes.chunks(7) {
            // A client that has gone away needs no answer.
            let _ = stdout.write_all(piece).and_then(|()| stdout.flush());
            std::thread::yield_now();
        }
    }
}
