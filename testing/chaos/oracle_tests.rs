//! What becomes of a client, event by event, and what the oracle says of it.

use super::*;

/// What happens to one client, in the order of a test.
#[derive(Clone)]
enum ClientEvent {
    Sent(u32, Option<Fault>),
    /// A call of a modern client.
    Modern(u32),
    /// A call that its server is told to report progress for.
    Asked(u32, u32),
    Journal(String),
    Said(String),
    Cancelled(u32, u64),
    Over(u32),
    /// So many seconds pass.
    Pass(u64),
}
use ClientEvent::{Asked, Cancelled, Journal, Modern, Over, Pass, Sent};

/// Call number `n`, which has tool and id of that number.
fn call(n: u32, fault: Option<Fault>) -> Call {
    let (mark, tool, token) = (format!("mark-c-{n}."), format!("chaos-{n}"), n.to_string());
    Call { mark, server: 0, tool, fault, steps: 0, token, modern: false }
}

fn journal(line: impl Into<String>) -> ClientEvent {
    Journal(line.into())
}

fn injected(n: u32, fault: Fault) -> ClientEvent {
    Journal(format!("{} {}", fault.name(), call(n, None).mark))
}

fn said(id: u32, result: &str) -> ClientEvent {
    ClientEvent::Said(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}"))
}

fn answered(n: u32) -> ClientEvent {
    said(n, &mark::result(&call(n, None).mark, None))
}

fn failed_with(n: u32, error: &str) -> ClientEvent {
    let message = serde_json::from_str::<Value>(error).unwrap()["message"].as_str().unwrap().to_owned();
    let text = Value::from(format!("[{}] {message}", call(n, None).label()));
    let content = format!("[{{\"type\":\"text\",\"text\":{text}}}]");
    said(
        n,
        &format!("{{\"content\":{content},\"isError\":true,\"_meta\":{{\"mcp-workbench/error\":{error}}}}}"),
    )
}

fn failed(n: u32, message: &str) -> ClientEvent {
    failed_with(n, &format!("{{\"code\":{LOST},\"message\":{}}}", Value::from(message)))
}

/// A call fails since life `life` ended over call number `culprit`.
fn failed_by_end(n: u32, life: usize, crash: Fault, culprit: u32) -> ClientEvent {
    failed(n, &end(life, crash, culprit))
}

fn end(life: usize, crash: Fault, culprit: u32) -> String {
    let words = mark::last_words(life, format!("{} {}", crash.name(), call(culprit, None).mark));
    let status = crash.exit_status().unwrap();
    format!("the server exited with status {status}\nlast lines of its stderr:\n  {}\n  {words}", mark::FLOOD)
}

fn not_running(n: u32, why: &str) -> ClientEvent {
    failed(n, &format!("the server 'box/u0' is not running and could not be started: {why}"))
}

fn progress(n: u32, step: u32, steps: u32) -> ClientEvent {
    let params = mark::progress(&n.to_string(), &call(n, None).mark, step, steps);
    ClientEvent::Said(format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{params}}}"
    ))
}

fn pong(fence_number: u64) -> ClientEvent {
    ClientEvent::Said(format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{}}}}", fence(fence_number)))
}

/// The promises that are broken when all of this happens at a server that has just started.
fn broken(steps: &[ClientEvent]) -> Vec<Promise> {
    let mut oracle = Oracle::new(1);
    oracle.take(Duration::ZERO, Event::Journal(0, "start"));
    let mut at = Duration::ZERO;
    let mut broken = Vec::new();
    for step in steps {
        let findings = match step {
            Sent(n, fault) => oracle.take(at, Event::Sent(&n.to_string(), call(*n, *fault))),
            Modern(n) => {
                let call = Call { modern: true, ..call(*n, None) };
                oracle.take(at, Event::Sent(&n.to_string(), call))
            }
            Asked(n, steps) => {
                let call = Call { steps: *steps, ..call(*n, None) };
                oracle.take(at, Event::Sent(&n.to_string(), call))
            }
            Journal(line) => oracle.take(at, Event::Journal(0, line)),
            ClientEvent::Said(text) => oracle.take(at, Event::Message(text.as_bytes())),
            Cancelled(n, fence) => oracle.take(at, Event::Cancelled(&n.to_string(), *fence)),
            Over(n) => oracle.take(at, Event::Over(&n.to_string())),
            Pass(seconds) => {
                at += Duration::from_secs(*seconds);
                Vec::new()
            }
        };
        broken.extend(findings.into_iter().filter_map(|finding| match finding {
            Finding::Broken(promise, _) => Some(promise),
            Finding::Ended(..) => None,
        }));
    }
    broken
}

/// Every way in which a call can end, by the outcomes that allow it. In all of them the call is number 1, call 2 is
/// under way, too, and eleven seconds have passed.
fn endings(fault: Option<Fault>) -> Vec<(&'static str, ClientEvent, bool)> {
    use Outcome::{Answer, End, Refusal, RefusalOrSilence, Silence, TooLong};
    let outcome = fault.map_or(Answer, Fault::outcome);
    let may = |outcomes: &[Outcome]| outcomes.contains(&outcome);
    let mark = call(1, None).mark;
    let mut refusal = mark::refusal(&mark);
    if fault == Some(Fault::ErrorWithoutCode) {
        refusal = refusal.replace("-32000", "-32603");
    }
    let complaint = match outcome {
        Outcome::Malformed(why) | Outcome::EndOrMalformed(why) => Some(why),
        _ => None,
    };
    let malformed = |why: &str| {
        let message = Value::from(format!("the server's answer is malformed: {why}"));
        failed_with(1, &format!("{{\"code\":{INTERNAL},\"message\":{message}}}"))
    };
    let dies = matches!(outcome, End | Outcome::EndOrMalformed(_));
    let crash = fault.filter(|fault| fault.exit_status().is_some());
    let too_long =
        format!("the answer has {} bytes, more than the 100000 of maxMessageBytes", mark::too_long(&mark));
    vec![
        ("answer", said(1, &mark::result(&mark, fault)), may(&[Answer])),
        ("refusal", failed_with(1, &refusal), may(&[Refusal, RefusalOrSilence])),
        ("too long", failed(1, &too_long), may(&[TooLong])),
        ("malformed", malformed(complaint.unwrap_or("it is not JSON")), complaint.is_some()),
        ("malformed in another way", malformed("it is nonsense"), false),
        (
            "timeout",
            failed(1, "timeout: the longest time for a call is over"),
            may(&[Silence, RefusalOrSilence]),
        ),
        ("its own end", failed_by_end(1, 1, crash.unwrap_or(Fault::CrashBefore), 1), dies),
        ("an end that was not", failed_by_end(1, 1, Fault::CrashBefore, 2), false),
        ("another's answer", said(1, &mark::result(&call(2, None).mark, None)), false),
        (
            "a JSON-RPC error",
            ClientEvent::Said(
                "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32603,\"message\":\"m\"}}".into(),
            ),
            false,
        ),
    ]
}

#[test]
fn a_call_ends_as_its_fault_says_and_in_no_other_way() {
    for fault in [None].into_iter().chain(Fault::all().map(Some)) {
        for (name, ending, allowed) in endings(fault) {
            let mut steps = vec![Sent(1, fault), Sent(2, None), Pass(11)];
            steps.extend(fault.map(|fault| injected(1, fault)));
            steps.push(ending.clone());
            assert_eq!(broken(&steps).is_empty(), allowed, "{fault:?} ends with {name}");
            // Where the fault was not injected, no error is explained by it.
            let without = [Sent(1, fault), Sent(2, None), Pass(11), ending];
            let is_answer = name == "answer";
            assert_eq!(
                broken(&without).is_empty(),
                allowed && is_answer,
                "{fault:?} ends with {name}, for nothing"
            );
        }
    }
}

#[test]
fn a_call_fails_with_its_server_only_if_that_ended_meanwhile() {
    use Fault::{CrashAfter, CrashBefore, CrashDuring};
    let crash = injected(9, CrashBefore);
    let again = " (next attempt possible in 2 s)";
    let exit = format!(
        "the server exited with status 7\nlast lines of its stderr:\n  {}",
        mark::last_words(2, mark::EXIT)
    );
    let waiting = |why: &str| why.replacen("\nlast", &format!("{again}\nlast"), 1);
    for (what, steps, kept) in [
        ("in flight", vec![Sent(1, None), crash.clone(), failed_by_end(1, 1, CrashBefore, 9)], true),
        (
            "sent too late to be saved",
            vec![crash.clone(), Sent(1, None), failed_by_end(1, 1, CrashBefore, 9)],
            true,
        ),
        (
            "over another crash",
            vec![Sent(1, None), crash.clone(), failed_by_end(1, 1, CrashDuring, 9)],
            false,
        ),
        ("over another call", vec![Sent(1, None), crash.clone(), failed_by_end(1, 1, CrashBefore, 8)], false),
        ("in another life", vec![Sent(1, None), crash.clone(), failed_by_end(1, 2, CrashBefore, 9)], false),
        (
            "long over",
            vec![crash.clone(), journal("start"), Sent(1, None), failed_by_end(1, 1, CrashBefore, 9)],
            false,
        ),
        (
            "over in the life that it waited for",
            vec![
                Sent(1, None),
                crash.clone(),
                journal("start"),
                injected(8, CrashAfter),
                failed_by_end(1, 2, CrashAfter, 8),
            ],
            true,
        ),
        (
            "after it was answered",
            vec![
                Sent(1, Some(Fault::Garbage)),
                injected(1, Fault::Garbage),
                crash.clone(),
                failed_by_end(1, 1, CrashBefore, 9),
            ],
            false,
        ),
        (
            "before it was answered",
            vec![
                Sent(1, Some(Fault::Slow)),
                injected(1, Fault::Slow),
                crash.clone(),
                failed_by_end(1, 1, CrashBefore, 9),
            ],
            true,
        ),
        ("with its input", vec![Sent(1, None), crash.clone(), failed(1, "the connection is closed")], true),
        ("with no input", vec![Sent(1, None), failed(1, "the connection is closed")], false),
        (
            "with an input of long ago",
            vec![crash.clone(), journal("start"), Sent(1, None), failed(1, "the connection is closed")],
            false,
        ),
        (
            "after its own answer",
            vec![Sent(1, Some(CrashAfter)), injected(1, CrashAfter), failed_by_end(1, 1, CrashAfter, 1)],
            false,
        ),
        (
            "sent again",
            vec![
                Sent(1, Some(CrashBefore)),
                injected(1, CrashBefore),
                journal("start"),
                injected(1, CrashBefore),
                failed_by_end(1, 2, CrashBefore, 1),
            ],
            false,
        ),
        (
            "a bad start",
            vec![crash.clone(), Sent(1, None), journal("start exit"), not_running(1, &exit)],
            true,
        ),
        ("a good start", vec![crash.clone(), Sent(1, None), journal("start"), not_running(1, &exit)], false),
        (
            "a pause",
            vec![crash.clone(), journal("start exit"), Sent(1, None), not_running(1, &waiting(&exit))],
            true,
        ),
        (
            "a pause without end",
            vec![
                crash.clone(),
                journal("start exit"),
                Pass(61),
                Sent(1, None),
                not_running(1, &waiting(&exit)),
            ],
            false,
        ),
        (
            "a pause that is over",
            vec![journal("start exit"), journal("start"), Sent(1, None), not_running(1, &waiting(&exit))],
            false,
        ),
        (
            "a timeout in time",
            vec![
                Sent(1, Some(Fault::Hang)),
                injected(1, Fault::Hang),
                Pass(9),
                failed(1, "timeout: the longest time for a call is over"),
            ],
            false,
        ),
    ] {
        assert_eq!(broken(&steps).is_empty(), kept, "{what}");
    }
}

#[test]
fn every_call_is_answered_once_and_not_after_its_cancellation() {
    use Promise::{AfterCancellation, Duplicated, Lost, Misrouted, Stray};
    let text = |text: &str| ClientEvent::Said(text.to_owned());
    for (what, steps, expected) in [
        ("in any order", vec![Sent(1, None), Sent(2, None), answered(2), answered(1)], vec![]),
        (
            "swapped",
            vec![
                Sent(1, None),
                Sent(2, None),
                said(2, &mark::result(&call(1, None).mark, None)),
                said(1, &mark::result(&call(2, None).mark, None)),
            ],
            vec![Misrouted, Misrouted],
        ),
        ("missing", vec![Sent(1, None), Over(1)], vec![Lost]),
        ("twice", vec![Sent(1, None), answered(1), answered(1)], vec![Duplicated]),
        ("unasked", vec![answered(1)], vec![Duplicated]),
        ("cancelled", vec![Sent(1, None), Cancelled(1, 1), pong(1)], vec![]),
        ("cancelled for good", vec![Sent(1, None), Cancelled(1, 1), Over(1)], vec![]),
        ("crossed", vec![Sent(1, None), Cancelled(1, 1), answered(1), pong(1)], vec![]),
        (
            "answered in spite of it",
            vec![Sent(1, None), Cancelled(1, 1), pong(1), answered(1)],
            vec![AfterCancellation],
        ),
        (
            "cancelled later",
            vec![Sent(1, None), Sent(2, None), Cancelled(1, 1), Cancelled(2, 2), pong(1), answered(2)],
            vec![],
        ),
        ("no message", vec![text("{}")], vec![Misrouted]),
        ("no JSON", vec![text("{")], vec![Misrouted]),
        ("a question", vec![text(r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#)], vec![Stray]),
        (
            "a log message",
            vec![text(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#)],
            vec![Stray],
        ),
        (
            "a changed list",
            vec![text(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#)],
            vec![],
        ),
        ("a journal that is none", vec![journal("nonsense")], vec![Stray]),
    ] {
        assert_eq!(broken(&steps), expected, "{what}");
    }
}

#[test]
fn progress_is_the_calls_own_and_complete() {
    use Promise::Stray;
    for (what, steps, expected) in [
        ("all of it", vec![Asked(1, 2), progress(1, 1, 2), progress(1, 2, 2), answered(1)], vec![]),
        ("too little", vec![Asked(1, 2), progress(1, 1, 2), answered(1)], vec![Stray]),
        ("too much", vec![Asked(1, 1), progress(1, 1, 1), progress(1, 1, 1)], vec![Stray]),
        ("out of turn", vec![Asked(1, 2), progress(1, 2, 2)], vec![Stray]),
        ("unasked", vec![Sent(1, None), progress(1, 1, 1)], vec![Stray]),
        (
            "after the answer",
            vec![Asked(1, 1), progress(1, 1, 1), answered(1), progress(1, 1, 1)],
            vec![Stray],
        ),
        ("of nobody", vec![progress(1, 1, 1)], vec![Stray]),
        (
            "until the end",
            vec![
                Asked(1, 3),
                progress(1, 1, 3),
                injected(9, Fault::CrashBefore),
                failed_by_end(1, 1, Fault::CrashBefore, 9),
            ],
            vec![],
        ),
        (
            "of one that never ran",
            vec![
                Asked(1, 3),
                progress(1, 1, 3),
                injected(9, Fault::CrashBefore),
                not_running(1, &end(1, Fault::CrashBefore, 9)),
            ],
            vec![Promise::Unexplained],
        ),
    ] {
        assert_eq!(broken(&steps), expected, "{what}");
    }
    let other = mark::progress("1", &call(2, None).mark, 1, 1);
    let other = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{other}}}");
    assert_eq!(
        broken(&[Asked(1, 1), Sent(2, None), ClientEvent::Said(other)]),
        [Stray],
        "with the mark of another"
    );
}

/// A modern result of a call, with this version of the gateway.
fn modern(n: u32, version: u32) -> ClientEvent {
    let own = mark::result(&call(n, None).mark, None);
    let info = format!("{{\"name\":\"gateway\",\"version\":\"{version}\"}}");
    let added = format!(",\"io.modelcontextprotocol/serverInfo\":{info}}},\"resultType\":\"complete\"}}");
    said(n, &format!("{}{added}", own.strip_suffix("}}").unwrap()))
}

#[test]
fn no_byte_can_be_another() {
    let large = Some(Fault::Large);
    let before = [Modern(7), modern(7, 1)];
    for (mut steps, said) in [
        (vec![Sent(1, None)], answered(1)),
        (vec![Sent(1, large), injected(1, Fault::Large)], said(1, &mark::result(&call(1, None).mark, large))),
        ([&before[..], &[Modern(1)]].concat(), modern(1, 1)),
        (vec![Asked(1, 1)], progress(1, 1, 1)),
        (vec![Sent(1, None), injected(9, Fault::CrashBefore)], failed_by_end(1, 1, Fault::CrashBefore, 9)),
        (
            vec![Sent(1, Some(Fault::Refused)), injected(1, Fault::Refused)],
            failed_with(1, &mark::refusal(&call(1, None).mark)),
        ),
    ] {
        let ClientEvent::Said(text) = &said else { unreachable!("it is said") };
        let text = text.clone();
        steps.push(said);
        assert_eq!(broken(&steps), [], "{text:.200}");
        // Of a large answer not every one, or it would take too long.
        for at in (0..text.len()).step_by(1 + text.len() / 2000) {
            let mut altered = text.clone().into_bytes();
            altered[at] ^= 1;
            steps.pop();
            steps.push(ClientEvent::Said(String::from_utf8(altered).expect("ASCII")));
            assert_eq!(broken(&steps).len(), 1, "byte {at} of {text:.200}");
        }
    }
}
