//! The place of a request in a trace: W3C trace context, as `_meta` carries it (SEP-414), and who is sampled.

use crate::text::digest::write_hex;

/// The place of one request in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trail {
    /// The trace.
    pub trace: u128,
    /// The request's own span.
    pub span: u64,
    /// The span that caused it; 0 if there is none.
    pub parent: u64,
    /// Whether the span is exported.
    pub sampled: bool,
    /// The vendors' part of the context, as it came.
    pub state: Option<Box<str>>,
}

impl Trail {
    /// The place of a request that this one causes.
    pub fn child(&self, [span]: [u64; 1]) -> Self {
        Self { span, parent: self.span, state: self.state.clone(), ..*self }
    }

    /// The `_meta` that tells whoever gets the request its context, and nothing else.
    pub fn meta(&self) -> String {
        let mut meta = Vec::with_capacity(73);
        meta.extend_from_slice(b"{\"traceparent\":\"00-");
        write_hex(&mut meta, &self.trace.to_be_bytes());
        meta.push(b'-');
        write_hex(&mut meta, &self.span.to_be_bytes());
        meta.extend_from_slice(if self.sampled { b"-01\"}" } else { b"-00\"}" });
        String::from_utf8(meta).expect("digits and dashes")
    }
}

/// The context that a request brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    /// The trace.
    pub trace: u128,
    /// The span that caused the request.
    pub span: u64,
    /// Whether that span is sampled.
    pub sampled: bool,
}

impl Parent {
    /// Reads a `traceparent`; `None` if it is not valid.
    pub fn read(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let part = |from: usize, to: usize| {
            let part = bytes.get(from..to)?;
            part.iter().all(is_hex).then(|| std::str::from_utf8(part).ok())?
        };
        let (version, trace, span, flags) = (part(0, 2)?, part(3, 35)?, part(36, 52)?, part(53, 55)?);
        let dashes = [2, 35, 52].iter().all(|at| bytes[*at] == b'-');
        // Later versions may add something behind another dash.
        let ends = match version {
            "ff" => false,
            "00" => bytes.len() == 55,
            _ => bytes.len() == 55 || bytes[55] == b'-',
        };
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        (dashes && ends).then_some(Self { trace, span, sampled: flags & 1 == 1 })
    }
}

/// Who is sampled, as `OTEL_TRACES_SAMPLER` says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// Whether a parent's decision counts.
    pub parent_based: bool,
    /// The share of traces that are sampled where no parent decides.
    pub ratio: f64,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { parent_based: true, ratio: 1.0 }
    }
}

impl Sampler {
    /// The sampler of this name, with its argument; `None` if there is no such sampler.
    pub fn named(name: &str, argument: Option<&str>) -> Option<Self> {
        // A share that cannot be read counts as all, as the specification says.
        let share =
            || argument.and_then(|text| text.trim().parse().ok()).filter(|share| (0.0..=1.0).contains(share));
        let (parent_based, base) = match name.strip_prefix("parentbased_") {
            Some(base) => (true, base),
            None => (false, name),
        };
        let ratio = match base {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => share().unwrap_or(1.0),
            _ => return None,
        };
        Some(Self { parent_based, ratio })
    }

    /// Whether a request of this trace is sampled.
    pub fn samples(self, trace: u128, parent: Option<Parent>) -> bool {
        match parent.filter(|_| self.parent_based) {
            Some(parent) => parent.sampled,
            // The lower half of an id is random, and everybody who sees the id decides alike.
            None => ((trace as u64 >> 11) as f64) < self.ratio * (1_u64 << 53) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_read_as_the_specification_says() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let of =
            |version: &str, trace: &str, span: &str, rest: &str| format!("{version}-{trace}-{span}-{rest}");
        for (text, sampled) in [
            (of("00", trace, "00f067aa0ba902b7", "01"), Some(true)),
            (of("00", trace, "00f067aa0ba902b7", "00"), Some(false)),
            (of("00", trace, "00f067aa0ba902b7", "03"), Some(true)),
            (of("cc", trace, "00f067aa0ba902b7", "01-later"), Some(true)),
            (of("00", trace, "00f067aa0ba902b7", "01-later"), None),
            (of("cc", trace, "00f067aa0ba902b7", "01later"), None),
            (of("ff", trace, "00f067aa0ba902b7", "01"), None),
            (of("00", &"0".repeat(32), "00f067aa0ba902b7", "01"), None),
            (of("00", trace, "0000000000000000", "01"), None),
            (of("00", &trace.to_uppercase(), "00f067aa0ba902b7", "01"), None),
            (of("00", trace, "00f067aa0ba902b7", "1"), None),
            (of("00", &trace[1..], "00f067aa0ba902b7", "01"), None),
            ("é".repeat(40), None),
            (String::new(), None),
        ] {
            assert_eq!(Parent::read(&text).map(|parent| parent.sampled), sampled, "{text}");
        }
        let parent = Parent::read(&of("00", trace, "00f067aa0ba902b7", "01")).expect("it is valid");
        let trail = Trail {
            trace: parent.trace,
            span: 9,
            parent: parent.span,
            sampled: false,
            state: Some("a=b".into()),
        };
        assert_eq!(trail.meta(), format!(r#"{{"traceparent":"00-{trace}-0000000000000009-00"}}"#));
        let child = trail.child([10]);
        assert_eq!((child.trace, child.span, child.parent, child.sampled), (parent.trace, 10, 9, false));
        assert_eq!(child.state.as_deref(), Some("a=b"));
    }

    #[test]
    fn samplers_decide_by_parent_and_by_share() {
        let parent = |sampled| Some(Parent { trace: 1, span: 1, sampled });
        let (low, high) = (1_u128, u128::from(u64::MAX));
        for (name, argument, expected) in [
            // Without a parent: a low and a high id; with a parent that is sampled, and with one that is not.
            ("always_on", None, [true, true, true, true]),
            ("always_off", None, [false, false, false, false]),
            ("traceidratio", Some("0.5"), [true, false, false, false]),
            ("traceidratio", Some("nonsense"), [true, true, true, true]),
            ("parentbased_always_on", None, [true, true, true, false]),
            ("parentbased_always_off", None, [false, false, true, false]),
            ("parentbased_traceidratio", Some("0"), [false, false, true, false]),
        ] {
            let sampler = Sampler::named(name, argument).expect(name);
            let decisions = [
                sampler.samples(low, None),
                sampler.samples(high, None),
                sampler.samples(high, parent(true)),
                sampler.samples(high, parent(false)),
            ];
            assert_eq!(decisions, expected, "{name}");
        }
        assert_eq!(Sampler::named("jaeger_remote", None), None);
        assert_eq!(
            Sampler::default(),
            Sampler::named("parentbased_always_on", None).expect("it is the default")
        );
    }
}
