//! `read_result`: what it takes and what it answers.

use std::ops::Range;

use super::{Whole, lines, path, search};
use crate::json::quote;

/// The bytes that an expression may have as JSON, so that an answer can repeat it.
const LONGEST_PATTERN: usize = 1000;

/// What a call of `read_result` asks for.
#[derive(Debug, PartialEq)]
pub struct ReadRequest {
    /// Which result.
    pub id: String,
    what: What,
}

#[derive(Debug, PartialEq)]
enum What {
    Part(Portion),
    Grep { pattern: String, context: Option<usize>, within: Portion },
    Path(String),
}

/// A part of a result, as it was asked for.
#[derive(Debug, PartialEq, Clone, Copy)]
enum Portion {
    Everything,
    Lines(Numbers),
    Bytes(Numbers),
}

/// `"120-180"`, `"120-"` or `"-50"`.
#[derive(Debug, PartialEq, Clone, Copy)]
enum Numbers {
    From(usize, Option<usize>),
    Last(usize),
}

/// The arguments of a call, as far as their types go.
#[derive(Debug, Default)]
pub struct ReadArguments {
    /// Which result.
    pub id: String,
    /// A range of lines.
    pub lines: Option<String>,
    /// A range of bytes.
    pub bytes: Option<String>,
    /// A regular expression.
    pub grep: Option<String>,
    /// How many lines to show around each match.
    pub context: Option<usize>,
    /// A JSONPath.
    pub path: Option<String>,
}

impl ReadRequest {
    /// Reads the arguments; the error says what is right.
    pub fn new(arguments: ReadArguments) -> Result<Self, String> {
        let ReadArguments { id, lines, bytes, grep, context, path } = arguments;
        let part = match (lines, bytes) {
            (Some(_), Some(_)) => return Err("give lines or bytes, not both".to_owned()),
            (Some(lines), None) => Portion::Lines(Numbers::read("lines", &lines, 1)?),
            (None, Some(bytes)) => Portion::Bytes(Numbers::read("bytes", &bytes, 0)?),
            (None, None) => Portion::Everything,
        };
        let what = match (grep, context, path) {
            (None, None, None) => What::Part(part),
            (Some(pattern), context, None) if quote(&pattern).len() <= LONGEST_PATTERN => {
                What::Grep { pattern, context, within: part }
            }
            (Some(_), _, None) => {
                return Err(format!("grep, written as JSON, may have at most {LONGEST_PATTERN} bytes"));
            }
            (None, None, Some(path)) if part == Portion::Everything => What::Path(path),
            (_, _, Some(_)) => return Err("path goes with id alone".to_owned()),
            (None, Some(_), None) => return Err("context needs grep".to_owned()),
        };
        Ok(Self { id, what })
    }

    /// The texts of the answer, one or two, for a client that knows us as the tool of this name; the error says what is
    /// right.
    pub fn answer(&self, tool: &str, whole: &Whole) -> Result<Vec<String>, String> {
        let next = Next { tool, id: &self.id };
        match &self.what {
            What::Part(part) => Ok(read_part(whole, part.range(whole)?, &next)),
            What::Grep { pattern, context, within } => {
                grep(whole, within.range(whole)?, pattern, *context, &next)
            }
            What::Path(path) => follow(whole, path, &next),
        }
    }
}

/// How an answer names the next call.
struct Next<'a> {
    tool: &'a str,
    id: &'a str,
}

impl Next<'_> {
    fn call(&self, more: &str) -> String {
        format!("{} {{\"id\":{}{more}}}", self.tool, quote(self.id))
    }
}

impl Numbers {
    /// Reads a range that counts from `first`.
    fn read(key: &str, text: &str, first: usize) -> Result<Self, String> {
        let wrong = || format!("{key} must be a range such as \"{first}-99\", \"100-\" or \"-50\"");
        let (from, to) = text.split_once('-').ok_or_else(wrong)?;
        let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => text.parse().map_err(|_| wrong()),
            false => Err(wrong()),
        };
        let span = match (from, to) {
            ("", to) => Self::Last(number(to)?),
            (from, "") => Self::From(number(from)?, None),
            (from, to) => Self::From(number(from)?, Some(number(to)?)),
        };
        match span {
            Self::From(from, _) if from < first => Err(wrong()),
            Self::From(from, Some(to)) if to < from => Err(format!("{key} must not end before it begins")),
            Self::Last(0) => Err(wrong()),
            span => Ok(span),
        }
    }

    /// The numbers it stands for, the last one excluded, of so many that count from `first`.
    fn of(self, key: &str, first: usize, count: usize) -> Result<Range<usize>, String> {
        match self {
            Self::Last(last) => Ok(first + count.saturating_sub(last)..first + count),
            Self::From(from, _) if from >= first + count => {
                Err(format!("{key} begins at {from}, but the result has {count} {key}"))
            }
            Self::From(from, to) => {
                Ok(from..to.map_or(first + count, |to| (first + count).min(to.saturating_add(1))))
            }
        }
    }
}

impl Portion {
    /// The bytes that it stands for.
    fn range(self, whole: &Whole) -> Result<Range<usize>, String> {
        let text = &whole.text;
        match self {
            Self::Everything => Ok(0..text.len()),
            Self::Lines(span) => {
                let numbers = span.of("lines", 1, whole.lines)?;
                Ok(lines::start(text, numbers.start)..lines::start(text, numbers.end))
            }
            Self::Bytes(span) => {
                let bytes = span.of("bytes", 0, text.len())?;
                Ok(lines::floor(text, bytes.start)..lines::floor(text, bytes.end))
            }
        }
    }
}

/// As much of a range as fits.
fn read_part(whole: &Whole, range: Range<usize>, next: &Next<'_>) -> Vec<String> {
    let Whole { text, limit, lines: line_count, .. } = whole;
    let from = |at: usize| format!(",\"bytes\":\"{at}-\"");
    let head = |piece: &Range<usize>| {
        let (first, last) = lines::touched(text, piece);
        let what_next = match piece.end == text.len() {
            true => "This is the end.".to_owned(),
            false => format!("Next: {}", next.call(&from(piece.end))),
        };
        format!(
            "Bytes {} of {}, lines {first}-{last} of {line_count}. {what_next}",
            lines::inclusive(piece),
            text.len()
        )
    };
    // The head of the last character is the longest that a piece can have, but for the words at its end.
    let longest = head(&(lines::floor(text, text.len() - 1)..text.len())).len();
    let room = limit.saturating_sub(longest + "Next: ".len() + next.call(&from(text.len())).len());
    let piece = lines::first(text, range.start, range.end, room);
    match piece.is_empty() {
        true => vec![format!("No character ends there. Next: {}", next.call(&from(piece.end)))],
        false => vec![head(&piece), text[piece].to_owned()],
    }
}

fn grep(
    whole: &Whole,
    within: Range<usize>,
    pattern: &str,
    context: Option<usize>,
    next: &Next<'_>,
) -> Result<Vec<String>, String> {
    let expression = search::compile(pattern)?;
    let more = |from: usize| {
        let context = context.map_or(String::new(), |context| format!(",\"context\":{context}"));
        let to = if within.end == whole.text.len() { String::new() } else { (within.end - 1).to_string() };
        next.call(&format!(",\"grep\":{}{context},\"bytes\":\"{from}-{to}\"", quote(pattern)))
    };
    let room = whole.limit.saturating_sub(longest_head(whole, &more(whole.text.len())));
    let found = search::search(&whole.text, &within, &expression, context.unwrap_or(0), room);
    Ok(matches(found.matches, found.shown, found.next.map(more), found.text))
}

fn follow(whole: &Whole, path: &str, next: &Next<'_>) -> Result<Vec<String>, String> {
    let Whole { text, limit, .. } = whole;
    let found = path::find(text, path)?;
    let more = |range: &Range<usize>| next.call(&format!(",\"bytes\":\"{}\"", lines::inclusive(range)));
    let room = limit.saturating_sub(
        longest_head(whole, &more(&(text.len()..text.len() + 1))) + text.len().to_string().len(),
    );
    let (mut shown, mut texts, mut rest) = (0, String::new(), None);
    for one in &found {
        let line = format!("{}: {}\n", one.path, &text[one.span.clone()]);
        let left = room - texts.len();
        if line.len() <= left {
            texts.push_str(&line);
            shown += 1;
            continue;
        }
        rest = Some(more(&one.span));
        // Its beginning is worth showing where more than its path can be seen.
        if left > one.path.len() + 20 {
            texts.push_str(&line[lines::first(&line, 0, line.len(), left)]);
            shown += 1;
        }
        break;
    }
    texts.truncate(texts.trim_end_matches('\n').len());
    Ok(matches(found.len(), shown, rest, texts))
}

/// The bytes of the longest first text of an answer with matches.
fn longest_head(whole: &Whole, next: &str) -> usize {
    let digits = whole.text.len().to_string().len();
    " matches;  shown. Next: ".len() + 2 * digits + next.len()
}

/// An answer with matches.
fn matches(count: usize, shown: usize, next: Option<String>, text: String) -> Vec<String> {
    let noun = if count == 1 { "match" } else { "matches" };
    match next {
        _ if count == 0 => vec!["No matches.".to_owned()],
        None => vec![format!("{count} {noun}."), text],
        Some(next) => vec![format!("{count} {noun}; {shown} shown. Next: {next}"), text],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(arguments: &serde_json::Value) -> Result<ReadRequest, String> {
        let text = |key: &str| arguments.get(key).and_then(|value| value.as_str()).map(str::to_owned);
        ReadRequest::new(ReadArguments {
            id: text("id").unwrap_or_default(),
            lines: text("lines"),
            bytes: text("bytes"),
            grep: text("grep"),
            context: arguments.get("context").and_then(|value| value.as_u64()).map(|value| value as usize),
            path: text("path"),
        })
    }

    fn answer(whole: &Whole, arguments: serde_json::Value) -> Result<Vec<String>, String> {
        request(&arguments)?.answer("read_result", whole)
    }

    fn numbered() -> Whole {
        Whole::new((1..=1000).map(|line| format!("line {line} ä\n")).collect(), 4000)
    }

    #[test]
    fn arguments_are_checked() {
        for (arguments, expected) in [
            (json!({"id": "r", "lines": "1-2", "bytes": "1-2"}), "give lines or bytes, not both"),
            (
                json!({"id": "r", "lines": "0-2"}),
                "lines must be a range such as \"1-99\", \"100-\" or \"-50\"",
            ),
            (json!({"id": "r", "lines": "3"}), "lines must be a range such as \"1-99\", \"100-\" or \"-50\""),
            (
                json!({"id": "r", "bytes": "a-b"}),
                "bytes must be a range such as \"0-99\", \"100-\" or \"-50\"",
            ),
            (json!({"id": "r", "bytes": "9-3"}), "bytes must not end before it begins"),
            (json!({"id": "r", "context": 1}), "context needs grep"),
            (json!({"id": "r", "grep": "a", "path": "$"}), "path goes with id alone"),
            (json!({"id": "r", "lines": "1-2", "path": "$"}), "path goes with id alone"),
            (
                json!({"id": "r", "bytes": "-0"}),
                "bytes must be a range such as \"0-99\", \"100-\" or \"-50\"",
            ),
            (
                json!({"id": "r", "bytes": "99999999999999999999-"}),
                "bytes must be a range such as \"0-99\", \"100-\" or \"-50\"",
            ),
            (
                json!({"id": "r", "grep": "\t".repeat(500)}),
                "grep, written as JSON, may have at most 1000 bytes",
            ),
        ] {
            assert_eq!(request(&arguments), Err(expected.to_owned()), "{arguments}");
        }
        let whole = numbered();
        for (arguments, expected) in [
            (json!({"id": "r", "lines": "1001-"}), "lines begins at 1001, but the result has 1000 lines"),
            (json!({"id": "r", "bytes": "11893-"}), "bytes begins at 11893, but the result has 11893 bytes"),
            (
                json!({"id": "r", "grep": "a", "lines": "1001-1002"}),
                "lines begins at 1001, but the result has 1000 lines",
            ),
        ] {
            assert_eq!(answer(&whole, arguments.clone()), Err(expected.to_owned()), "{arguments}");
        }
        assert!(answer(&whole, json!({"id": "r", "path": "$.a"})).unwrap_err().starts_with("path needs"));
        assert!(answer(&whole, json!({"id": "r", "grep": "("})).unwrap_err().starts_with("grep: "));
    }

    #[test]
    fn ranges_say_what_they_are_and_how_to_go_on() {
        let whole = numbered();
        let lines = answer(&whole, json!({"id": "r", "lines": "2-3"})).unwrap();
        assert_eq!(
            lines,
            [
                "Bytes 10-29 of 11893, lines 2-3 of 1000. Next: read_result {\"id\":\"r\",\"bytes\":\"30-\"}",
                "line 2 ä\nline 3 ä\n"
            ]
        );
        let last = answer(&whole, json!({"id": "r", "lines": "-1"})).unwrap();
        assert_eq!(
            last,
            ["Bytes 11880-11892 of 11893, lines 1000-1000 of 1000. This is the end.", "line 1000 ä\n"]
        );
        for same in [
            json!({"id": "r", "bytes": "11880-99999"}),
            json!({"id": "r", "bytes": "-13"}),
            json!({"id": "r", "lines": "1000-"}),
            json!({"id": "r", "lines": "1000-1001"}),
            json!({"id": "r", "lines": "1000-18446744073709551615"}),
        ] {
            assert_eq!(answer(&whole, same.clone()).unwrap(), last, "{same}");
        }
        // Whoever asks for more at the end than there is gets everything, from its beginning.
        let everything = answer(&whole, json!({"id": "r"})).unwrap();
        assert!(everything[0].starts_with("Bytes 0-"), "{}", everything[0]);
        for same in [json!({"id": "r", "lines": "-5000"}), json!({"id": "r", "bytes": "-50000"})] {
            assert_eq!(answer(&whole, same.clone()).unwrap(), everything, "{same}");
        }
        // In the middle of a character, both ends move back.
        assert_eq!(answer(&whole, json!({"id": "r", "bytes": "0-7"})).unwrap()[1], "line 1 ");
        assert_eq!(answer(&whole, json!({"id": "r", "bytes": "8-9"})).unwrap()[1], "ä\n");
        assert_eq!(
            answer(&whole, json!({"id": "r", "bytes": "7-7"})).unwrap(),
            ["No character ends there. Next: read_result {\"id\":\"r\",\"bytes\":\"7-\"}"]
        );
    }

    #[test]
    fn whoever_follows_next_reads_the_whole_and_each_answer_fits() {
        for whole in [
            numbered(),
            Whole::new("€".repeat(30_000), 4000),
            Whole::new("{\"a\":[1,2]} ".repeat(3000), 4000),
        ] {
            let (mut at, mut text) = (0, String::new());
            loop {
                let answer =
                    answer(&whole, json!({"id": "r0123456789abcdefghij", "bytes": format!("{at}-")}))
                        .unwrap();
                assert!(answer.iter().map(String::len).sum::<usize>() <= whole.limit);
                text.push_str(&answer[1]);
                let Some((_, next)) = answer[0].split_once("\"bytes\":\"") else { break };
                at = next.trim_end_matches("-\"}").parse().expect("a number");
            }
            assert!(text == whole.text);
        }
    }

    #[test]
    fn matches_are_counted() {
        let whole = numbered();
        let none = answer(&whole, json!({"id": "r", "grep": "nothing"})).unwrap();
        assert_eq!(none, ["No matches."]);
        let one = answer(&whole, json!({"id": "r", "grep": "^line 7 "})).unwrap();
        assert_eq!(one, ["1 match.", "7:line 7 ä"]);
        let many =
            answer(&whole, json!({"id": "r", "grep": "line", "lines": "1-900", "context": 0})).unwrap();
        assert!(many[0].starts_with("900 matches; "), "{}", many[0]);
        assert!(many[0].contains("\"grep\":\"line\",\"context\":0,\"bytes\":\""), "{}", many[0]);
        assert!(many.iter().map(String::len).sum::<usize>() <= whole.limit);
    }

    #[test]
    fn whoever_follows_next_sees_every_match() {
        let long_line = "x hit ".repeat(1000);
        let whole = Whole::new(format!("{}{long_line}\nlast hit\n", "short hit\n".repeat(600)), 4000);
        for (more, context, expected) in [("", None, 1601), (",\"lines\":\"1-601\"", Some(0), 1600)] {
            let mut arguments = format!("{{\"id\":\"r\",\"grep\":\"hit\"{more}}}");
            if let Some(context) = context {
                arguments.insert_str(arguments.len() - 1, &format!(",\"context\":{context}"));
            }
            let mut found = Vec::new();
            loop {
                let answer = answer(&whole, serde_json::from_str(&arguments).expect("JSON")).unwrap();
                assert!(answer.iter().map(String::len).sum::<usize>() <= whole.limit);
                found.extend(answer[1].lines().map(str::to_owned));
                let Some((head, next)) = answer[0].split_once(" shown. Next: read_result ") else { break };
                let shown = format!(
                    "{} matches; {}",
                    expected - found.len() + answer[1].lines().count(),
                    answer[1].lines().count()
                );
                assert_eq!(head, shown);
                arguments = next.to_owned();
            }
            assert_eq!(found.len(), expected);
            assert!(found.is_sorted_by_key(|line| {
                line.split_once([':', '@']).map(|(line, _)| line.parse::<usize>().ok())
            }));
            assert_eq!(found.iter().filter(|line| line.starts_with("601@")).count(), 1000);
        }
    }

    #[test]
    fn paths_show_values_as_they_are_spelled() {
        let items: Vec<_> = (0..1000).map(|id| format!("{{\"id\": {id}.0}}")).collect();
        let whole = Whole::new(format!("{{\"items\":[{}]}}", items.join(",")), 4000);
        let one = answer(&whole, json!({"id": "r", "path": "$.items[7].id"})).unwrap();
        assert_eq!(one, ["1 match.", "$['items'][7]['id']: 7.0"]);
        let many = answer(&whole, json!({"id": "r", "path": "$.items[*].id"})).unwrap();
        let shown = many[1].lines().count();
        assert!(
            many[0].starts_with(&format!("1000 matches; {shown} shown. Next: read_result ")),
            "{}",
            many[0]
        );
        assert!(many.iter().map(String::len).sum::<usize>() <= whole.limit);
        // The range that is named is the value of the first match that was left out.
        let (_, next) = many[0].split_once("Next: read_result ").expect("a call");
        let rest = answer(&whole, serde_json::from_str(next).expect("JSON")).unwrap();
        let left_out = format!("{shown}.0");
        let cut_off = format!("{}.0", shown - 1);
        assert!(rest[1] == left_out || (rest[1] == cut_off && !many[1].ends_with(&cut_off)), "{rest:?}");
        let cut = answer(&whole, json!({"id": "r", "path": "$.items"})).unwrap();
        let range = format!("\"bytes\":\"9-{}\"", whole.text.len() - 2);
        assert!(cut[0].starts_with("1 match; 1 shown. Next: ") && cut[0].contains(&range), "{}", cut[0]);
        assert!(cut[1].starts_with("$['items']: [{\"id\": 0.0},"), "{}", cut[1]);
    }
}
