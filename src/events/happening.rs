//! What happens, as typed values: one for each line of the journal.
//!
//! The hub makes them of what the gateway tells it; the journal writes them, `log`, `stats` and the console read
//! them, from the journal's files or as they happen.
//!
//! Invariant: a happening holds no secret of the configuration; the hub replaces them before it makes one.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::config::locate::FaceKind;
use crate::json::{Node, Scanner, write_string};
use crate::protocol::message::write_number;
use crate::text::date;

/// Milliseconds since 1970.
pub type Millis = u64;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub struct Happening {
    /// When it began.
    pub time: Millis,
    /// The product surface of the gateway.
    pub face: FaceKind,
    /// The gateway's process.
    pub pid: u32,
    /// What happened.
    pub fact: Fact,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// A tool call, resource read or prompt get was answered.
    Call(AnsweredCall),
    /// `open_toolbox` was answered.
    Open(AnsweredOpen),
    /// An upstream is ready.
    Start(ServerStart),
    /// An upstream did not start.
    Fail(ServerFailure),
    /// An upstream ended because we wanted it to.
    End(ServerEnd),
    /// An upstream ended by itself.
    Crash(ServerEnd),
    /// The configuration was read again.
    Reload(Reread),
}

/// The client behind a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// What the client calls itself.
    pub client: Box<str>,
    /// What stands for the session's id, which nobody may learn: the first digits of its digest.
    pub session: Arc<str>,
    /// The name of the client's token.
    pub token: Option<Box<str>>,
}

/// Where an upstream stands in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerPath {
    /// The toolbox; for toolman the namespace.
    pub group: Arc<str>,
    /// The server in the toolbox; empty for toolman.
    pub server: Arc<str>,
}

/// What a call asked an upstream for, by the upstream's own name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A tool.
    Tool(Box<str>),
    /// A resource, by its URI.
    Resource(Box<str>),
    /// A prompt.
    Prompt(Box<str>),
}

/// An answered tool call, resource read or prompt get.
#[derive(Debug, Clone, PartialEq)]
pub struct AnsweredCall {
    /// The client.
    pub who: Arc<Who>,
    /// The upstream.
    pub server: ServerPath,
    /// What it was asked for.
    pub subject: Subject,
    /// How long it took, in milliseconds.
    pub ms: f64,
    /// How it ended.
    pub outcome: CallOutcome,
    /// Why it failed.
    pub error: Option<ErrorType>,
    /// The length of the request's parameters.
    pub bytes_in: u64,
    /// The length of the upstream's result or error.
    pub bytes_out: u64,
    /// The arguments, or the list of their names, as JSON; `None` if the configuration does not keep them.
    pub arguments: Option<Box<str>>,
    /// The result as JSON; `None` if the configuration does not keep it.
    pub result: Option<Box<str>>,
}

/// An answered `open_toolbox`.
#[derive(Debug, Clone, PartialEq)]
pub struct AnsweredOpen {
    /// The client.
    pub who: Arc<Who>,
    /// The toolbox.
    pub group: Arc<str>,
    /// How long it took, in milliseconds.
    pub ms: f64,
    /// How it ended.
    pub outcome: CallOutcome,
}

/// An upstream that is ready.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerStart {
    /// The upstream.
    pub server: ServerPath,
    /// Its process, if it has one.
    pub pid: Option<u32>,
    /// How long it took, in milliseconds.
    pub ms: f64,
    /// How many tools it offers.
    pub tools: u64,
}

/// An upstream that did not start.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerFailure {
    /// The upstream.
    pub server: ServerPath,
    /// Its process, if it had one.
    pub pid: Option<u32>,
    /// How long it took, in milliseconds.
    pub ms: f64,
    /// Why.
    pub reason: Box<str>,
}

/// An upstream that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerEnd {
    /// The upstream.
    pub server: ServerPath,
    /// Its process, if it had one.
    pub pid: Option<u32>,
    /// The exit status of its process, if that is known.
    pub status: Option<i64>,
    /// Why.
    pub reason: Box<str>,
}

/// A configuration that was read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reread {
    /// Whether it is in force now.
    pub ok: bool,
    /// How many problems and warnings it has.
    pub problems: u64,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// With a result.
    Ok,
    /// The upstream answered `isError`.
    ToolError,
    /// The upstream answered with an error, ran into a deadline or could not be reached.
    Error,
    /// The client cancelled it.
    Cancelled,
    /// The upstream ended during the call.
    Lost,
}

/// Why a request failed, as the conventions for telemetry name it (`error.type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorType {
    /// A JSON-RPC error of this code.
    Code(i64),
    /// A result with `isError`.
    ToolError,
    /// The deadline.
    Timeout,
    /// The client.
    Cancelled,
    /// The upstream ended, or the connection to it broke.
    ConnectionLost,
    /// The upstream did not start or does not take requests.
    Unavailable,
}

impl CallOutcome {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Ok, Self::ToolError, Self::Error, Self::Cancelled, Self::Lost];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }

    /// The outcome of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == name)
    }

    /// Whether something went wrong. What the client cancelled did not.
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Ok | Self::Cancelled)
    }

    /// The outcome of a call that failed for this reason, if for any.
    pub fn of(error: Option<ErrorType>) -> Self {
        match error {
            None => Self::Ok,
            Some(ErrorType::ToolError) => Self::ToolError,
            Some(ErrorType::Cancelled) => Self::Cancelled,
            Some(ErrorType::ConnectionLost) => Self::Lost,
            Some(ErrorType::Code(_) | ErrorType::Timeout | ErrorType::Unavailable) => Self::Error,
        }
    }
}

impl fmt::Display for ErrorType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(out, "{code}"),
            Self::ToolError => out.write_str("tool_error"),
            Self::Timeout => out.write_str("timeout"),
            Self::Cancelled => out.write_str("cancelled"),
            Self::ConnectionLost => out.write_str("connection_lost"),
            Self::Unavailable => out.write_str("unavailable"),
        }
    }
}

impl ErrorType {
    fn named(name: &str) -> Option<Self> {
        let words =
            [Self::ToolError, Self::Timeout, Self::Cancelled, Self::ConnectionLost, Self::Unavailable];
        let word = words.into_iter().find(|word| word.to_string() == name);
        word.or_else(|| name.parse().ok().map(Self::Code))
    }
}

impl Subject {
    /// The upstream's name for it.
    pub fn name(&self) -> &str {
        match self {
            Self::Tool(name) | Self::Resource(name) | Self::Prompt(name) => name,
        }
    }
}

impl fmt::Display for ServerPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.server {
            "" => out.write_str(&self.group),
            server => write!(out, "{}/{server}", self.group),
        }
    }
}

/// A key with the comma before it.
macro_rules! key {
    ($name:literal) => {
        concat!(",\"", $name, "\":")
    };
}

impl Happening {
    /// The journal's word for what happened.
    pub fn kind(&self) -> &'static str {
        match &self.fact {
            Fact::Call(call) => match call.subject {
                Subject::Tool(_) => "call",
                Subject::Resource(_) => "read",
                Subject::Prompt(_) => "get",
            },
            Fact::Open(_) => "open",
            Fact::Start(_) => "start",
            Fact::Fail(_) => "fail",
            Fact::End(_) => "end",
            Fact::Crash(_) => "crash",
            Fact::Reload(_) => "reload",
        }
    }

    /// The upstream that it happened to.
    pub fn server(&self) -> Option<&ServerPath> {
        match &self.fact {
            Fact::Call(call) => Some(&call.server),
            Fact::Start(start) => Some(&start.server),
            Fact::Fail(failure) => Some(&failure.server),
            Fact::End(end) | Fact::Crash(end) => Some(&end.server),
            Fact::Open(_) | Fact::Reload(_) => None,
        }
    }

    /// How it ended, if it is the answer to a client.
    pub fn outcome(&self) -> Option<CallOutcome> {
        match &self.fact {
            Fact::Call(call) => Some(call.outcome),
            Fact::Open(open) => Some(open.outcome),
            _ => None,
        }
    }

    /// Appends the line in the journal, without its end.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut line = LineWriter { out, face: self.face };
        line.out.extend_from_slice(b"{\"time\":\"");
        date::write_millis(line.out, self.time);
        line.out.extend_from_slice(b"\",\"kind\":\"");
        line.out.extend_from_slice(self.kind().as_bytes());
        line.out.extend_from_slice(b"\",\"face\":\"");
        line.out.extend_from_slice(face_name(self.face).as_bytes());
        line.out.push(b'"');
        line.number(key!("pid"), self.pid.into());
        match &self.fact {
            Fact::Call(call) => line.call(call),
            Fact::Open(open) => {
                line.who(&open.who);
                line.text(line.group_key(), &open.group);
                line.ms(open.ms);
                line.word(key!("outcome"), open.outcome.as_str());
            }
            Fact::Start(start) => {
                line.server(&start.server, start.pid);
                line.ms(start.ms);
                line.number(key!("tools"), start.tools);
            }
            Fact::Fail(failure) => {
                line.server(&failure.server, failure.pid);
                line.ms(failure.ms);
                line.text(key!("reason"), &failure.reason);
            }
            Fact::End(end) | Fact::Crash(end) => {
                line.server(&end.server, end.pid);
                if let Some(status) = end.status {
                    line.raw(key!("status"), &status.to_string());
                }
                line.text(key!("reason"), &end.reason);
            }
            Fact::Reload(reload) => {
                line.raw(key!("ok"), if reload.ok { "true" } else { "false" });
                line.number(key!("problems"), reload.problems);
            }
        }
        line.out.push(b'}');
    }

    /// Reads a line of the journal: its time, and what happened unless this build does not know the kind. `None`
    /// for a text that is no line of ours.
    pub fn read(line: &str) -> Option<(Millis, Option<Self>)> {
        let mut scanner = Scanner::default();
        let fields = Fields(scanner.scan_str(line).ok()?.root());
        let time = date::millis(&fields.text("time")?)?;
        let kind = fields.text("kind")?;
        let face = match &*fields.text("face")? {
            "workbench" => FaceKind::Workbench,
            "toolman" => FaceKind::Toolman,
            _ => return Some((time, None)),
        };
        let pid = u32::try_from(fields.number("pid")?).ok()?;
        let fact = fields.fact(&kind);
        Some((time, fact.map(|fact| Self { time, face, pid, fact })))
    }
}

/// The name of a face in the journal.
pub fn face_name(face: FaceKind) -> &'static str {
    match face {
        FaceKind::Workbench => "workbench",
        FaceKind::Toolman => "toolman",
    }
}

/// Appends microseconds as milliseconds with three decimals at most.
pub fn write_ms(out: &mut Vec<u8>, micros: u64) {
    write_number(out, micros / 1000);
    let rest = micros % 1000;
    if rest > 0 {
        let digits = [rest / 100, rest / 10 % 10, rest % 10].map(|digit| b'0' + digit as u8);
        let kept = digits.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
        out.push(b'.');
        out.extend_from_slice(&digits[..kept]);
    }
}

/// Writes the members of a line, each after a comma.
struct LineWriter<'a> {
    out: &'a mut Vec<u8>,
    face: FaceKind,
}

impl LineWriter<'_> {
    fn group_key(&self) -> &'static str {
        match self.face {
            FaceKind::Workbench => key!("toolbox"),
            FaceKind::Toolman => key!("namespace"),
        }
    }

    /// A key as `key!` makes it.
    fn key(&mut self, key: &'static str) {
        self.out.extend_from_slice(key.as_bytes());
    }

    /// A text in which nothing has to be escaped.
    fn word(&mut self, key: &'static str, word: &str) {
        self.key(key);
        self.out.push(b'"');
        self.out.extend_from_slice(word.as_bytes());
        self.out.push(b'"');
    }

    fn text(&mut self, key: &'static str, text: &str) {
        self.key(key);
        write_string(self.out, text);
    }

    fn number(&mut self, key: &'static str, number: u64) {
        self.key(key);
        write_number(self.out, number);
    }

    fn raw(&mut self, key: &'static str, json: &str) {
        self.key(key);
        self.out.extend_from_slice(json.as_bytes());
    }

    fn ms(&mut self, ms: f64) {
        self.key(key!("ms"));
        write_ms(self.out, (ms * 1000.0).round() as u64);
    }

    fn who(&mut self, who: &Who) {
        self.text(key!("client"), &who.client);
        self.word(key!("session"), &who.session);
        if let Some(token) = &who.token {
            self.text(key!("token"), token);
        }
    }

    fn path(&mut self, server: &ServerPath) {
        self.text(self.group_key(), &server.group);
        if self.face == FaceKind::Workbench {
            self.text(key!("server"), &server.server);
        }
    }

    fn server(&mut self, server: &ServerPath, pid: Option<u32>) {
        self.path(server);
        if let Some(pid) = pid {
            self.number(key!("serverPid"), pid.into());
        }
    }

    fn call(&mut self, call: &AnsweredCall) {
        self.who(&call.who);
        self.path(&call.server);
        let key = match call.subject {
            Subject::Tool(_) => key!("tool"),
            Subject::Resource(_) => key!("uri"),
            Subject::Prompt(_) => key!("prompt"),
        };
        self.text(key, call.subject.name());
        self.ms(call.ms);
        self.word(key!("outcome"), call.outcome.as_str());
        if let Some(error) = call.error {
            self.word(key!("error"), &error.to_string());
        }
        self.number(key!("bytesIn"), call.bytes_in);
        self.number(key!("bytesOut"), call.bytes_out);
        if let Some(arguments) = &call.arguments {
            self.raw(key!("arguments"), arguments);
        }
        if let Some(result) = &call.result {
            self.raw(key!("result"), result);
        }
    }
}

/// Reads the members of a line.
struct Fields<'a>(Node<'a>);

impl<'a> Fields<'a> {
    fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        self.0.get(key)?.as_str()
    }

    fn boxed(&self, key: &str) -> Option<Box<str>> {
        self.text(key).map(|text| text.into())
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.0.get(key)?.raw().parse().ok()
    }

    fn ms(&self) -> Option<f64> {
        self.0.get("ms")?.raw().parse().ok()
    }

    fn raw(&self, key: &str) -> Option<Box<str>> {
        self.0.get(key).map(|node| node.raw().into())
    }

    fn group(&self) -> Option<Arc<str>> {
        self.text("toolbox").or_else(|| self.text("namespace")).map(|group| group.into())
    }

    fn server(&self) -> Option<ServerPath> {
        Some(ServerPath { group: self.group()?, server: self.text("server").unwrap_or_default().into() })
    }

    fn pid(&self) -> Option<u32> {
        self.number("serverPid").and_then(|pid| u32::try_from(pid).ok())
    }

    fn who(&self) -> Option<Arc<Who>> {
        let (client, session) = (self.boxed("client")?, self.text("session")?.into());
        Some(Arc::new(Who { client, session, token: self.boxed("token") }))
    }

    fn outcome(&self) -> Option<CallOutcome> {
        CallOutcome::named(&self.text("outcome")?)
    }

    fn end(&self) -> Option<ServerEnd> {
        let status = self.0.get("status").and_then(|status| status.raw().parse().ok());
        Some(ServerEnd { server: self.server()?, pid: self.pid(), status, reason: self.boxed("reason")? })
    }

    fn fact(&self, kind: &str) -> Option<Fact> {
        Some(match kind {
            "call" => Fact::Call(self.call(Subject::Tool(self.boxed("tool")?))?),
            "read" => Fact::Call(self.call(Subject::Resource(self.boxed("uri")?))?),
            "get" => Fact::Call(self.call(Subject::Prompt(self.boxed("prompt")?))?),
            "open" => Fact::Open(AnsweredOpen {
                who: self.who()?,
                group: self.group()?,
                ms: self.ms()?,
                outcome: self.outcome()?,
            }),
            "start" => Fact::Start(ServerStart {
                server: self.server()?,
                pid: self.pid(),
                ms: self.ms()?,
                tools: self.number("tools")?,
            }),
            "fail" => Fact::Fail(ServerFailure {
                server: self.server()?,
                pid: self.pid(),
                ms: self.ms()?,
                reason: self.boxed("reason")?,
            }),
            "end" => Fact::End(self.end()?),
            "crash" => Fact::Crash(self.end()?),
            "reload" => Fact::Reload(Reread {
                ok: self.0.get("ok")?.raw() == "true",
                problems: self.number("problems")?,
            }),
            _ => return None,
        })
    }

    fn call(&self, subject: Subject) -> Option<AnsweredCall> {
        Some(AnsweredCall {
            who: self.who()?,
            server: self.server()?,
            subject,
            ms: self.ms()?,
            outcome: self.outcome()?,
            error: self.text("error").and_then(|error| ErrorType::named(&error)),
            bytes_in: self.number("bytesIn")?,
            bytes_out: self.number("bytesOut")?,
            arguments: self.raw("arguments"),
            result: self.raw("result"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(group: &str, server: &str) -> ServerPath {
        ServerPath { group: group.into(), server: server.into() }
    }

    fn who(token: Option<&str>) -> Arc<Who> {
        let token = token.map(Into::into);
        Arc::new(Who { client: "claude \"code\"".into(), session: "0123456789abcdef".into(), token })
    }

    fn call(subject: Subject, error: Option<ErrorType>, token: Option<&str>) -> Fact {
        Fact::Call(AnsweredCall {
            who: who(token),
            server: path("dev", "fs"),
            subject,
            ms: 12.34,
            outcome: CallOutcome::of(error),
            error,
            bytes_in: 17,
            bytes_out: 90,
            arguments: None,
            result: None,
        })
    }

    #[test]
    fn lines_are_written_and_read() {
        let read_file = || Subject::Tool("read_file".into());
        let start = |server| ServerStart { server, pid: Some(9), ms: 0.0, tools: 3 };
        let reason = || "the server exited with status 1".into();
        let end = |status| ServerEnd { server: path("dev", "fs"), pid: Some(9), status, reason: reason() };
        let by = r#""client":"claude \"code\"","session":"0123456789abcdef""#;
        let cases = [
            (FaceKind::Workbench, call(read_file(), None, None), format!(r#"call,{by},"toolbox":"dev","server":"fs","tool":"read_file","ms":12.34,"outcome":"ok","bytesIn":17,"bytesOut":90"#)),
            (FaceKind::Workbench, call(Subject::Resource("a://b".into()), Some(ErrorType::Code(-32602)), Some("ci")), format!(r#"read,{by},"token":"ci","toolbox":"dev","server":"fs","uri":"a://b","ms":12.34,"outcome":"error","error":"-32602","bytesIn":17,"bytesOut":90"#)),
            (FaceKind::Workbench, call(Subject::Prompt("p".into()), Some(ErrorType::ToolError), None), format!(r#"get,{by},"toolbox":"dev","server":"fs","prompt":"p","ms":12.34,"outcome":"tool_error","error":"tool_error","bytesIn":17,"bytesOut":90"#)),
            (FaceKind::Workbench, Fact::Open(AnsweredOpen { who: who(None), group: "dev".into(), ms: 1.0, outcome: CallOutcome::Ok }), format!(r#"open,{by},"toolbox":"dev","ms":1,"outcome":"ok""#)),
            (FaceKind::Workbench, Fact::Start(start(path("dev", "fs"))), r#"start,"toolbox":"dev","server":"fs","serverPid":9,"ms":0,"tools":3"#.to_owned()),
            (FaceKind::Toolman, Fact::Start(start(path("fs", ""))), r#"start,"namespace":"fs","serverPid":9,"ms":0,"tools":3"#.to_owned()),
            (FaceKind::Workbench, Fact::Fail(ServerFailure { server: path("dev", "fs"), pid: None, ms: 0.005, reason: reason() }), r#"fail,"toolbox":"dev","server":"fs","ms":0.005,"reason":"the server exited with status 1""#.to_owned()),
            (FaceKind::Workbench, Fact::End(end(None)), r#"end,"toolbox":"dev","server":"fs","serverPid":9,"reason":"the server exited with status 1""#.to_owned()),
            (FaceKind::Workbench, Fact::Crash(end(Some(1))), r#"crash,"toolbox":"dev","server":"fs","serverPid":9,"status":1,"reason":"the server exited with status 1""#.to_owned()),
            (FaceKind::Workbench, Fact::Reload(Reread { ok: false, problems: 2 }), r#"reload,"ok":false,"problems":2"#.to_owned()),
        ];
        for (face, fact, expected) in cases {
            let happening = Happening { time: 1_794_823_537_123, face, pid: 7, fact };
            let (kind, fields) = expected.split_once(',').expect("a kind and fields");
            let face = face_name(face);
            let line = format!(
                r#"{{"time":"2026-11-16T10:05:37.123Z","kind":"{kind}","face":"{face}","pid":7,{fields}}}"#
            );
            let mut written = Vec::new();
            happening.write(&mut written);
            assert_eq!(String::from_utf8(written).expect("UTF-8"), line);
            assert_eq!(Happening::read(&line), Some((happening.time, Some(happening))), "{line}");
        }
    }

    #[test]
    fn readers_ignore_what_they_do_not_know() {
        let head = r#""time":"2026-11-16T10:05:37.123Z","face":"workbench","pid":7"#;
        let time = 1_794_823_537_123;
        for (line, expected) in [
            (format!(r#"{{{head},"kind":"dream","depth":3}}"#), Some((time, None))),
            (
                format!(r#"{{{head},"kind":"reload","ok":true,"problems":0,"later":[]}}"#),
                Some((time, Some("reload"))),
            ),
            (format!(r#"{{{head},"kind":"reload"}}"#), Some((time, None))),
            (format!(r#"{{{head}}}"#), None),
            ("{\"time\":\"2026-11".to_owned(), None),
            (String::new(), None),
            ("[1]".to_owned(), None),
        ] {
            let read = Happening::read(&line);
            let read = read.as_ref().map(|(time, it)| (*time, it.as_ref().map(Happening::kind)));
            assert_eq!(read, expected, "{line}");
        }
    }

    #[test]
    fn outcomes_and_errors_have_their_names() {
        for (error, word, outcome) in [
            (ErrorType::Code(-32000), "-32000", CallOutcome::Error),
            (ErrorType::ToolError, "tool_error", CallOutcome::ToolError),
            (ErrorType::Timeout, "timeout", CallOutcome::Error),
            (ErrorType::Cancelled, "cancelled", CallOutcome::Cancelled),
            (ErrorType::ConnectionLost, "connection_lost", CallOutcome::Lost),
            (ErrorType::Unavailable, "unavailable", CallOutcome::Error),
        ] {
            assert_eq!((error.to_string().as_str(), ErrorType::named(word)), (word, Some(error)));
            assert_eq!(CallOutcome::of(Some(error)), outcome);
        }
        let failures = CallOutcome::ALL.map(CallOutcome::is_failure);
        assert_eq!(failures, [false, true, true, false, true]);
    }
}
