//! Metrics and spans as OTLP has them in JSON (`opentelemetry-proto`, its JSON mapping).

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::exchange::{Errand, Exchange, Moment};
use super::happening::ErrorType;
use super::hub::News;
use super::metrics::{BUCKETS, Histogram, Labels, Metrics};
use super::repeats::Known;
use super::trace::Trail;
use super::words::own_name;
use crate::json::{quote, write_string};
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

/// Writes documents that bring spans.
pub(super) struct SpanDocuments {
    /// What stands before the spans.
    head: String,
    known: Known<ExchangeMoulds>,
    /// How long the last document was. The next one will be about as long.
    length: usize,
}

impl SpanDocuments {
    /// Documents of a process that is described so.
    pub(super) fn new(resource: &[(String, String)]) -> Self {
        let (resource, scope) = (described(resource), scope());
        let head = format!(
            r#"{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{{"scope":{scope},"spans":["#
        );
        Self { head, known: Known::default(), length: 0 }
    }

    /// The document with the spans that news amount to: that of a client's request, and one for each request to an
    /// upstream. None of those that are not sampled.
    pub(super) fn write(&mut self, news: &[News]) -> Bytes {
        let mut out = Vec::with_capacity(self.length + self.length / 8);
        out.extend_from_slice(self.head.as_bytes());
        for news in news {
            match news {
                News::Exchange(exchange) => self.write_exchange(&mut out, exchange),
                News::Errand(errand, Some(session)) => {
                    SpanMould::of_errand(errand, session).write_errand(&mut out, errand);
                }
                News::Errand(_, None) | News::Fact(..) => {}
            }
        }
        // The comma behind the last span.
        out.pop();
        out.extend_from_slice(b"]}]}]}");
        self.length = out.len();
        out.into()
    }

    fn write_exchange(&mut self, out: &mut Vec<u8>, exchange: &Exchange) {
        match self.known.find(exchange) {
            Some(moulds) => moulds.write(out, exchange),
            None => {
                let moulds = ExchangeMoulds::of(exchange);
                moulds.write(out, exchange);
                self.known.remember(exchange, moulds);
            }
        }
    }
}

/// The moulds of a client's request, and of the requests to upstreams that it caused.
struct ExchangeMoulds(SpanMould, Vec<SpanMould>);

impl ExchangeMoulds {
    fn of(exchange: &Exchange) -> Self {
        let session = &exchange.asker.who.session;
        let errands = exchange.errands.iter().map(|errand| SpanMould::of_errand(errand, session));
        Self(SpanMould::of_exchange(exchange), errands.collect())
    }

    fn write(&self, out: &mut Vec<u8>, exchange: &Exchange) {
        let Self(own, errands) = self;
        own.write(out, exchange.trail.as_ref(), exchange.begun, exchange.took, exchange.asked.id.as_ref());
        errands
            .iter()
            .zip(exchange.errands.iter())
            .for_each(|(mould, errand)| mould.write_errand(out, errand));
    }
}

/// A span but for its place in a trace, its times and the id of its request: all that spans have in common that tell of
/// the same request. There are two spans for each call, and most calls are like one before.
struct SpanMould {
    /// From behind the place in the trace up to the time.
    name: Vec<u8>,
    /// From behind the times up to the id, or to the end if it has none.
    attributes: Vec<u8>,
    /// The rest, and a comma.
    rest: Vec<u8>,
}

impl SpanMould {
    fn of_exchange(exchange: &Exchange) -> Self {
        let (asked, asker) = (&exchange.asked, &exchange.asker);
        let named = asked.name.as_deref().unwrap_or_default();
        let mut mould = Self::begin(SERVER, asked.method, named, exchange.error);
        mould.attribute(key!("mcp.protocol.version"), asker.version);
        mould.attribute(key!("mcp.session.id"), &asker.who.session);
        mould.attribute(key!("network.transport"), asker.network.as_str());
        mould.end(exchange.error, asked.id.is_some())
    }

    fn of_errand(errand: &Errand, session: &str) -> Self {
        let by = errand.by.as_ref();
        let own = own_name(errand, by.map(|by| &by.secrets));
        let mut mould = Self::begin(CLIENT, errand.method, &own, errand.error);
        if let Some(by) = by {
            mould.attribute(key!("mcp.protocol.version"), by.version);
            mould.attribute(key!("network.transport"), by.network.as_str());
        }
        mould.attribute(key!("mcp.session.id"), session);
        // Toolman's namespaces have no toolbox above them.
        let (toolbox, server) = match (&*errand.server.group, &*errand.server.server) {
            (namespace, "") => ("", namespace),
            both => both,
        };
        mould.attribute(key!("mcp_workbench.toolbox"), toolbox);
        mould.attribute(key!("mcp_workbench.server"), server);
        mould.end(errand.error, by.is_some_and(|by| by.id.is_some()))
    }

    /// The name, and the attributes that not only some spans have. `named` is what the method is about.
    fn begin(kind: &str, method: &str, named: &str, error: Option<ErrorType>) -> Self {
        let (subject, is_in_name) = match method {
            "tools/call" => (key!("gen_ai.tool.name"), true),
            "prompts/get" => (key!("gen_ai.prompt.name"), true),
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                (key!("mcp.resource.uri"), false)
            }
            _ => ("", false),
        };
        let name = match is_in_name && !named.is_empty() {
            true => quote(&format!("{method} {named}")),
            false => quote(method),
        };
        let name = format!("\",\"name\":{name},\"kind\":{kind},\"startTimeUnixNano\":\"").into_bytes();
        let attributes = b"\",\"attributes\":[".to_vec();
        let mut mould = Self { name, attributes, rest: Vec::new() };
        mould.attribute(key!("mcp.method.name"), method);
        if !subject.is_empty() {
            mould.attribute(subject, named);
        }
        if method == "tools/call" {
            mould.attribute(key!("gen_ai.operation.name"), "execute_tool");
        }
        if let Some(error) = error {
            let word = error.to_string();
            mould.attribute(key!("error.type"), &word);
            if let ErrorType::Code(_) = error {
                mould.attribute(key!("rpc.response.status_code"), &word);
            }
        }
        mould
    }

    /// Adds an attribute and a comma, unless the value is empty.
    fn attribute(&mut self, key: &'static str, value: &str) {
        if !value.is_empty() {
            self.attributes.extend_from_slice(key.as_bytes());
            write_string(&mut self.attributes, value);
            self.attributes.extend_from_slice(b"}},");
        }
    }

    fn end(mut self, error: Option<ErrorType>, has_id: bool) -> Self {
        match has_id {
            true => {
                self.attributes.extend_from_slice(key!("jsonrpc.request.id").as_bytes());
                self.rest.extend_from_slice(b"}}");
            }
            // The comma behind the last attribute.
            false => drop(self.attributes.pop()),
        }
        let status = if error.is_some() { r#"{"code":2}"# } else { "{}" };
        self.rest.extend_from_slice(format!("],\"status\":{status},\"flags\":1}},").as_bytes());
        self
    }

    fn write_errand(&self, out: &mut Vec<u8>, errand: &Errand) {
        let id = errand.by.as_ref().and_then(|by| by.id).map(Id::Number);
        let took = errand.took.unwrap_or_default();
        self.write(out, errand.trail.as_ref(), errand.begun, took, id.as_ref());
    }

    /// Writes the span and a comma, if it is sampled.
    fn write(
        &self,
        out: &mut Vec<u8>,
        trail: Option<&Trail>,
        begun: Moment,
        took: Duration,
        id: Option<&Id>,
    ) {
        let Some(trail) = trail.filter(|trail| trail.sampled) else { return };
        out.extend_from_slice(b"{\"traceId\":\"");
        write_hex(out, &trail.trace.to_be_bytes());
        out.extend_from_slice(b"\",\"spanId\":\"");
        write_hex(out, &trail.span.to_be_bytes());
        if trail.parent != 0 {
            out.extend_from_slice(b"\",\"parentSpanId\":\"");
            write_hex(out, &trail.parent.to_be_bytes());
        }
        if let Some(state) = &trail.state {
            out.extend_from_slice(b"\",\"traceState\":");
            write_string(out, state);
            out.pop();
        }
        out.extend_from_slice(&self.name);
        let start = begun.since_epoch.as_nanos() as u64;
        write_number(out, start);
        out.extend_from_slice(b"\",\"endTimeUnixNano\":\"");
        write_number(out, start + took.as_nanos() as u64);
        out.extend_from_slice(&self.attributes);
        match id {
            Some(Id::Number(id)) => {
                out.push(b'"');
                write_number(out, *id);
                out.push(b'"');
            }
            // A text is shown as it was meant, whatever its sender escaped.
            Some(Id::Text(id)) if id.starts_with('"') => {
                write_string(out, &serde_json::from_str::<Cow<'_, str>>(id).unwrap_or_default());
            }
            Some(Id::Text(id)) => write_string(out, id),
            None => {}
        }
        out.extend_from_slice(&self.rest);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::exchange::{Asker, Carriage, Inquiry, Network};
    use super::super::happening::Who;
    use super::super::hub::Hub;
    use super::*;
    use crate::config::Redactor;

    /// A request of a client and one to an upstream that it caused, which differ from others as the number says.
    fn exchange(
        (hub, secrets): (&Hub, &Redactor),
        number: u64,
        who: &[Arc<Who>; 2],
        servers: &[Arc<str>; 2],
    ) -> News {
        // Ten requests are told apart by client and name. What else they are changes now and then, their ids each time.
        let of = |count: u64| (number % count) as usize;
        let (round, often) = (number / 60, number / 10);
        let id = match often % 4 {
            0 => None,
            1 => Some(Id::Text("\"a\\u0022\\ud800\"".into())),
            2 => Some(Id::Text("\"a\\u0022\"".into())),
            _ => Some(Id::Number(number)),
        };
        let method = ["tools/call", "prompts/get", "resources/read"][(round % 3) as usize];
        let name = Some(["a", "b\"", "c", "d", "e"][of(5)].into());
        let asked = Inquiry { method, name, exists: true, id };
        let asker = Asker { who: who[of(2)].clone(), version: "2025-11-25", network: Network::Pipe };
        let mut exchange = hub.begin(asked, asker, (None, None));
        let state = number.is_multiple_of(7).then(|| "v=\"1\"".into());
        exchange.trail = Some(Trail {
            trace: 5 << 64 | u128::from(number),
            span: number + 1,
            parent: number % 3,
            sampled: true,
            state,
        });
        let server = (&servers[0], &servers[(round % 2) as usize]);
        exchange.set_out(server, method, Some("\"own\\u0022\""), (0, None));
        let secrets = secrets.clone();
        let by = Carriage { version: "2025-06-18", network: Network::Tcp, id: None, secrets };
        if !often.is_multiple_of(7) {
            exchange.takes(by);
        }
        let error = [None, Some(ErrorType::ToolError), Some(ErrorType::Code(-7))][(round % 4 % 3) as usize];
        exchange.came_back(error, None, (!often.is_multiple_of(5)).then_some(number));
        (exchange.error, exchange.took) = (error, Duration::from_nanos(number));
        News::Exchange(*exchange)
    }

    #[test]
    fn a_request_like_one_before_has_the_spans_that_it_would_have_alone() {
        let (hub, secrets) = (Hub::off(), Redactor::default());
        let who = ["one", "other"].map(|client| {
            Arc::new(Who { client: client.into(), session: format!("of {client}").into(), token: None })
        });
        let servers = ["dev".into(), "fs".into()];
        let news: Vec<_> =
            (0..900).map(|number| exchange((&hub, &secrets), number, &who, &servers)).collect();
        let spans = |document: Bytes| {
            let mut document: Value = serde_json::from_slice(&document).expect("JSON");
            document["resourceSpans"][0]["scopeSpans"][0]["spans"].take()
        };
        let (mut documents, mut repeated) = (SpanDocuments::new(&[]), 0);
        let mut all = Vec::new();
        for one in &news {
            let News::Exchange(exchange) = one else { panic!("no request") };
            repeated += usize::from(documents.known.find(exchange).is_some());
            let [written, alone] = [&mut documents, &mut SpanDocuments::new(&[])]
                .map(|documents| spans(documents.write(std::slice::from_ref(one))));
            assert_eq!(written, alone);
            all.extend(written.as_array().cloned().expect("a list"));
        }
        assert!((100..800).contains(&repeated), "{repeated} of them are like one before");
        assert_eq!(spans(SpanDocuments::new(&[]).write(&news)), Value::Array(all.clone()));
        let [request, errand] = [&all[2 * 28], &all[2 * 28 + 1]];
        let attribute = |span: &Value, key: &str| {
            let attributes = span["attributes"].as_array().expect("a list");
            let found = attributes.iter().find(|one| one["key"] == key);
            found.map(|one| one["value"]["stringValue"].clone()).unwrap_or_default()
        };
        assert_eq!(request["traceId"], "0000000000000005000000000000001c");
        assert_eq!(
            (&request["spanId"], &request["parentSpanId"]),
            (&json!("000000000000001d"), &json!("0000000000000001"))
        );
        assert_eq!(errand["parentSpanId"], request["spanId"]);
        assert_eq!((&request["traceState"], &errand["traceState"]), (&json!("v=\"1\""), &json!("v=\"1\"")));
        assert_eq!((&request["kind"], &errand["kind"]), (&json!(2), &json!(3)));
        assert_eq!(attribute(request, "jsonrpc.request.id"), "a\"");
        assert_eq!(attribute(errand, "jsonrpc.request.id"), "28");
        assert_eq!(
            (attribute(request, "mcp.session.id"), attribute(errand, "mcp.session.id")),
            (json!("of one"), json!("of one"))
        );
    }
}
