//! Metrics and spans as OTLP has them in JSON (`opentelemetry-proto`, its JSON mapping).

use std::time::Duration;

use serde_json::{Value, json};

use super::exchange::{Errand, Exchange, Moment};
use super::happening::ErrorType;
use super::hub::News;
use super::metrics::{BUCKETS, Histogram, Labels, Metrics};
use super::trace::Trail;
use super::words::own_name;
use crate::json::write_string;
use crate::text::digest::hex;

/// The kinds of spans: of a request that was taken, and of one that was sent.
const SERVER: &str = "2";
const CLIENT: &str = "3";

/// A span that is ready to be sent, as JSON.
pub(super) type SpanJson = String;

/// The document that brings spans.
pub(super) fn traces(resource: &[(String, String)], spans: &[SpanJson]) -> String {
    let (resource, scope, spans) = (described(resource), scope(), spans.join(","));
    format!(
        r#"{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{{"scope":{scope},"spans":[{spans}]}}]}}]}}"#
    )
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

/// The spans that news amount to: that of a client's request, and one for each request to an upstream. None if they
/// are not sampled.
pub(super) fn spans(news: &News) -> Vec<SpanJson> {
    match news {
        News::Exchange(exchange) => {
            let session = &exchange.asker.who.session;
            let errands = exchange.errands.iter().filter_map(|errand| of_errand(errand, session));
            of_exchange(exchange).into_iter().chain(errands).collect()
        }
        News::Errand(errand, session) => {
            session.iter().filter_map(|session| of_errand(errand, session)).collect()
        }
        News::Fact(..) => Vec::new(),
    }
}

fn of_exchange(exchange: &Exchange) -> Option<SpanJson> {
    let trail = exchange.trail.as_ref().filter(|trail| trail.sampled)?;
    let (asked, asker) = (&exchange.asked, &exchange.asker);
    let subject = (asked.method, asked.name.as_deref().unwrap_or_default());
    let times = times(exchange.begun, exchange.took);
    let attributes = [
        ("jsonrpc.request.id", asked.id.as_deref().map(unquoted).unwrap_or_default()),
        ("mcp.protocol.version", asker.version),
        ("mcp.session.id", &asker.who.session),
        ("network.transport", asker.network.as_str()),
    ];
    Some(span((trail, SERVER), subject, times, &attributes, exchange.error))
}

fn of_errand(errand: &Errand, session: &str) -> Option<SpanJson> {
    let trail = errand.trail.as_ref().filter(|trail| trail.sampled)?;
    let by = errand.by.as_ref();
    let own = own_name(errand, by.map(|by| &by.secrets));
    let id = by.and_then(|by| by.id).map(|id| id.to_string()).unwrap_or_default();
    let times = times(errand.begun, errand.took.unwrap_or_default());
    let (toolbox, server) = match (&*errand.server.group, &*errand.server.server) {
        (namespace, "") => ("", namespace),
        both => both,
    };
    let attributes = [
        ("jsonrpc.request.id", &*id),
        ("mcp.protocol.version", by.map_or("", |by| by.version)),
        ("mcp.session.id", session),
        ("network.transport", by.map_or("", |by| by.network.as_str())),
        ("mcp_workbench.toolbox", toolbox),
        ("mcp_workbench.server", server),
    ];
    Some(span((trail, CLIENT), (errand.method, &own), times, &attributes, errand.error))
}

/// The beginning and the end, in nanoseconds since 1970.
fn times(begun: Moment, took: Duration) -> (u64, u64) {
    let begun = begun.since_epoch.as_nanos() as u64;
    (begun, begun + took.as_nanos() as u64)
}

/// A span about this method and what it names. It is written by hand, because there are two for each call.
fn span(
    (trail, kind): (&Trail, &str),
    (method, named): (&str, &str),
    (start, end): (u64, u64),
    attributes: &[(&str, &str)],
    error: Option<ErrorType>,
) -> SpanJson {
    let (subject, is_in_name) = match method {
        "tools/call" => ("gen_ai.tool.name", true),
        "prompts/get" => ("gen_ai.prompt.name", true),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => ("mcp.resource.uri", false),
        _ => ("", false),
    };
    let named = if subject.is_empty() { "" } else { named };
    let error_type = error.map(|error| error.to_string()).unwrap_or_default();
    let code = if let Some(ErrorType::Code(_)) = error { &*error_type } else { "" };
    let mut text = SpanText(Vec::with_capacity(1024));
    for part in [
        "{\"traceId\":\"",
        &*hex(trail.trace.to_be_bytes()),
        "\",\"spanId\":\"",
        &*hex(trail.span.to_be_bytes()),
    ] {
        text.plain(part);
    }
    if trail.parent != 0 {
        text.plain("\",\"parentSpanId\":\"");
        text.plain(&hex(trail.parent.to_be_bytes()));
    }
    text.plain("\"");
    if let Some(state) = &trail.state {
        text.plain(",\"traceState\":");
        text.string(state);
    }
    text.plain(",\"name\":");
    match is_in_name && !named.is_empty() {
        true => text.string(&format!("{method} {named}")),
        false => text.string(method),
    }
    text.plain(&format!(
        r#","kind":{kind},"startTimeUnixNano":"{start}","endTimeUnixNano":"{end}","attributes":["#
    ));
    text.attribute("mcp.method.name", method);
    for (key, value) in [
        (subject, named),
        ("gen_ai.operation.name", if method == "tools/call" { "execute_tool" } else { "" }),
        ("error.type", &error_type),
        ("rpc.response.status_code", code),
    ] {
        text.attribute(key, value);
    }
    attributes.iter().for_each(|(key, value)| text.attribute(key, value));
    // The comma after the last attribute.
    text.0.pop();
    text.plain(if error.is_some() {
        r#"],"status":{"code":2},"flags":1}"#
    } else {
        r#"],"status":{},"flags":1}"#
    });
    String::from_utf8(text.0).expect("written from UTF-8 texts")
}

/// The text of a span, as it is written.
struct SpanText(Vec<u8>);

impl SpanText {
    fn plain(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn string(&mut self, text: &str) {
        write_string(&mut self.0, text);
    }

    /// Adds an attribute and a comma, unless the value is empty.
    fn attribute(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.plain("{\"key\":\"");
            self.plain(key);
            self.plain("\",\"value\":{\"stringValue\":");
            self.string(value);
            self.plain("}},");
        }
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

/// The text of an id: that of a string without its quotes.
fn unquoted(id: &str) -> &str {
    id.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(id)
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
