//! Renders a configuration text without its secrets, so that diffs can be shown.

use super::{Format, parse};
use crate::config::node::{Kind, Node, Span};

/// Decides how a value is shown. The arguments are the keys that lead to the value, the item before it in its
/// list, and its text. `None` shows the text itself.
pub type Secrecy<'a> = dyn Fn(&[&str], Option<&str>, &str) -> Option<String> + 'a;

/// Returns the text with every value replaced by what `secrecy` shows for it. Comments that look like
/// commented-out settings become `…`.
pub fn mask(format: Format, text: &str, secrecy: &Secrecy<'_>) -> String {
    let Ok(parsed) = parse(format, text) else { return "…\n".to_owned() };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut masker = Masker { text, secrecy, spans: Vec::new() };
    masker.visit(&parsed.node, &mut Vec::new(), None);
    let mut spans = masker.spans;
    spans.sort_by_key(|(span, _)| span.start);
    let (mut shown, mut at) = (String::with_capacity(text.len()), 0);
    for (span, replacement) in spans.into_iter().chain([(text.len()..text.len(), None)]) {
        if span.start < at {
            continue;
        }
        shown.push_str(&without_comments(format, &text[at..span.start], secrecy));
        match replacement {
            Some(replacement) => shown.push_str(&replacement),
            None => shown.push_str(&text[span.clone()]),
        }
        at = span.end;
    }
    shown
}

struct Masker<'a> {
    text: &'a str,
    secrecy: &'a Secrecy<'a>,
    /// The spans of keys and values, each with its replacement.
    spans: Vec<(Span, Option<String>)>,
}

impl<'a> Masker<'a> {
    fn visit(&mut self, node: &'a Node, keys: &mut Vec<&'a str>, previous: Option<&str>) {
        match &node.kind {
            Kind::Object(entries) => {
                for entry in entries {
                    self.spans.push((entry.key_span.clone(), None));
                    keys.push(&entry.key);
                    self.visit(&entry.value, keys, None);
                    keys.pop();
                }
            }
            Kind::List(items) => {
                let mut previous = None;
                for item in items {
                    self.visit(item, keys, previous);
                    previous = item.string();
                }
            }
            Kind::Null | Kind::Boolean(_) => self.spans.push((node.span.clone(), None)),
            Kind::String(_) | Kind::Number(_) | Kind::Other(_) => {
                let spelled = self.text.get(node.span.clone()).unwrap_or_default();
                let value = node.string().unwrap_or(spelled);
                let shown = (self.secrecy)(keys, previous, value).map(|shown| match spelled.chars().next() {
                    Some(quote @ ('"' | '\'')) => format!("{quote}{shown}{quote}"),
                    _ => shown,
                });
                self.spans.push((node.span.clone(), shown));
            }
        }
    }
}

/// Masks the text between two values, where only comments can hold a secret.
fn without_comments(format: Format, gap: &str, secrecy: &Secrecy<'_>) -> String {
    let start = match format {
        Format::Json => [gap.find("//"), gap.find("/*")].into_iter().flatten().min(),
        Format::Toml | Format::Yaml => gap.find('#'),
    };
    let Some(start) = start else { return gap.to_owned() };
    let (before, comment) = gap.split_at(start);
    let end = match comment.starts_with("/*") {
        true => comment.find("*/").map_or(comment.len(), |end| end + 2),
        false => comment.find(['\n', '\r']).unwrap_or(comment.len()),
    };
    let (comment, rest) = comment.split_at(end);
    let sign = if format == Format::Json { 2 } else { 1 };
    let words = &comment[sign..];
    let telling = words.split_whitespace().any(|word| secrecy(&[], None, word).is_some());
    let shown = match telling || words.contains([':', '=', '"', '\'']) {
        true => {
            let lines = words.matches('\n').count();
            let close = if comment.starts_with("/*") { "*/" } else { "" };
            format!("{} …{}{close}", &comment[..sign], "\n".repeat(lines))
        }
        false => comment.to_owned(),
    };
    format!("{before}{shown}{}", without_comments(format, rest, secrecy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_commented_out_settings_are_hidden() {
        let secrecy = |keys: &[&str], previous: Option<&str>, text: &str| {
            (keys.contains(&"env") || previous == Some("--key") || text == "hunter2")
                .then(|| format!("<{}>", text.len()))
        };
        for (format, text, expected) in [
            (
                Format::Json,
                "{\"env\": {\"A\": \"hunter2\", \"B\": 12, \"C\": true}, // old \"A\": \"x\"\n \"b\": [\"--key\", \"k\", /* fine */ \"z\"]}",
                "{\"env\": {\"A\": \"<7>\", \"B\": <2>, \"C\": true}, // …\n \"b\": [\"--key\", \"<1>\", /* fine */ \"z\"]}",
            ),
            (
                Format::Toml,
                "# plain words\n# hunter2 it was\na = \"b\" # A=1\n[[s]]\nenv = { K = 'v' }\n[[s]]\nx = 1\n",
                "# plain words\n# …\na = \"b\" # …\n[[s]]\nenv = { K = '<1>' }\n[[s]]\nx = 1\n",
            ),
            (
                Format::Yaml,
                "a: b # fine\nenv:\n  K: ü secret\n  # L: secret\n  M: 'x'\nn: [--key, abc]\n",
                "a: b # fine\nenv:\n  K: <9>\n  # …\n  M: '<1>'\nn: [--key, <3>]\n",
            ),
        ] {
            assert_eq!(mask(format, text, &secrecy), expected);
        }
    }
}
