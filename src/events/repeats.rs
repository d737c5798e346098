//! Requests that are like one before, which is most of them: where they are counted is known, and so is their line in
//! the journal but for times and sizes.
//!
//! Invariant: a repeated line is, byte for byte, the line that [`Happening::write`](super::Happening::write) makes.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use memchr::memmem;

use super::exchange::{Errand, Exchange, Moment};
use super::happening::write_ms;
use super::hub::News;
use super::metrics::Places;
use crate::config::Redactor;
use crate::hash::Seeded;
use crate::protocol::message::write_number;
use crate::text::date;

/// How many requests are remembered, at most one for each place that a hash can have.
const REMEMBERED: usize = 128;

/// Something that is known of requests: of each, and so of all that are like it.
pub(super) struct Known<T>(Vec<Option<Box<(Exchange, T)>>>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Known<T> {
    /// What is known of a request like this one.
    pub(super) fn find(&self, exchange: &Exchange) -> Option<&T> {
        let (known, what) = self.0.get(place(exchange))?.as_deref()?;
        is_like(known, exchange).then_some(what)
    }

    /// Remembers what is known of a request, if others can be like it.
    pub(super) fn remember(&mut self, exchange: &Exchange, what: T) {
        if may_repeat(exchange) {
            self.0.resize_with(REMEMBERED, || None);
            self.0[place(exchange)] = Some(Box::new((exchange.clone(), what)));
        }
    }
}

/// Calls that were told before: where they are counted, and their lines where they have any.
#[derive(Default)]
pub(super) struct Repeats {
    known: Known<(Option<Places>, Option<Mould>)>,
    /// Under which circumstances they were told: who wants to know, and the secrets of the configuration.
    circumstances: (u8, Redactor),
    stamp: Stamp,
}

/// A line in three parts: from behind the time up to the milliseconds, from there to the bytes of the request, and from
/// there to the bytes of the answer. Behind these nothing is left but the end.
struct Mould([Box<[u8]>; 3]);

/// A second, and how it is written.
#[derive(Default)]
struct Stamp {
    second: u64,
    text: Vec<u8>,
}

const BEGINNING: &[u8] = b"{\"time\":\"";
const END: &[u8] = b"}\n";

impl Repeats {
    /// Forgets everything, if the circumstances are others than before.
    pub(super) fn under(&mut self, wanted: u8, secrets: &Redactor) {
        if self.circumstances.0 != wanted || !self.circumstances.1.is_same(secrets) {
            self.known = Known::default();
            self.circumstances = (wanted, secrets.clone());
        }
    }

    /// Finds a request that was like this one: appends its line, if it has any, and returns where it is counted.
    pub(super) fn tell(&mut self, news: &News, lines: &mut Vec<u8>) -> Option<(Option<Places>, Times)> {
        let News::Exchange(exchange) = news else { return None };
        // Where spans are all that is wanted, there is nothing to repeat.
        if self.circumstances.0 == 0 {
            return None;
        }
        let (places, mould) = self.known.find(exchange)?;
        let errand = exchange.errands.only();
        if let (Some(mould), Some(errand)) = (mould, errand) {
            mould.write(lines, &mut self.stamp, errand);
        }
        let times = (exchange.took, errand.and_then(|errand| errand.took).unwrap_or_default());
        Some((*places, times))
    }

    /// Remembers a request that was told: where it was counted, and the line that was written.
    pub(super) fn remember(&mut self, news: &News, places: Option<Places>, line: &[u8]) {
        let News::Exchange(exchange) = news else { return };
        if self.circumstances.0 == 0 {
            return;
        }
        let mould = Mould::of(line);
        if line.is_empty() || mould.is_some() {
            self.known.remember(exchange, (places, mould));
        }
    }
}

/// How long a client's request took, and the request to an upstream that it caused.
pub(super) type Times = (Duration, Duration);

fn place(exchange: &Exchange) -> usize {
    let mut hasher = Seeded::default().build_hasher();
    hasher.write_usize(Arc::as_ptr(&exchange.asker.who) as usize);
    // By `use_tool` all tools are asked for under one name.
    let own = exchange.errands.only().and_then(|errand| errand.name.as_ref());
    exchange.asked.name.iter().chain(own).for_each(|name| hasher.write(name.as_bytes()));
    hasher.finish() as usize % REMEMBERED
}

/// Whether all that is told of a request but times and sizes can be said of another one.
fn may_repeat(exchange: &Exchange) -> bool {
    let is_plain = |errand: &Errand| errand.kept.iter().all(Option::is_none);
    exchange.opens.is_none() && exchange.errands.count() <= 1 && exchange.errands.iter().all(is_plain)
}

/// Whether all that is told of two requests is the same, but for times and sizes. The first one may be repeated.
fn is_like(known: &Exchange, exchange: &Exchange) -> bool {
    let (one, other) = (&known.asked, &exchange.asked);
    let (by, with) = (&known.asker, &exchange.asker);
    one.name == other.name
        && one.id.is_some() == other.id.is_some()
        && Arc::ptr_eq(&by.who, &with.who)
        && (one.method, one.exists, known.error) == (other.method, other.exists, exchange.error)
        && (by.version, by.network) == (with.version, with.network)
        && may_repeat(exchange)
        && match (known.errands.only(), exchange.errands.only()) {
            (Some(one), Some(other)) => is_like_errand(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
}

fn is_like_errand(one: &Errand, other: &Errand) -> bool {
    one.name == other.name
        && (one.method, one.error) == (other.method, other.error)
        && Arc::ptr_eq(&one.server.group, &other.server.group)
        && Arc::ptr_eq(&one.server.server, &other.server.server)
        && match (&one.by, &other.by) {
            (Some(one), Some(other)) => {
                (one.version, one.network, one.id.is_some())
                    == (other.version, other.network, other.id.is_some())
                    && one.secrets.is_same(&other.secrets)
            }
            (one, other) => one.is_none() && other.is_none(),
        }
}

impl Mould {
    /// The parts of one line; `None` if it is none of a call. No text in a line looks like a key, because the quotes in
    /// it are escaped.
    fn of(line: &[u8]) -> Option<Self> {
        let rest = line.strip_prefix(BEGINNING)?.strip_suffix(END)?;
        let rest = &rest[memchr::memchr(b'"', rest)?..];
        let [ms, sent, came] = [b",\"ms\":".as_slice(), b",\"bytesIn\":", b",\"bytesOut\":"]
            .map(|key| memmem::find(rest, key).map(|at| at + key.len()));
        let (ms, sent, came) = (ms?, sent?, came?);
        let behind_ms = ms + memchr::memchr(b',', &rest[ms..])?;
        let behind_sent = sent + memchr::memchr(b',', &rest[sent..])?;
        let is_last = rest[came..].iter().all(u8::is_ascii_digit);
        let parts = [&rest[..ms], rest.get(behind_ms..sent)?, rest.get(behind_sent..came)?];
        is_last.then(|| Self(parts.map(Into::into)))
    }

    fn write(&self, out: &mut Vec<u8>, stamp: &mut Stamp, errand: &Errand) {
        let [to_ms, to_sent, to_came] = &self.0;
        out.extend_from_slice(BEGINNING);
        stamp.write(out, errand.begun);
        out.extend_from_slice(to_ms);
        write_ms(out, errand.took.unwrap_or_default().as_micros() as u64);
        out.extend_from_slice(to_sent);
        write_number(out, errand.bytes.0);
        out.extend_from_slice(to_came);
        write_number(out, errand.bytes.1);
        out.extend_from_slice(END);
    }
}

impl Stamp {
    fn write(&mut self, out: &mut Vec<u8>, moment: Moment) {
        let since = moment.since_epoch;
        if self.second != since.as_secs() || self.text.is_empty() {
            self.text.clear();
            date::write_seconds(&mut self.text, since.as_secs());
            self.second = since.as_secs();
        }
        out.extend_from_slice(&self.text);
        date::write_rest(out, since.subsec_millis().into());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::environment::Telemetry;
    use super::super::exchange::{Asker, Carriage, Inquiry, Network};
    use super::super::happening::{ErrorType, Fact, Happening, Who};
    use super::super::hub::Hub;
    use super::super::journal::files;
    use super::*;
    use crate::config::Journal;
    use crate::config::locate::FaceKind;
    use crate::json::Raw;

    /// What a line tells of a call: client, server, name, error, bytes.
    type Told = (String, String, String, Option<ErrorType>, (u64, u64));

    #[test]
    fn a_call_like_one_before_is_told_like_any_other() {
        let name = format!("mcp-workbench-repeats-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let hub = Hub::new(FaceKind::Workbench, Some(directory.clone()), Telemetry::default());
        hub.apply(&Journal { on: true, ..Journal::default() }, &Redactor::default());
        hub.count();
        let who = ["one, \"ms\":1,", "hunter-22"].map(|client| {
            Arc::new(Who { client: client.into(), session: "0123456789abcdef".into(), token: None })
        });
        let servers: [Arc<str>; 2] = ["fs".into(), "git".into()];
        let group = "dev".into();
        let password = Redactor::new([("hunter-22".to_owned(), "PASSWORD".to_owned())]);
        let secrets = [Redactor::default(), password];
        let methods = ["tools/call", "resources/read", "completion/complete"];
        let errors = [None, Some(ErrorType::ToolError), Some(ErrorType::Code(-1)), Some(ErrorType::Code(-2))];
        let (mut expected, mut counted) = (Vec::<Told>::new(), BTreeMap::<String, u64>::new());
        // Numbers without a common divisor, so that each meets each, three times.
        for round in 0..3 * 2 * 3 * 5 * 7_usize {
            let (secret, server, method) = (round % 2, round / 3 % 2, round % 3);
            let (error, tool) = (errors[round % 5 % 4], round % 7);
            let who = &who[round / 2 % 2];
            let asked = Inquiry { method: methods[method], name: None, exists: true, id: None };
            let asker = Asker { who: who.clone(), version: "2025-11-25", network: Network::Pipe };
            let mut exchange = hub.begin(asked, asker, (None, None));
            let (own, bytes_in) = (format!("\"t{tool}\""), round * 3);
            exchange.set_out((&group, &servers[server]), methods[method], Some(&own), (bytes_in, None));
            let secrets = secrets[secret].clone();
            exchange.takes(Carriage { version: "2025-06-18", network: Network::Tcp, id: None, secrets });
            let answer = Raw::own(format!("\"{}\"", "x".repeat(round)));
            exchange.came_back(error, Some(answer.root()), None);
            exchange.end(error);
            let client = if secret == 1 {
                who.client.replace("hunter-22", "${PASSWORD}")
            } else {
                who.client.to_string()
            };
            let (bytes, server) = ((bytes_in as u64, round as u64 + 2), servers[server].to_string());
            *counted.entry(format!("{method} {server} {error:?}")).or_default() += 1;
            if method < 2 {
                expected.push((client, server, format!("{method} t{tool}"), error, bytes));
            }
        }
        hub.close();
        let text: String = files(&directory)
            .expect("it was written")
            .iter()
            .map(|file| std::fs::read_to_string(file).expect("it is ours"))
            .collect();
        let told: Vec<_> = text.lines().map(told).collect();
        assert_eq!(told, expected);
        let [server, client] = hub.metrics().histograms();
        let sum = |series: &[(_, crate::events::metrics::Histogram)]| -> u64 {
            series.iter().map(|(_, times)| times.count()).sum()
        };
        assert_eq!((sum(&server), sum(&client)), (630, 630));
        let mut by_label = BTreeMap::<String, u64>::new();
        for (labels, times) in &client {
            let method =
                methods.iter().position(|method| *method == labels.method).expect("it is one of them");
            let server = &labels.server.as_ref().expect("it has one").server;
            *by_label.entry(format!("{method} {server} {:?}", labels.error)).or_default() += times.count();
        }
        assert_eq!(by_label, counted);
        let _ = std::fs::remove_dir_all(directory);
    }

    /// Reads a line, which must be the one that is written for what it tells.
    fn told(line: &str) -> Told {
        let (_, happening) = Happening::read(line).expect("a line of ours");
        let happening = happening.expect("a kind that is known");
        let mut written = Vec::new();
        happening.write(&mut written);
        assert_eq!(String::from_utf8(written).expect("UTF-8"), line);
        let Fact::Call(call) = happening.fact else { panic!("no call: {line}") };
        let kind = match call.subject {
            super::super::Subject::Tool(_) => 0,
            _ => 1,
        };
        let name = format!("{kind} {}", call.subject.name());
        (
            call.who.client.to_string(),
            call.server.server.to_string(),
            name,
            call.error,
            (call.bytes_in, call.bytes_out),
        )
    }
}
