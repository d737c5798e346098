//! Which collector gets metrics and traces, as the variables of OpenTelemetry say.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};

use super::trace::Sampler;
use crate::config::Environment;
use crate::text::percent::decode_strictly;

/// What is exported, and where to. The default exports nothing.
#[derive(Debug, Clone, Default)]
pub struct Telemetry {
    /// Where spans go.
    pub traces: Option<Collector>,
    /// Where metrics go.
    pub metrics: Option<Collector>,
    /// What describes this process.
    pub resource: Vec<(String, String)>,
    /// Which requests have spans.
    pub sampler: Sampler,
    /// How long spans gather.
    pub span_delay: Duration,
    /// How often metrics are sent.
    pub metric_interval: Duration,
}

/// Where one signal goes.
#[derive(Debug, Clone)]
pub struct Collector {
    /// The URL.
    pub uri: Uri,
    /// The headers; their values are secret.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// What the variables say, and what is wrong with them, in words for a person. Nothing else is read unless one of them
/// names a collector.
pub fn read(environment: &Environment<'_>, program: &str) -> (Telemetry, Vec<String>) {
    let set =
        |name: &str| environment(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let mut problems = Vec::new();
    if set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return (Telemetry::default(), problems);
    }
    let mut target = |signal: &str, path: &str| -> Option<Collector> {
        let of_signal = |name: &str| set(&format!("OTEL_EXPORTER_OTLP_{signal}_{name}"));
        let either = |name: &str| of_signal(name).or_else(|| set(&format!("OTEL_EXPORTER_OTLP_{name}")));
        // The variable of one signal is the whole address; the common one lacks the path.
        let url = of_signal("ENDPOINT").or_else(|| {
            set("OTEL_EXPORTER_OTLP_ENDPOINT").map(|base| format!("{}{path}", base.trim_end_matches('/')))
        })?;
        if set(&format!("OTEL_{signal}_EXPORTER")).is_some_and(|name| name == "none") {
            return None;
        }
        let uri = url.parse::<Uri>().ok();
        let Some(uri) =
            uri.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some())
        else {
            problems.push(format!(
                "OTEL_EXPORTER_OTLP_…ENDPOINT is no http or https address, so no {} are exported",
                signal.to_lowercase()
            ));
            return None;
        };
        if let Some(protocol) = either("PROTOCOL").filter(|protocol| protocol != "http/json") {
            let words = format!(
                "OTEL_EXPORTER_OTLP_PROTOCOL is `{protocol}`, but what is exported is sent as `http/json`"
            );
            if !problems.contains(&words) {
                problems.push(words);
            }
        }
        let mut headers = Vec::new();
        for pair in
            either("HEADERS").iter().flat_map(|pairs| pairs.split(',')).filter(|pair| !pair.trim().is_empty())
        {
            let read = pair.split_once('=').and_then(|(name, value)| {
                let mut value = HeaderValue::from_str(&decoded(value)).ok()?;
                value.set_sensitive(true);
                Some((name.trim().parse().ok()?, value))
            });
            match read {
                Some(header) => headers.push(header),
                // The value may be a secret, so it is not shown.
                None => problems
                    .push("OTEL_EXPORTER_OTLP_HEADERS has an entry that is no `name=value`".to_owned()),
            }
        }
        Some(Collector { uri, headers, timeout: millis(either("TIMEOUT"), 10_000) })
    };
    let (traces, metrics) = (target("TRACES", "/v1/traces"), target("METRICS", "/v1/metrics"));
    if traces.is_none() && metrics.is_none() {
        return (Telemetry::default(), problems);
    }
    let sampler = set("OTEL_TRACES_SAMPLER").and_then(|name| {
        let sampler = Sampler::named(&name, set("OTEL_TRACES_SAMPLER_ARG").as_deref());
        if sampler.is_none() {
            problems.push(format!(
                "OTEL_TRACES_SAMPLER is `{name}`, which we do not know; all requests are sampled"
            ));
        }
        sampler
    });
    let telemetry = Telemetry {
        traces,
        metrics,
        resource: resource(set("OTEL_RESOURCE_ATTRIBUTES"), set("OTEL_SERVICE_NAME"), program),
        sampler: sampler.unwrap_or_default(),
        span_delay: millis(set("OTEL_BSP_SCHEDULE_DELAY"), 5_000),
        metric_interval: millis(set("OTEL_METRIC_EXPORT_INTERVAL"), 60_000),
    };
    (telemetry, problems)
}

/// The values of headers for a collector, which must not be printed, each with the name of its variable.
pub fn secrets(environment: &Environment<'_>) -> Vec<(String, String)> {
    let names = ["", "TRACES_", "METRICS_"].map(|signal| format!("OTEL_EXPORTER_OTLP_{signal}HEADERS"));
    let mut secrets = Vec::new();
    for name in names {
        for pair in environment(&name).iter().flat_map(|pairs| pairs.split(',')) {
            if let Some((_, value)) = pair.split_once('=') {
                secrets.push((decoded(value), name.clone()));
            }
        }
    }
    secrets
}

/// A value as it is meant. What is no percent-encoding means itself.
fn decoded(value: &str) -> String {
    let value = value.trim();
    decode_strictly(value).map_or_else(|| value.to_owned(), |decoded| decoded.into_owned())
}

/// A number of milliseconds; anything else counts as not set.
fn millis(value: Option<String>, default: u64) -> Duration {
    Duration::from_millis(
        value.and_then(|value| value.parse().ok()).filter(|millis| *millis > 0).unwrap_or(default),
    )
}

fn resource(attributes: Option<String>, service: Option<String>, program: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for pair in attributes.iter().flat_map(|pairs| pairs.split(',')) {
        if let Some((key, value)) = pair.split_once('=') {
            all.push((key.trim().to_owned(), decoded(value)));
        }
    }
    let mut set = |key: &str, value: String, wins: bool| match all.iter_mut().find(|(known, _)| known == key)
    {
        Some((_, known)) if wins => *known = value,
        Some(_) => {}
        None => all.push((key.to_owned(), value)),
    };
    set("service.name", service.clone().unwrap_or_else(|| program.to_owned()), service.is_some());
    set("service.version", env!("CARGO_PKG_VERSION").to_owned(), false);
    set("process.pid", std::process::id().to_string(), false);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_from(vars: &[(&str, &str)]) -> (Telemetry, Vec<String>) {
        let environment =
            |name: &str| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        read(&environment, "toolman")
    }

    #[test]
    fn signals_go_where_the_variables_say() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://other/t");
        let (to_traces, to_metrics) = ("http://collector:4318/v1/traces", "http://collector:4318/v1/metrics");
        for (vars, expected) in [
            (&[][..], [None, None]),
            (&[endpoint], [Some(to_traces), Some(to_metrics)]),
            (&[traces], [Some("https://other/t"), None]),
            (&[endpoint, traces], [Some("https://other/t"), Some(to_metrics)]),
            (&[endpoint, ("OTEL_TRACES_EXPORTER", "none")], [None, Some(to_metrics)]),
            (&[endpoint, ("OTEL_METRICS_EXPORTER", "none")], [Some(to_traces), None]),
            (&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")], [None, None]),
            (&[endpoint, ("OTEL_SDK_DISABLED", "false")], [Some(to_traces), Some(to_metrics)]),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "  ")], [None, None]),
        ] {
            let (telemetry, problems) = read_from(vars);
            let targets = [telemetry.traces, telemetry.metrics]
                .map(|target| target.map(|target| target.uri.to_string()));
            assert_eq!(targets.each_ref().map(Option::as_deref), expected, "{vars:?}");
            assert_eq!(problems, [""; 0]);
        }
    }

    #[test]
    fn the_rest_is_read_as_well() {
        let (telemetry, problems) = read_from(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hunter22, x-team = tools "),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x-other=1"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test%201,service.name=loses"),
            ("OTEL_SERVICE_NAME", "wins"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_BSP_SCHEDULE_DELAY", "100"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "nonsense"),
        ]);
        assert_eq!(problems, [""; 0]);
        let (traces, metrics) = (telemetry.traces.expect("it is on"), telemetry.metrics.expect("it is on"));
        let headers: Vec<_> = traces
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().expect("text")))
            .collect();
        assert_eq!(headers, [("authorization", "Bearer hunter22"), ("x-team", "tools")]);
        assert!(!format!("{traces:?}").contains("hunter22"));
        assert_eq!(metrics.headers[0].0, "x-other");
        assert_eq!(
            (traces.timeout, telemetry.span_delay),
            (Duration::from_millis(250), Duration::from_millis(100))
        );
        assert_eq!(telemetry.metric_interval, Duration::from_secs(60));
        assert_eq!(telemetry.sampler, Sampler { parent_based: false, ratio: 0.25 });
        let of = |key: &str| {
            telemetry.resource.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
        };
        assert_eq!((of("service.name"), of("deployment.environment")), (Some("wins"), Some("test 1")));
        let (telemetry, _) = read_from(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1")]);
        assert!(telemetry.resource.contains(&("service.name".to_owned(), "toolman".to_owned())));
        assert_eq!(telemetry.sampler, Sampler::default());
    }

    #[test]
    fn what_is_wrong_is_said_once_and_shows_no_secret() {
        let (telemetry, problems) = read_from(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "hunter22"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ]);
        assert!(telemetry.traces.is_none() && telemetry.metrics.is_some());
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(problems.iter().any(|problem| problem.contains("`grpc`") && problem.contains("`http/json`")));
        assert!(!problems.iter().any(|problem| problem.contains("hunter22")));
        let hidden =
            secrets(&|name| (name == "OTEL_EXPORTER_OTLP_HEADERS").then(|| "a=hunter22,b=%20x".to_owned()));
        let expected = [("hunter22", "OTEL_EXPORTER_OTLP_HEADERS"), (" x", "OTEL_EXPORTER_OTLP_HEADERS")];
        assert_eq!(hidden, expected.map(|(value, name)| (value.to_owned(), name.to_owned())));
    }
}
