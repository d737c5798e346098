//! Metrics and spans as OTLP has them in JSON (`opentelemetry-proto`, its JSON mapping).

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Value, json};

use super::exchange::{Errand, Exchange, Moment};
use super::happening::ErrorType;
use super::hub::News;
use super::metrics::{BUCKETS, Histogram, Labels, Metrics};
use super::trace::Trail;
use super::words::own_name;
use crate::json::write_string;
use crate::protocol::message::{Id, write_number};
use crate::text::digest::write_hex;

/// What stands before the value of an attribute.
macro_rules! key {
    ($name:literal) => {
        concat!("{\"key\":\"", $name, "\",\"value\":{\"stringValue\":")
    };
}

/// The kinds of spans: of a request that was taken, and of one that was sent.
const SERVER: &str = "2";
const CLIENT: &str = "3";

/// The document that brings spans: what stands before them, and behind them.
pub(super) fn frame(resource: &[(String, String)]) -> (String, &'static str) {
    let (resource, scope) = (described(resource), scope());
    let head =
        format!(r#"{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{{"scope":{scope},"spans":["#);
    (head, "]}]}]}")
}

/// The document that brings the two histograms, as they are at `now`, in nanoseconds since 1970.
pub(super) fn metrics(resource: &[(String, String)], metrics: &Metrics, now: u128) -> Value {
    let [server, client] = metrics.histograms();
    let of = |name: &str, about: &str, series: &[(Labels<'_>, Histogram)]| {
        let points: Vec<_> = series
            .iter()
            .map(|(labels, times)| point(labels, times, metrics.begun.as_nanos(), now))
            .collect();
        json!({
            "name": name,
            "description": about,
            "unit": "s",
            "histogram": {"aggregationTemporality": 2, "dataPoints": points},
        })
    };
    let all = [
        of("mcp.server.operation.duration", "How long requests of clients took.", &server),
        of("mcp.client.operation.duration", "How long our requests to servers took.", &client),
    ];
    let filled: Vec<_> =
        all.into_iter().filter(|metric| metric["histogram"]["dataPoints"] != json!([])).collect();
    json!({"resourceMetrics": [{"resource": described(resource), "scopeMetrics": [{"scope": scope(), "metrics": filled}]}]})
}

/// How many spans news amount to.
pub(super) fn count(news: &News) -> usize {
    let is_sampled = |trail: &Option<Trail>| usize::from(trail.as_ref().is_some_and(|trail| trail.sampled));
    match news {
        News::Exchange(exchange) => {
            let errands = exchange.errands.iter().map(|errand| is_sampled(&errand.trail));
            is_sampled(&exchange.trail) + errands.sum::<usize>()
        }
        News::Errand(errand, _) => is_sampled(&errand.trail),
        News::Fact(..) => 0,
    }
}

/// Writes the spans that news amount to, each with a comma behind it: that of a client's request, and one for each
/// request to an upstream. None if they are not sampled.
pub(super) fn write_spans(out: &mut Vec<u8>, news: &News) {
    match news {
        News::Exchange(exchange) => {
            write_exchange(out, exchange);
            let session = &exchange.asker.who.session;
            exchange.errands.iter().for_each(|errand| write_errand(out, errand, session));
        }
        News::Errand(errand, session) => {
            session.iter().for_each(|session| write_errand(out, errand, session));
        }
        News::Fact(..) => {}
    }
}

fn write_exchange(out: &mut Vec<u8>, exchange: &Exchange) {
    let Some(trail) = exchange.trail.as_ref().filter(|trail| trail.sampled) else { return };
    let (asked, asker) = (&exchange.asked, &exchange.asker);
    let mut span = SpanWriter { out, method: asked.method, error: exchange.error };
    span.begin(trail, SERVER, asked.name.as_deref().unwrap_or_default(), exchange.begun, exchange.took);
    match &asked.id {
        Some(Id::Number(id)) => span.number(key!("jsonrpc.request.id"), *id),
        // A text is shown without its quotes.
        Some(Id::Text(id)) if id.starts_with('"') => {
            let id: Cow<'_, str> = serde_json::from_str(id).unwrap_or_default();
            span.attribute(key!("jsonrpc.request.id"), &id);
        }
        Some(Id::Text(id)) => span.attribute(key!("jsonrpc.request.id"), id),
        None => {}
    }
    span.attribute(key!("mcp.protocol.version"), asker.version);
    span.attribute(key!("mcp.session.id"), &asker.who.session);
    span.attribute(key!("network.transport"), asker.network.as_str());
    span.end();
}

fn write_errand(out: &mut Vec<u8>, errand: &Errand, session: &str) {
    let Some(trail) = errand.trail.as_ref().filter(|trail| trail.sampled) else { return };
    let by = errand.by.as_ref();
    let own = own_name(errand, by.map(|by| &by.secrets));
    let mut span = SpanWriter { out, method: errand.method, error: errand.error };
    span.begin(trail, CLIENT, &own, errand.begun, errand.took.unwrap_or_default());
    if let Some(by) = by {
        if let Some(id) = by.id {
            span.number(key!("jsonrpc.request.id"), id);
        }
        span.attribute(key!("mcp.protocol.version"), by.version);
        span.attribute(key!("network.transport"), by.network.as_str());
    }
    span.attribute(key!("mcp.session.id"), session);
    // Toolman's namespaces have no toolbox above them.
    let (toolbox, server) = match (&*errand.server.group, &*errand.server.server) {
        (namespace, "") => ("", namespace),
        both => both,
    };
    span.attribute(key!("mcp_workbench.toolbox"), toolbox);
    span.attribute(key!("mcp_workbench.server"), server);
    span.end();
}

/// Writes a span. It is written by hand, because there are two for each call.
struct SpanWriter<'a> {
    out: &'a mut Vec<u8>,
    method: &'static str,
    error: Option<ErrorType>,
}

impl SpanWriter<'_> {
    /// Writes everything up to the attributes that not all spans have. `named` is what the method is about.
    fn begin(&mut self, trail: &Trail, kind: &str, named: &str, begun: Moment, took: Duration) {
        let (subject, is_in_name) = match self.method {
            "tools/call" => (key!("gen_ai.tool.name"), true),
            "prompts/get" => (key!("gen_ai.prompt.name"), true),
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                (key!("mcp.resource.uri"), false)
            }
            _ => ("", false),
        };
        self.plain("{\"traceId\":\"");
        write_hex(self.out, &trail.trace.to_be_bytes());
        self.plain("\",\"spanId\":\"");
        write_hex(self.out, &trail.span.to_be_bytes());
        if trail.parent != 0 {
            self.plain("\",\"parentSpanId\":\"");
            write_hex(self.out, &trail.parent.to_be_bytes());
        }
        if let Some(state) = &trail.state {
            self.plain("\",\"traceState\":");
            write_string(self.out, state);
            self.out.pop();
        }
        self.plain("\",\"name\":\"");
        self.plain(self.method);
        if is_in_name && !named.is_empty() {
            let quote = self.out.len();
            write_string(self.out, named);
            self.out[quote] = b' ';
            self.out.pop();
        }
        self.plain("\",\"kind\":");
        self.plain(kind);
        let start = begun.since_epoch.as_nanos() as u64;
        self.plain(",\"startTimeUnixNano\":\"");
        write_number(self.out, start);
        self.plain("\",\"endTimeUnixNano\":\"");
        write_number(self.out, start + took.as_nanos() as u64);
        self.plain("\",\"attributes\":[");
        self.attribute(key!("mcp.method.name"), self.method);
        if !subject.is_empty() {
            self.attribute(subject, named);
        }
        if self.method == "tools/call" {
            self.attribute(key!("gen_ai.operation.name"), "execute_tool");
        }
        if let Some(error) = self.error {
            let word = error.to_string();
            self.attribute(key!("error.type"), &word);
            if let ErrorType::Code(_) = error {
                self.attribute(key!("rpc.response.status_code"), &word);
            }
        }
    }

    /// Adds an attribute and a comma, unless the value is empty.
    fn attribute(&mut self, key: &'static str, value: &str) {
        if !value.is_empty() {
            self.plain(key);
            write_string(self.out, value);
            self.plain("}},");
        }
    }

    /// Adds an attribute whose value is the text of a number, and a comma.
    fn number(&mut self, key: &'static str, value: u64) {
        self.plain(key);
        self.plain("\"");
        write_number(self.out, value);
        self.plain("\"}},");
    }

    /// Writes the rest, and a comma.
    fn end(self) {
        // The comma after the last attribute.
        self.out.pop();
        let rest = match self.error {
            Some(_) => r#"],"status":{"code":2},"flags":1},"#,
            None => r#"],"status":{},"flags":1},"#,
        };
        self.out.extend_from_slice(rest.as_bytes());
    }

    fn plain(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }
}

fn point(labels: &Labels<'_>, times: &Histogram, begun: u128, now: u128) -> Value {
    let mut attributes = Attributes::default();
    labels.pairs().iter().for_each(|(key, value)| attributes.add(key, value));
    let counts: Vec<_> = times.buckets.iter().map(u64::to_string).collect();
    json!({
        "attributes": attributes.0,
        "startTimeUnixNano": begun.to_string(),
        "timeUnixNano": now.to_string(),
        "count": times.count().to_string(),
        "sum": times.sum,
        "bucketCounts": counts,
        "explicitBounds": BUCKETS,
    })
}

fn described(resource: &[(String, String)]) -> Value {
    let mut attributes = Attributes::default();
    resource.iter().for_each(|(key, value)| attributes.add(key, value));
    json!({"attributes": attributes.0})
}

fn scope() -> Value {
    json!({"name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION")})
}

/// Attributes with texts as values. Empty ones are left out.
#[derive(Default)]
struct Attributes(Vec<Value>);

impl Attributes {
    fn add(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.0.push(json!({"key": key, "value": {"stringValue": value}}));
        }
    }
}
