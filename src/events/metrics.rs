//! What is counted: how long requests take, of clients and to upstreams, and what becomes of upstreams.
//!
//! The hub's thread counts; `GET /metrics` renders what was counted as text, the exporter as OTLP.
//!
//! Invariant: labels are bounded. What a client or an upstream can make up becomes [`OTHER`] where it would be one too
//! many.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::hash::{BuildHasher, Hash, Hasher};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::exchange::{Errand, Exchange, Network, OTHER};
use super::happening::{ErrorType, Fact, ServerPath};
use super::hub::News;
use super::repeats::Times;
use super::words::own_name;
use crate::hash::{HashMap, Seeded};

/// The upper bounds of the buckets, in seconds.
pub const BUCKETS: [f64; 14] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// The most tools, and the most prompts, that have labels of their own.
const MOST_NAMES: usize = 300;
/// The most codes of errors that have labels of their own.
const MOST_CODES: usize = 50;

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    counted: Mutex<Counters>,
    /// Since when.
    pub begun: Duration,
}

#[derive(Debug, Default)]
struct Counters {
    /// Requests of clients.
    server: Family,
    /// Our requests to upstreams.
    client: Family,
    /// Starts and crashes.
    lives: BTreeMap<ServerPath, (u64, u64)>,
}

/// The histograms of one metric, by their labels.
#[derive(Debug, Default)]
struct Family {
    series: Vec<(Labels<'static>, Histogram)>,
    /// Where series stand, by the hash of their labels.
    places: HashMap<u64, Vec<usize>>,
    names: HashSet<(Option<ServerPath>, Box<str>), Seeded>,
    prompts: HashSet<(Option<ServerPath>, Box<str>), Seeded>,
    codes: HashSet<i64, Seeded>,
}

/// Where a client's request is counted, and the request to an upstream that it caused.
pub(super) type Places = (usize, Option<usize>);

/// The labels of a series. Those that are empty are not shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels<'a> {
    /// What was asked for.
    pub method: &'static str,
    /// The tool.
    pub tool: Cow<'a, str>,
    /// The prompt.
    pub prompt: Cow<'a, str>,
    /// Why it failed.
    pub error: Option<ErrorType>,
    /// Whether the error's code stands for several.
    pub other_error: bool,
    /// How messages travel.
    pub network: Option<Network>,
    /// The protocol version.
    pub version: &'static str,
    /// The upstream.
    pub server: Option<Cow<'a, ServerPath>>,
}

/// How long requests took.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// How many fell into each bucket; the last one has no bound.
    pub buckets: [u64; BUCKETS.len() + 1],
    /// The sum of all times in seconds.
    pub sum: f64,
}

/// What is measured when somebody asks.
#[derive(Debug, Clone, Default)]
pub struct Gauges {
    /// How many servers there are in each state.
    pub servers: Vec<(&'static str, usize)>,
    /// How many sessions there are.
    pub sessions: usize,
    /// The resident memory of this process in bytes.
    pub memory: Option<u64>,
    /// The processor time of this process in seconds.
    pub processor: Option<f64>,
}

/// The text formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// Prometheus text 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Exposition {
    /// The media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Histogram {
    fn add(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = BUCKETS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS.len());
        self.buckets[bucket] += 1;
        self.sum += seconds;
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

impl Hash for Labels<'_> {
    /// What mostly tells labels apart; there is one for each call.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write(self.tool.as_bytes());
        if let Some(server) = &self.server {
            hasher.write(server.server.as_bytes());
        }
    }
}

impl Labels<'_> {
    /// The same, on its own.
    fn into_owned(self) -> Labels<'static> {
        let Self { method, tool, prompt, error, other_error, network, version, server } = self;
        let (tool, prompt) = (Cow::Owned(tool.into_owned()), Cow::Owned(prompt.into_owned()));
        let server = server.map(|server| Cow::Owned(server.into_owned()));
        Labels { method, tool, prompt, error, other_error, network, version, server }
    }

    /// The labels that are not empty, by their dotted names.
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let error =
            self.error.map(|error| if self.other_error { OTHER.to_owned() } else { error.to_string() });
        let server = self.server.as_ref();
        // Toolman's namespaces have no toolbox above them.
        let (toolbox, name) = match server {
            Some(path) if path.server.is_empty() => (None, Some(path.group.to_string())),
            Some(path) => (Some(path.group.to_string()), Some(path.server.to_string())),
            None => (None, None),
        };
        let pairs = [
            ("mcp.method.name", Some(self.method.to_owned())),
            ("gen_ai.tool.name", Some(self.tool.to_string())),
            ("gen_ai.prompt.name", Some(self.prompt.to_string())),
            ("error.type", error),
            ("network.transport", self.network.map(|network| network.as_str().to_owned())),
            ("mcp.protocol.version", Some(self.version.to_owned())),
            ("mcp_workbench.toolbox", toolbox),
            ("mcp_workbench.server", name),
        ];
        pairs
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.filter(|value| !value.is_empty())?)))
            .collect()
    }
}

impl Family {
    /// Counts a request, and says which series has it now.
    fn note(&mut self, labels: Labels<'_>, time: Duration) -> usize {
        let place = self.place(labels);
        self.series[place].1.add(time);
        place
    }

    /// Where the series with these labels stands, which is new unless it was there before.
    fn place(&mut self, mut labels: Labels<'_>) -> usize {
        // What was seen before is within bounds.
        if let Some(place) = self.find(&labels) {
            return place;
        }
        bound(&mut self.names, MOST_NAMES, &labels.server, &mut labels.tool);
        bound(&mut self.prompts, MOST_NAMES, &labels.server, &mut labels.prompt);
        if let Some(ErrorType::Code(code)) = labels.error
            && !self.codes.contains(&code)
            && (self.codes.len() >= MOST_CODES || !self.codes.insert(code))
        {
            (labels.error, labels.other_error) = (Some(ErrorType::Code(0)), true);
        }
        if let Some(place) = self.find(&labels) {
            return place;
        }
        let place = self.series.len();
        self.places.entry(Seeded::default().hash_one(&labels)).or_default().push(place);
        self.series.push((labels.into_owned(), Histogram::default()));
        place
    }

    fn find(&self, labels: &Labels<'_>) -> Option<usize> {
        let same = self.places.get(&Seeded::default().hash_one(labels))?;
        same.iter().copied().find(|place| self.series[*place].0 == *labels)
    }

    fn all(&self) -> Vec<(Labels<'static>, Histogram)> {
        let mut all = self.series.clone();
        all.sort_by_cached_key(|(labels, _)| labels.pairs());
        all
    }
}

/// Replaces a name by [`OTHER`] if it would be one too many.
fn bound(
    known: &mut HashSet<(Option<ServerPath>, Box<str>), Seeded>,
    most: usize,
    server: &Option<Cow<'_, ServerPath>>,
    name: &mut Cow<'_, str>,
) {
    if name.is_empty() || *name == OTHER {
        return;
    }
    let key = (server.as_deref().cloned(), (&**name).into());
    if known.contains(&key) {
        return;
    }
    match known.len() < most {
        true => drop(known.insert(key)),
        false => *name = OTHER.into(),
    }
}

/// The tool and the prompt of a request of this method for this name.
fn named<'a>(method: &str, name: Option<Cow<'a, str>>, exists: bool) -> (Cow<'a, str>, Cow<'a, str>) {
    let name = match name {
        Some(name) if exists => name,
        Some(_) => OTHER.into(),
        None => Cow::default(),
    };
    match method {
        "tools/call" => (name, Cow::default()),
        "prompts/get" => (Cow::default(), name),
        _ => Default::default(),
    }
}

impl Metrics {
    /// Nothing was counted yet.
    pub(super) fn new() -> Self {
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { counted: Mutex::default(), begun }
    }

    /// Counts what happened. Says where a client's request is counted, and the last request to an upstream that it
    /// caused.
    pub(super) fn note(&self, news: &News) -> Option<Places> {
        let mut counted = self.counted.lock();
        let client = |counted: &mut Counters, errand: &Errand| {
            counted.client.note(of_errand(errand), errand.took.unwrap_or_default())
        };
        match news {
            News::Exchange(exchange) => {
                let server = counted.server.note(of_exchange(exchange), exchange.took);
                return Some((
                    server,
                    exchange.errands.iter().map(|errand| client(&mut counted, errand)).last(),
                ));
            }
            News::Errand(errand, _) => drop(client(&mut counted, errand)),
            News::Fact(_, Fact::Start(start)) => {
                counted.lives.entry(start.server.clone()).or_default().0 += 1
            }
            News::Fact(_, Fact::Crash(end)) => counted.lives.entry(end.server.clone()).or_default().1 += 1,
            News::Fact(..) => {}
        }
        None
    }

    /// Counts a request that is like one before, which is counted in these places.
    pub(super) fn note_again(&self, (server, client): Places, (took, errand): Times) {
        let mut counted = self.counted.lock();
        counted.server.series[server].1.add(took);
        if let Some(client) = client {
            counted.client.series[client].1.add(errand);
        }
    }

    /// The histograms of requests of clients, and of our requests to upstreams.
    pub fn histograms(&self) -> [Vec<(Labels<'static>, Histogram)>; 2] {
        let counted = self.counted.lock();
        [counted.server.all(), counted.client.all()]
    }

    /// Everything as text.
    pub fn render(&self, gauges: &Gauges, as_text: Exposition) -> String {
        let mut page = TextPage { text: String::new(), as_text };
        let [server, client] = self.histograms();
        page.histograms(
            "mcp_server_operation_duration_seconds",
            "How long requests of clients took, by what they asked for.",
            &server,
        );
        page.histograms(
            "mcp_client_operation_duration_seconds",
            "How long our requests to servers took, by the servers' own names.",
            &client,
        );
        let lives = self.counted.lock().lives.clone();
        let of = |pick: fn(&(u64, u64)) -> u64| -> Vec<(String, String)> {
            lives.iter().map(|(server, counts)| (labels_of(server), pick(counts).to_string())).collect()
        };
        page.family(
            "mcp_workbench_server_starts",
            "counter",
            "How often servers became ready.",
            &of(|counts| counts.0),
        );
        page.family(
            "mcp_workbench_server_crashes",
            "counter",
            "How often servers ended by themselves.",
            &of(|counts| counts.1),
        );
        let states =
            gauges.servers.iter().map(|(state, count)| (format!("state=\"{state}\""), count.to_string()));
        let states: Vec<_> = states.collect();
        page.family("mcp_workbench_servers", "gauge", "How many servers are in each state.", &states);
        let one = |value: String| [(String::new(), value)];
        let sessions = one(gauges.sessions.to_string());
        page.family("mcp_workbench_sessions", "gauge", "How many sessions of clients there are.", &sessions);
        let version = [(format!("version=\"{}\"", env!("CARGO_PKG_VERSION")), "1".to_owned())];
        page.family("mcp_workbench_build", "info", "The version of the gateway.", &version);
        if let Some(memory) = gauges.memory {
            let help = "The resident memory of the gateway's process.";
            page.family("process_resident_memory_bytes", "gauge", help, &one(memory.to_string()));
        }
        if let Some(processor) = gauges.processor {
            let help = "The processor time of the gateway's process.";
            page.family("process_cpu_seconds", "counter", help, &one(processor.to_string()));
        }
        let help = "When the gateway's process began, in seconds since 1970.";
        page.family("process_start_time_seconds", "gauge", help, &one(self.begun.as_secs_f64().to_string()));
        if as_text == Exposition::OpenMetrics {
            page.text.push_str("# EOF\n");
        }
        page.text
    }
}

fn of_exchange(exchange: &Exchange) -> Labels<'_> {
    let asked = &exchange.asked;
    let (tool, prompt) = named(asked.method, asked.name.as_deref().map(Cow::Borrowed), asked.exists);
    Labels {
        method: asked.method,
        tool,
        prompt,
        error: exchange.error,
        other_error: false,
        network: Some(exchange.asker.network),
        version: exchange.asker.version,
        server: None,
    }
}

fn of_errand(errand: &Errand) -> Labels<'_> {
    let by = errand.by.as_ref();
    let own = errand.name.is_some().then(|| own_name(errand, by.map(|by| &by.secrets)));
    let (tool, prompt) = named(errand.method, own, true);
    Labels {
        method: errand.method,
        tool,
        prompt,
        error: errand.error,
        other_error: false,
        network: by.map(|by| by.network),
        version: by.map_or("", |by| by.version),
        server: Some(Cow::Borrowed(&errand.server)),
    }
}

/// The labels of a server, as they stand between braces.
fn labels_of(server: &ServerPath) -> String {
    match &*server.server {
        "" => format!("mcp_workbench_server=\"{}\"", escaped(&server.group)),
        name => format!(
            "mcp_workbench_toolbox=\"{}\",mcp_workbench_server=\"{}\"",
            escaped(&server.group),
            escaped(name)
        ),
    }
}

/// The value of a label, as both formats want it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The text, as it is written.
struct TextPage {
    text: String,
    as_text: Exposition,
}

impl TextPage {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        if self.as_text == Exposition::OpenMetrics {
            for unit in ["seconds", "bytes"] {
                if name.ends_with(&format!("_{unit}")) {
                    let _ = writeln!(self.text, "# UNIT {name} {unit}");
                }
            }
        }
    }

    /// A family of plain samples: their labels and values. The older format names a family as its samples are named.
    fn family(&mut self, name: &str, kind: &str, help: &str, samples: &[(String, String)]) {
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        match (self.as_text, kind) {
            (Exposition::OpenMetrics, _) => self.head(name, kind, help),
            (Exposition::Prometheus, "info") => self.head(&format!("{name}{suffix}"), "gauge", help),
            (Exposition::Prometheus, _) => self.head(&format!("{name}{suffix}"), kind, help),
        }
        for (labels, value) in samples {
            self.sample(&format!("{name}{suffix}"), labels, value);
        }
    }

    fn sample(&mut self, name: &str, labels: &str, value: &str) {
        let _ = match labels {
            "" => writeln!(self.text, "{name} {value}"),
            labels => writeln!(self.text, "{name}{{{labels}}} {value}"),
        };
    }

    fn histograms(&mut self, name: &str, help: &str, series: &[(Labels<'_>, Histogram)]) {
        self.head(name, "histogram", help);
        for (labels, histogram) in series {
            let pairs = labels.pairs().into_iter();
            let pairs: Vec<_> = pairs
                .map(|(key, value)| format!("{}=\"{}\"", key.replace('.', "_"), escaped(&value)))
                .collect();
            let labels = pairs.join(",");
            let mut below = 0;
            for (at, count) in histogram.buckets.iter().enumerate() {
                below += count;
                let bound = BUCKETS.get(at).map_or_else(|| "+Inf".to_owned(), |bound| self.bound(*bound));
                self.sample(
                    &format!("{name}_bucket"),
                    &format!("{labels},le=\"{bound}\""),
                    &below.to_string(),
                );
            }
            self.sample(&format!("{name}_sum"), &labels, &histogram.sum.to_string());
            self.sample(&format!("{name}_count"), &labels, &below.to_string());
        }
    }

    /// OpenMetrics wants whole numbers with a fraction.
    fn bound(&self, bound: f64) -> String {
        match self.as_text {
            Exposition::Prometheus => bound.to_string(),
            Exposition::OpenMetrics => format!("{bound:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(tool: &str, error: Option<ErrorType>) -> Labels<'static> {
        Labels {
            method: "tools/call",
            tool: tool.to_owned().into(),
            prompt: Cow::default(),
            error,
            other_error: false,
            network: Some(Network::Pipe),
            version: "2025-11-25",
            server: None,
        }
    }

    #[test]
    fn labels_are_bounded() {
        let mut family = Family::default();
        for number in 0..1000 {
            family.note(labels(&format!("tool-{number}"), None), Duration::ZERO);
        }
        // One that has a label keeps it.
        family.note(labels("tool-7", None), Duration::ZERO);
        let all = family.all();
        assert_eq!(all.len(), MOST_NAMES + 1);
        let count =
            |tool: &str| all.iter().find(|(labels, _)| labels.tool == tool).map(|(_, times)| times.count());
        assert_eq!(
            (count(OTHER), count("tool-7"), count("tool-299"), count("tool-300")),
            (Some(700), Some(2), Some(1), None)
        );
        let mut family = Family::default();
        for code in 0..1000 {
            family.note(labels("t", Some(ErrorType::Code(code))), Duration::ZERO);
        }
        assert_eq!(family.all().len(), MOST_CODES + 1);
        let errors: Vec<_> = family.all().into_iter().flat_map(|(labels, _)| labels.pairs()).collect();
        assert!(errors.contains(&("error.type", OTHER.to_owned())));
        assert_eq!(&*named("tools/call", Some("ghost".into()), false).0, OTHER);
        assert_eq!(named("resources/read", Some("a://b".into()), true), Default::default());
        assert_eq!(&*named("prompts/get", Some("p".into()), true).1, "p");
    }

    #[test]
    fn times_fall_into_buckets() {
        let mut histogram = Histogram::default();
        for millis in [0, 10, 11, 999, 1000, 300_000, 300_001] {
            histogram.add(Duration::from_millis(millis));
        }
        assert_eq!(histogram.buckets, [2, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((histogram.count(), histogram.sum.round()), (7, 602.0));
    }

    #[test]
    fn both_formats_are_well_formed() {
        let metrics = Metrics::new();
        {
            let mut counted = metrics.counted.lock();
            counted.server.note(labels("a\"b\\c\nd", Some(ErrorType::ToolError)), Duration::from_millis(15));
            let server = ServerPath { group: "dev".into(), server: "fs".into() };
            counted
                .client
                .note(Labels { server: Some(Cow::Borrowed(&server)), ..labels("t", None) }, Duration::ZERO);
            counted.lives.insert(server, (2, 1));
            counted.lives.insert(ServerPath { group: "ns".into(), server: "".into() }, (1, 0));
        }
        let gauges = Gauges {
            servers: vec![("idle", 1), ("running", 2)],
            sessions: 3,
            memory: Some(4096),
            processor: Some(1.5),
        };
        let plain = metrics.render(&gauges, Exposition::Prometheus);
        let open = metrics.render(&gauges, Exposition::OpenMetrics);
        let common = [
            r#"mcp_server_operation_duration_seconds_sum{mcp_method_name="tools/call",gen_ai_tool_name="a\"b\\c\nd",error_type="tool_error",network_transport="pipe",mcp_protocol_version="2025-11-25"} 0.015"#,
            r#"mcp_client_operation_duration_seconds_count{mcp_method_name="tools/call",gen_ai_tool_name="t",network_transport="pipe",mcp_protocol_version="2025-11-25",mcp_workbench_toolbox="dev",mcp_workbench_server="fs"} 1"#,
            r#"mcp_workbench_server_starts_total{mcp_workbench_toolbox="dev",mcp_workbench_server="fs"} 2"#,
            r#"mcp_workbench_server_crashes_total{mcp_workbench_toolbox="dev",mcp_workbench_server="fs"} 1"#,
            r#"mcp_workbench_server_starts_total{mcp_workbench_server="ns"} 1"#,
            r#"mcp_workbench_servers{state="running"} 2"#,
            "mcp_workbench_sessions 3",
            "process_resident_memory_bytes 4096",
            "process_cpu_seconds_total 1.5",
        ];
        for text in [&plain, &open] {
            for line in common {
                assert!(text.lines().any(|other| other == line), "{line}\n{text}");
            }
            assert!(text.contains(",le=\"0.02\"} 1\n") && text.contains(",le=\"+Inf\"} 1\n"), "{text}");
        }
        let has = |text: &str, line: &str| text.lines().any(|other| other == line);
        assert!(has(&plain, "# TYPE mcp_workbench_server_starts_total counter"));
        assert!(has(&open, "# TYPE mcp_workbench_server_starts counter"));
        assert!(has(&plain, "# TYPE mcp_workbench_build_info gauge"));
        assert!(has(&open, "# TYPE mcp_workbench_build info"));
        assert!(has(&open, "# UNIT mcp_server_operation_duration_seconds seconds"));
        assert!(plain.contains("le=\"1\"") && open.contains("le=\"1.0\""));
        assert!(open.ends_with("# EOF\n") && !plain.contains("# EOF"));
    }
}
