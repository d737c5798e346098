//! A server at its worst: the tool `chaos`, and starts that go wrong.

use std::io::Write;
use std::process::exit;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::fault::{Chance, Fault};
use crate::mark;
use crate::options::Options;
use crate::peer::{Peer, work_for};
use crate::server::Server;
use crate::stubborn;

/// Lines that are no message.
const GARBAGE: &str = "npm warn deprecated\n{\"jsonrpc\":\"2.0\",\"id\":\n\n\r\n[]\nnull\n{}\n\u{feff}\n\
     {\"jsonrpc\":\"2.0\",\"method\":5}\n[[[[[[[[\n\0\0\0\n\"text\"\n";

/// A call of the tool.
pub(crate) struct Call<'a> {
    pub(crate) mark: &'a str,
    pub(crate) fault: Option<Fault>,
    /// Progress that is reported before anything else, and under which token.
    pub(crate) steps: u32,
    pub(crate) token: Option<&'a RawValue>,
}

/// Answers a call with its mark, and does what its fault says; without one it does what it should.
pub(crate) fn call(server: &Arc<Server>, id: &RawValue, call: &Call<'_>) {
    let Call { mark, fault, .. } = *call;
    let peer = &server.peer;
    // The driver knows what went wrong from the journal, so it is written first.
    if let Some(fault) = fault {
        journal(&server.options, &format!("{} {mark}", fault.name()));
    }
    if let Some(token) = call.token {
        for step in 1..=call.steps {
            let params = mark::progress(token.get(), mark, step, call.steps);
            peer.notify("notifications/progress", Some(&params));
        }
    }
    let result = mark::result(mark, fault);
    let answer = |result: &str| peer.result(id, result);
    let Some(fault) = fault else { return answer(&result) };
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
    let written = |bytes: &[u8]| {
        peer.forget(id);
        peer.write(bytes);
    };
    let crash = |fault: Fault| -> ! {
        exit(fault.exit_status().expect("a crash"));
    };
    if fault.exit_status().is_some() {
        eprintln!("{}", mark::last_words(server.options.life, format_args!("{} {mark}", fault.name())));
    }
    match fault {
        Fault::Garbage => written(format!("{GARBAGE}{line}").as_bytes()),
        Fault::Pieces => {
            peer.forget(id);
            peer.write_in_pieces(line.as_bytes());
        }
        Fault::ByteOrderMark => written(format!("\u{feff}{line}").as_bytes()),
        Fault::CarriageReturn => written(line.replace('\n', "\r\n").as_bytes()),
        Fault::NotUtf8 => written(&[&b"\xff\xfe\x80 text\n"[..], line.as_bytes()].concat()),
        Fault::LogLine => {
            written(format!("{{\"id\":{id},\"level\":\"info\",\"text\":\"log\"}}\n{line}").as_bytes())
        }
        Fault::Corrupt => written(line.replacen("\"text\":\"", "\"text\":\"\u{1}", 1).as_bytes()),
        Fault::Large => answer(&result),
        Fault::TooLong => {
            let (start, end) =
                (format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"text\":\""), "\"}}");
            written(padded(&start, end, mark::too_long(mark)).as_bytes());
        }
        Fault::TooLongIdLast => {
            let (start, end) =
                ("{\"result\":{\"text\":\"", format!("\"}},\"jsonrpc\":\"2.0\",\"id\":{id}}}"));
            written(padded(start, &end, mark::too_long(mark)).as_bytes());
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
        Fault::Refused => peer.error(id, &mark::refusal(mark)),
        Fault::Stderr => {
            for _ in 0..3000 {
                eprintln!("{}", mark::FLOOD);
            }
            answer(&result);
        }
        Fault::Storm => {
            for _ in 0..200 {
                peer.notify("notifications/tools/list_changed", None);
            }
            answer(&result);
        }
        Fault::CrashBefore => crash(fault),
        Fault::CrashDuring => {
            written(&line.as_bytes()[..line.len() / 2]);
            crash(fault);
        }
        Fault::CrashAfter => {
            answer(&result);
            crash(fault);
        }
        Fault::CrashWithTree => {
            stubborn::spawn(1, &server.options.marker);
            crash(fault);
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
        // Over stdio nobody can tell whose it is, and the id stays in use.
        Fault::ErrorWithoutId => peer.answer(id, &text(fault, mark), server.options.http.is_some()),
        malformed => peer.answer(id, &text(malformed, mark), true),
    }
}

/// The malformed answer to a call, `@id` standing for its id.
fn text(malformed: Fault, mark: &str) -> String {
    let (result, error) = (mark::result(mark, None), mark::refusal(mark));
    let start = r#"{"jsonrpc":"2.0","id":@id"#;
    match malformed {
        Fault::NullError => format!(r#"{start},"result":{result},"error":null}}"#),
        Fault::NullResult => format!(r#"{start},"result":null,"error":{error}}}"#),
        Fault::IdAsText => format!(r#"{{"jsonrpc":"2.0","id":"@id","result":{result}}}"#),
        Fault::IdAsDecimal => format!(r#"{start}.0,"result":{result}}}"#),
        Fault::NoVersion => format!(r#"{{"id":@id,"result":{result}}}"#),
        Fault::EscapedVersion => format!(r#"{{"jsonrpc":"\u0032.0","id":@id,"result":{result}}}"#),
        Fault::InList => format!(r#"[{start},"result":{result}}}]"#),
        Fault::ErrorWithoutId => format!(r#"{{"jsonrpc":"2.0","id":null,"error":{error}}}"#),
        Fault::ErrorWithoutCode => format!(r#"{start},"error":{}}}"#, error.replace(r#""code":-32000,"#, "")),
        Fault::BothOutcomes => format!(r#"{start},"result":{result},"error":{error}}}"#),
        Fault::NoOutcome => format!("{start}}}"),
        Fault::ResultAsText => format!(r#"{start},"result":"{mark}"}}"#),
        Fault::ErrorAsText => format!(r#"{start},"error":"{mark}"}}"#),
        Fault::TwoResults => format!(r#"{start},"result":{result},"result":{result}}}"#),
        Fault::Truncated => format!(r#"{start},"result":{}"#, &result[..result.len() / 2]),
        _ => unreachable!("it has an answer that is well-formed"),
    }
}

/// Adds a line to the file that counts the starts.
pub(crate) fn journal(options: &Options, line: &str) {
    let Some(file) = &options.count else { return };
    let mut file = std::fs::File::options().create(true).append(true).open(file).expect("--count FILE");
    file.write_all(format!("{line}\n").as_bytes()).expect("--count FILE can be written");
}

/// Something goes wrong with this start, or nothing does; says which. The options know how many there were.
pub(crate) fn begin(options: &mut Options, seed: u64) -> &'static str {
    let starts = options.life as u64 - 1;
    let mut chance = Chance(seed ^ (starts << 32));
    match chance.below(12) {
        0 | 1 => {
            options.delay = 200;
            "start slow"
        }
        2 | 3 => {
            options.stdout.extend(GARBAGE.lines().map(ToOwned::to_owned));
            "start noise"
        }
        4 if starts > 1 => {
            options.exit_after_handshake = true;
            options.stderr.push(mark::last_words(options.life, mark::EXIT));
            "start exit"
        }
        5 => {
            options.stubborn = 1;
            options.ignore_term = true;
            "start tree"
        }
        _ => "start",
    }
}

/// A line of this length, without its end.
fn padded(start: &str, end: &str, length: usize) -> String {
    format!("{start}{}{end}\n", "x".repeat(length - start.len() - end.len()))
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
