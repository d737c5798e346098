//! A call between the eras as a state machine: the events, and the effects of each. [`super::Call`] carries
//! the effects out.
//!
//! ```text
//!            ┌───────────── brought ──────────────┐
//!            ▼                                    │
//! launch ─▶ Sent ── asks (legacy client) ──▶ Asking ── refused, or asked too often ──┐
//!            │ ▲                                                                     │
//!   question │ │ returned with all answers                                           │
//!            ▼ │                                                                     ▼
//!          Parked ── expired ────────────────────────────────────────────────────▶ Done
//!                                                                                    ▲
//!           Sent ── answered; or asks, or refuses for a page to visit (modern client)┘
//! ```
//!
//! Invariant: this module is pure. It sends nothing, locks nothing and waits for nothing.
//!
//! Invariant: the machine holds the right to answer the client while the call is `Sent` or `Asking`, and the
//! right leaves with exactly one effect. An upstream's answer that arrives while the call is `Parked` is kept
//! until the client returns.

use std::mem;

use crate::json::{Node, Scanner, quote};
use crate::protocol::message::{Id, code};
use crate::transport::peer::{Answer, Lost};

/// The number of times that an upstream may ask for more before the call fails.
const MOST_ROUNDS: u32 = 10;

const TOO_LATE: &str = "the client did not answer in time";
const OVER: &str = "the call is over";

/// The state of a call and its history. `R` is the right to answer its client.
pub(super) struct CallMachine<R> {
    client_is_modern: bool,
    state: CallState<R>,
    /// The number of questions that a legacy upstream has asked so far.
    asked: usize,
    /// The number of times that a modern upstream has asked for more.
    rounds: u32,
    crowded: bool,
}

enum CallState<R> {
    /// The upstream is working on the call.
    Sent(R),
    /// A modern upstream has asked for more, and the legacy client is being asked for it.
    Asking(R),
    /// A legacy upstream has asked something, and the modern client was told what to bring.
    Parked { questions: Vec<Question>, early: Option<Early> },
    /// The client has its answer, or will never get one.
    Done,
}

/// A question that waits for a modern client.
struct Question {
    /// The client's name for the question.
    name: String,
    /// The upstream's id of the question.
    id: Id,
    /// The method and parameters as raw JSON.
    request: String,
}

/// An event in the life of a call.
pub(super) enum Event<'a, R> {
    /// The upstream has answered, or never will.
    Answered(Answer<'a>),
    /// A legacy upstream asks a modern client. `crowded` means that several calls were in flight, so the
    /// question may belong to another one.
    Asked { id: Id, request: String, crowded: bool },
    /// The modern client is back with all or some of the answers, and has the call's turn.
    Returned { responses: Node<'a>, right: R },
    /// The modern client did not come back in time.
    Expired,
    /// The legacy client has answered every question. These are the parameters for sending the call again.
    Brought(String),
    /// The legacy client did not answer.
    Refused(Lost),
}

/// What to do, in this order.
pub(super) struct Effects<'a, R> {
    /// The answers to the upstream's questions, or the reasons why there are none.
    pub(super) answers: Vec<(Id, Result<Node<'a>, &'static str>)>,
    pub(super) next: Next<'a, R>,
}

/// The last thing to do.
pub(super) enum Next<'a, R> {
    Nothing,
    /// Answer the client with the upstream's answer.
    Deliver(R, Answer<'a>),
    /// Tell the client that the call has failed.
    Fail(R, Lost),
    /// Pass a modern upstream's questions on to the modern client, which calls again.
    HandOn(R, Node<'a>),
    /// Tell the modern client to send its user to the pages that this error names, and to call again.
    VisitFirst(R, Node<'a>),
    /// Ask the legacy client what this result asks for.
    AskClient(Node<'a>),
    /// Tell the modern client what to bring, as the members of an object.
    TellClient(R, String),
    /// Send the call again with these parameters.
    SendAgain(String),
    /// Handle an answer that came early.
    Replay(Early),
    /// Cancel the call at the upstream, for this reason.
    Cancel(&'static str),
}

/// An answer that came while the client was away.
pub(super) enum Early {
    Result(String),
    Error(String),
    Lost(Lost),
}

impl<R> CallMachine<R> {
    /// A call that is about to be sent.
    pub(super) fn new(client_is_modern: bool, right: R) -> Self {
        Self { client_is_modern, state: CallState::Sent(right), asked: 0, rounds: 0, crowded: false }
    }

    /// The right to answer, while the machine holds it.
    pub(super) fn right(&self) -> Option<&R> {
        match &self.state {
            CallState::Sent(right) | CallState::Asking(right) => Some(right),
            CallState::Parked { .. } | CallState::Done => None,
        }
    }

    /// Whether one of the call's questions waits for the modern client.
    pub(super) fn is_parked(&self) -> bool {
        matches!(self.state, CallState::Parked { .. })
    }

    /// Whether the upstream waits for the modern client.
    pub(super) fn awaits_client(&self) -> bool {
        matches!(self.state, CallState::Parked { early: None, .. })
    }

    /// Whether one of the call's questions may have belonged to another call.
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Takes an event and returns its effects.
    pub(super) fn on<'a>(&mut self, event: Event<'a, R>) -> Effects<'a, R> {
        let mut answers = Vec::new();
        let (state, next) = match (mem::replace(&mut self.state, CallState::Done), event) {
            (CallState::Sent(right), Event::Answered(answer)) => self.answered(right, answer),
            (CallState::Parked { questions, .. }, Event::Answered(answer)) => {
                (CallState::Parked { questions, early: Some(Early::from(answer)) }, Next::Nothing)
            }
            (CallState::Sent(right), Event::Asked { id, request, crowded }) => {
                let questions = vec![self.question(id, request, crowded)];
                let requests = members(&questions);
                (CallState::Parked { questions, early: None }, Next::TellClient(right, requests))
            }
            // The client is away and will be told about this question when it returns.
            (CallState::Parked { mut questions, early }, Event::Asked { id, request, crowded }) => {
                questions.push(self.question(id, request, crowded));
                (CallState::Parked { questions, early }, Next::Nothing)
            }
            (CallState::Parked { questions, early }, Event::Returned { responses, right }) => {
                let mut open = Vec::new();
                for question in questions {
                    match responses.get(&question.name) {
                        Some(response) => answers.push((question.id, Ok(response))),
                        None => open.push(question),
                    }
                }
                match early {
                    Some(early) => (CallState::Sent(right), Next::Replay(early)),
                    None if open.is_empty() => (CallState::Sent(right), Next::Nothing),
                    None => {
                        let requests = members(&open);
                        let parked = CallState::Parked { questions: open, early: None };
                        (parked, Next::TellClient(right, requests))
                    }
                }
            }
            (CallState::Parked { questions, .. }, Event::Expired) => {
                answers.extend(questions.into_iter().map(|question| (question.id, Err(TOO_LATE))));
                (CallState::Done, Next::Cancel(TOO_LATE))
            }
            (CallState::Asking(right), Event::Brought(params)) => {
                (CallState::Sent(right), Next::SendAgain(params))
            }
            (CallState::Asking(right), Event::Refused(lost)) => (CallState::Done, Next::Fail(right, lost)),
            // Late and misplaced events: nobody waits for them any more.
            (state, Event::Asked { id, .. }) => {
                answers.push((id, Err(OVER)));
                (state, Next::Nothing)
            }
            (state, Event::Returned { right, .. }) => (state, Next::Fail(right, Lost::new(OVER))),
            (state, _) => (state, Next::Nothing),
        };
        self.state = state;
        Effects { answers, next }
    }

    fn answered<'a>(&mut self, right: R, answer: Answer<'a>) -> (CallState<R>, Next<'a, R>) {
        let next = match answer {
            Answer::Result(result) if asks(result) && self.client_is_modern => Next::HandOn(right, result),
            Answer::Result(result) if asks(result) => {
                self.rounds += 1;
                if self.rounds <= MOST_ROUNDS {
                    return (CallState::Asking(right), Next::AskClient(result));
                }
                let reason = format!("the server asked for more input {MOST_ROUNDS} times");
                Next::Fail(right, Lost::new(reason))
            }
            Answer::Error(error) if names_pages(error) && self.client_is_modern => {
                Next::VisitFirst(right, error)
            }
            answer => Next::Deliver(right, answer),
        };
        (CallState::Done, next)
    }

    fn question(&mut self, id: Id, request: String, crowded: bool) -> Question {
        self.asked += 1;
        self.crowded |= crowded;
        Question { name: format!("question-{}", self.asked), id, request }
    }
}

impl From<Answer<'_>> for Early {
    fn from(answer: Answer<'_>) -> Self {
        match answer {
            Answer::Result(result) => Self::Result(result.raw().to_owned()),
            Answer::Error(error) => Self::Error(error.raw().to_owned()),
            Answer::Lost(lost) => Self::Lost(lost.clone()),
        }
    }
}

impl Early {
    /// Passes the answer on as it came.
    pub(super) fn replay(&self, take: impl FnOnce(Answer<'_>)) {
        let mut scanner = Scanner::default();
        let valid = "validated when it was read";
        match self {
            Self::Result(text) => take(Answer::Result(scanner.scan_str(text).expect(valid).root())),
            Self::Error(text) => take(Answer::Error(scanner.scan_str(text).expect(valid).root())),
            Self::Lost(lost) => take(Answer::Lost(lost)),
        }
    }
}

/// Whether an answer may be something else than the end of a call.
#[inline]
pub(super) fn interrupts(answer: &Answer<'_>) -> bool {
    match answer {
        Answer::Result(result) => asks(*result),
        Answer::Error(error) => names_pages(*error),
        Answer::Lost(_) => false,
    }
}

/// Whether a modern upstream's result asks for more.
fn asks(result: Node<'_>) -> bool {
    result.get("resultType").is_some_and(|kind| kind.is(b"\"input_required\""))
}

/// Whether a legacy upstream's error names pages that the user must visit first.
fn names_pages(error: Node<'_>) -> bool {
    error.get("code").is_some_and(|code| code.raw().parse() == Ok(code::URL_ELICITATION))
}

fn members(questions: &[Question]) -> String {
    let members: Vec<_> =
        questions.iter().map(|question| format!("{}:{}", quote(&question.name), question.request)).collect();
    members.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In these tests, a client's right to an answer is a number.
    type Machine = CallMachine<u32>;

    const RESULT: &str = r#"{"content":[]}"#;
    const ASKS: &str = r#"{"resultType":"input_required","inputRequests":{}}"#;
    const ERROR: &str = r#"{"code":-32603,"message":"m"}"#;
    const PAGES: &str = r#"{"code":-32042,"message":"m","data":{"elicitations":[]}}"#;

    /// Applies an event by its name, and describes the effects.
    fn happen(machine: &mut Machine, event: &str) -> String {
        let (mut scanner, lost) = (Scanner::default(), Lost::new("gone"));
        let (event, detail) = event.split_once(' ').unwrap_or((event, ""));
        let text = match event {
            "result" => RESULT,
            "asks" => ASKS,
            "error" => ERROR,
            "pages" => PAGES,
            "returned" => detail,
            _ => "null",
        };
        let node = scanner.scan_str(text).expect("JSON").root();
        let event = match event {
            "result" | "asks" => Event::Answered(Answer::Result(node)),
            "error" | "pages" => Event::Answered(Answer::Error(node)),
            "lost" => Event::Answered(Answer::Lost(&lost)),
            "question" => {
                let (id, request) = (Id::from_raw(detail).expect("an id"), format!("{{\"q\":{detail}}}"));
                Event::Asked { id, request, crowded: false }
            }
            "returned" => Event::Returned { responses: node, right: 2 },
            "expired" => Event::Expired,
            "brought" => Event::Brought(detail.to_owned()),
            "refused" => Event::Refused(Lost::new("no")),
            other => unreachable!("{other}"),
        };
        let effects = machine.on(event);
        let mut told: Vec<_> = effects
            .answers
            .iter()
            .map(|(id, answer)| match answer {
                Ok(answer) => format!("answer {} with {}", id.raw(), answer.raw()),
                Err(TOO_LATE) => format!("refuse {}", id.raw()),
                Err(reason) => format!("refuse {}: {reason}", id.raw()),
            })
            .collect();
        told.extend(match effects.next {
            Next::Nothing => None,
            Next::Deliver(right, Answer::Result(_)) => Some(format!("deliver result to {right}")),
            Next::Deliver(right, Answer::Error(_)) => Some(format!("deliver error to {right}")),
            Next::Deliver(right, Answer::Lost(lost)) => Some(format!("deliver loss to {right}: {lost}")),
            Next::Fail(right, lost) => Some(format!("fail {right}: {lost}")),
            Next::HandOn(right, result) => {
                assert_eq!(result.raw(), ASKS);
                Some(format!("hand on to {right}"))
            }
            Next::VisitFirst(right, error) => {
                assert_eq!(error.raw(), PAGES);
                Some(format!("visit first by {right}"))
            }
            Next::AskClient(result) => {
                assert_eq!(result.raw(), ASKS);
                Some("ask client".to_owned())
            }
            Next::TellClient(right, requests) => Some(format!("tell {right} {requests}")),
            Next::SendAgain(params) => Some(format!("send {params}")),
            Next::Replay(early) => Some(match early {
                Early::Result(text) | Early::Error(text) => format!("replay {text}"),
                Early::Lost(lost) => format!("replay loss: {lost}"),
            }),
            Next::Cancel(_) => Some("cancel".to_owned()),
        });
        told.join("; ")
    }

    fn state(machine: &Machine) -> String {
        match &machine.state {
            CallState::Sent(right) => format!("sent {right}"),
            CallState::Asking(right) => format!("asking {right}"),
            CallState::Parked { questions, early } => {
                let names: Vec<_> = questions.iter().map(|question| question.name.as_str()).collect();
                let early = if early.is_some() { " early" } else { "" };
                format!("parked {}{early}", names.join(" "))
            }
            CallState::Done => "done".to_owned(),
        }
    }

    const ONE: &str = r#"returned {"question-1":{"a":1}}"#;
    const BOTH: &str = r#"returned {"question-2":{"a":2},"question-1":{"a":1}}"#;

    #[test]
    fn every_event_in_every_state() {
        /// The earlier events, the event, the state after it, and the effects.
        type Case = (&'static [&'static str], &'static str, &'static str, &'static str);
        let modern: &[Case] = &[
            (&[], "result", "done", "deliver result to 1"),
            (&[], "error", "done", "deliver error to 1"),
            (&[], "lost", "done", "deliver loss to 1: gone"),
            (&[], "asks", "done", "hand on to 1"),
            (&[], "pages", "done", "visit first by 1"),
            (&[], "question 7", "parked question-1", r#"tell 1 "question-1":{"q":7}"#),
            (&[], "expired", "sent 1", ""),
            (&[], "brought {}", "sent 1", ""),
            (&[], "refused", "sent 1", ""),
            (&[], "returned {}", "sent 1", "fail 2: the call is over"),
            (&["question 7"], "question 8", "parked question-1 question-2", ""),
            (&["question 7"], ONE, "sent 2", r#"answer 7 with {"a":1}"#),
            (&["question 7"], "returned {}", "parked question-1", r#"tell 2 "question-1":{"q":7}"#),
            (&["question 7"], "expired", "done", "refuse 7; cancel"),
            (&["question 7"], "result", "parked question-1 early", ""),
            (&["question 7"], "brought {}", "parked question-1", ""),
            (&["question 7"], "refused", "parked question-1", ""),
            (
                &["question 7", "question 8"],
                ONE,
                "parked question-2",
                r#"answer 7 with {"a":1}; tell 2 "question-2":{"q":8}"#,
            ),
            (
                &["question 7", "question 8"],
                BOTH,
                "sent 2",
                r#"answer 7 with {"a":1}; answer 8 with {"a":2}"#,
            ),
            (&["question 7", "question 8"], "expired", "done", "refuse 7; refuse 8; cancel"),
            // The names of questions stay unique over the whole call.
            (&["question 7", ONE], "question 7", "parked question-2", r#"tell 2 "question-2":{"q":7}"#),
            (&["question 7", ONE], "result", "done", "deliver result to 2"),
            (&["question 7", "result"], ONE, "sent 2", r#"answer 7 with {"a":1}; replay {"content":[]}"#),
            (&["question 7", "error"], "returned {}", "sent 2", r#"replay {"code":-32603,"message":"m"}"#),
            (&["question 7", "lost"], "returned {}", "sent 2", "replay loss: gone"),
            (&["question 7", "result"], "question 8", "parked question-1 question-2 early", ""),
            (&["question 7", "result"], "expired", "done", "refuse 7; cancel"),
            (&["result"], "result", "done", ""),
            (&["result"], "expired", "done", ""),
            (&["result"], "question 7", "done", "refuse 7: the call is over"),
            (&["result"], "returned {}", "done", "fail 2: the call is over"),
        ];
        let legacy: &[Case] = &[
            (&[], "result", "done", "deliver result to 1"),
            (&[], "pages", "done", "deliver error to 1"),
            (&[], "asks", "asking 1", "ask client"),
            (&["asks"], "brought {}", "sent 1", "send {}"),
            (&["asks"], "refused", "done", "fail 1: no"),
            (&["asks"], "result", "asking 1", ""),
            (&["asks"], "expired", "asking 1", ""),
            (&["asks"], "question 7", "asking 1", "refuse 7: the call is over"),
            (&["asks"], "returned {}", "asking 1", "fail 2: the call is over"),
            (&["asks", "brought {}"], "asks", "asking 1", "ask client"),
            (&["asks", "brought {}"], "result", "done", "deliver result to 1"),
            (&["asks", "refused"], "brought {}", "done", ""),
            (&["asks", "refused"], "refused", "done", ""),
        ];
        for (client_is_modern, cases) in [(true, modern), (false, legacy)] {
            for (before, event, expected, effects) in cases {
                let mut machine = Machine::new(client_is_modern, 1);
                for event in *before {
                    happen(&mut machine, event);
                }
                let done = happen(&mut machine, event);
                let case = format!("{before:?}, then {event}");
                assert_eq!((state(&machine).as_str(), done.as_str()), (*expected, *effects), "{case}");
                let is_parked = expected.starts_with("parked");
                assert_eq!(machine.is_parked(), is_parked, "{case}");
                assert_eq!(machine.awaits_client(), is_parked && !expected.ends_with("early"), "{case}");
                assert_eq!(machine.right().is_some(), !is_parked && *expected != "done", "{case}");
            }
        }
    }

    #[test]
    fn an_upstream_asks_for_more_ten_times_and_no_more() {
        let mut machine = Machine::new(false, 1);
        for round in 0..MOST_ROUNDS {
            assert_eq!(happen(&mut machine, "asks"), "ask client", "{round}");
            happen(&mut machine, "brought {}");
        }
        assert_eq!(happen(&mut machine, "asks"), "fail 1: the server asked for more input 10 times");
        assert_eq!(state(&machine), "done");
    }

    #[test]
    fn one_crowded_question_is_enough() {
        let mut machine = Machine::new(true, 1);
        for (crowded, expected) in [(false, false), (true, true), (false, true)] {
            let id = Id::from_raw("7").expect("an id");
            machine.on(Event::Asked { id, request: "{}".into(), crowded });
            assert_eq!(machine.is_crowded(), expected);
        }
    }
}
