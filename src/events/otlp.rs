//! Metrics and spans as OTLP has them in JSON (`opentelemetry-proto`, its JSON mapping).

use serde_json::{Value, json};

use super::exchange::{Errand, Exchange, Network};
use super::happening::{ErrorType, ServerPath};
use super::metrics::{BUCKETS, Histogram, Labels, Metrics};
use super::trace::Trail;
use super::words::own_name;
use crate::config::Redactor;

/// A span that is ready to be sent.
pub(super) type SpanJson = Value;

/// The document that brings spans.
pub(super) fn traces(resource: &[(String, String)], spans: &[SpanJson]) -> Value {
    json!({"resourceSpans": [{"resource": described(resource), "scopeSpans": [{"scope": scope(), "spans": spans}]}]})
}

/// The document that brings the two histograms, as they are at `now`, in nanoseconds since 1970.
pub(super) fn metrics(resource: &[(String, String)], metrics: &Metrics, now: u128) -> Value {
    let [server, client] = metrics.histograms();
    let of = |name: &str, about: &str, series: &[(Labels, Histogram)]| {
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

/// The spans of an exchange: its own, and one for each request to an upstream. None if they are not sampled.
pub(super) fn spans(exchange: &Exchange) -> Vec<SpanJson> {
    let Some(trail) = exchange.trail.as_ref().filter(|trail| trail.sampled) else { return Vec::new() };
    let (asked, asker) = (&exchange.asked, &exchange.asker);
    let mut attributes = Attributes::default();
    let name = attributes.subject(asked.method, asked.name.as_deref().unwrap_or_default());
    attributes.add("jsonrpc.request.id", asked.id.as_deref().map(unquoted).unwrap_or_default());
    attributes.add("mcp.protocol.version", asker.version);
    attributes.add("mcp.session.id", &asker.who.session);
    attributes.add("network.transport", asker.network.as_str());
    let begun = exchange.begun.since_epoch.as_nanos();
    let times = (begun, begun + exchange.took.as_nanos());
    let mut spans = vec![span(trail, &name, 2, times, attributes, exchange.error)];
    spans.extend(exchange.errands.iter().filter_map(|errand| of_errand(errand, exchange)));
    spans
}

fn of_errand(errand: &Errand, exchange: &Exchange) -> Option<SpanJson> {
    let trail = errand.trail.as_ref()?;
    let nothing = Redactor::default();
    let by = errand.by.as_ref();
    let own = own_name(errand, by.map_or(&nothing, |by| &by.secrets));
    let mut attributes = Attributes::default();
    let name = attributes.subject(errand.method, &own);
    if let Some(id) = by.and_then(|by| by.id) {
        attributes.add("jsonrpc.request.id", &id.to_string());
    }
    attributes.add("mcp.protocol.version", by.map_or("", |by| by.version));
    attributes.add("mcp.session.id", &exchange.asker.who.session);
    attributes.add("network.transport", by.map_or("", |by| Network::as_str(by.network)));
    let ServerPath { group, server } = &errand.server;
    match &**server {
        "" => attributes.add("mcp_workbench.server", group),
        server => {
            attributes.add("mcp_workbench.toolbox", group);
            attributes.add("mcp_workbench.server", server);
        }
    }
    let begun = errand.begun.since_epoch.as_nanos();
    let times = (begun, begun + errand.took.unwrap_or_default().as_nanos());
    Some(span(trail, &name, 3, times, attributes, errand.error))
}

fn span(
    trail: &Trail,
    name: &str,
    kind: u8,
    (start, end): (u128, u128),
    mut attributes: Attributes,
    error: Option<ErrorType>,
) -> SpanJson {
    let mut status = json!({});
    if let Some(error) = error {
        attributes.add("error.type", &error.to_string());
        if let ErrorType::Code(code) = error {
            attributes.add("rpc.response.status_code", &code.to_string());
        }
        status = json!({"code": 2});
    }
    let mut span = json!({
        "traceId": format!("{:032x}", trail.trace),
        "spanId": format!("{:016x}", trail.span),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": start.to_string(),
        "endTimeUnixNano": end.to_string(),
        "attributes": attributes.0,
        "status": status,
        "flags": 1,
    });
    if trail.parent != 0 {
        span["parentSpanId"] = format!("{:016x}", trail.parent).into();
    }
    if let Some(state) = &trail.state {
        span["traceState"] = (**state).into();
    }
    span
}

fn point(labels: &Labels, times: &Histogram, begun: u128, now: u128) -> Value {
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

    /// Adds what a request is about; returns the span's name.
    fn subject(&mut self, method: &str, name: &str) -> String {
        self.add("mcp.method.name", method);
        match method {
            "tools/call" => {
                self.add("gen_ai.tool.name", name);
                self.add("gen_ai.operation.name", "execute_tool");
            }
            "prompts/get" => self.add("gen_ai.prompt.name", name),
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                self.add("mcp.resource.uri", name);
                return method.to_owned();
            }
            _ => return method.to_owned(),
        }
        if name.is_empty() { method.to_owned() } else { format!("{method} {name}") }
    }
}
