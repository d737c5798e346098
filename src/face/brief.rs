//! Answers with the definitions of many tools, made to fit what a client hands to its model: some clients
//! silently cut long answers in the middle, or drop them.
//!
//! The workbench's openings go through [`DefinitionsAnswer::fit`], the searches of both faces through
//! [`DefinitionsAnswer::fit_found`].
//!
//! Invariants: an opening that fits is given whole. An answer that does not fit loses descriptions first, then
//! signatures and members that say a thing twice, then tools from the end, and it says how many tools are
//! missing; a name is left out only if the names alone do not fit.

use std::borrow::Cow;

use super::fit::shorten;
use super::signature::signature;
use crate::catalog::Kind;
use crate::json::{Node, Scanner, quote};

/// The most characters of a description in the brief form.
const DESCRIPTION: usize = 160;

/// How many tools of a search's answer are shown whole.
const FOUND_WHOLE: usize = 3;
/// A definition that takes more bytes than this is shown in brief wherever it stands in a search's answer.
const LONGEST_FOUND: usize = 8_000;

/// An answer with definitions: an object as JSON, in parts.
pub(super) struct DefinitionsAnswer<'a> {
    /// The object's beginning up to `tools`, without the comma before `tools`.
    pub(super) head: String,
    /// The tools, in order.
    pub(super) tools: Vec<ToolEntry<'a>>,
    /// What follows `tools`, each member with a comma before it.
    pub(super) rest: String,
    /// The name of the tool that gives whole definitions.
    pub(super) describer: &'static str,
}

/// One tool of an answer.
pub(super) struct ToolEntry<'a> {
    /// The members that identify the tool, with their raw values; they replace members of the same name in
    /// the definition.
    pub(super) names: Vec<(&'static str, String)>,
    /// More of the same kind, which say what `names` says in other words.
    pub(super) also: Vec<(&'static str, String)>,
    /// The tool's definition.
    pub(super) definition: Cow<'a, str>,
}

impl DefinitionsAnswer<'_> {
    /// The answer as JSON, in at most `limit` bytes if it can be made that short.
    pub(super) fn fit(&self, limit: Option<usize>) -> String {
        self.fit_or_brief(self.tools.iter().map(ToolEntry::whole).collect(), limit)
    }

    /// The answer to a search, best tools first, in at most `limit` bytes if it can be made that short. Only
    /// the first tools are whole, since the others are rarely called, and none that is very long.
    pub(super) fn fit_found(&self, limit: Option<usize>) -> String {
        let whole = |(place, tool): (usize, &ToolEntry<'_>)| {
            let whole = (place < FOUND_WHOLE).then(|| tool.whole());
            let whole = whole.filter(|whole| whole.len() <= LONGEST_FOUND);
            whole.unwrap_or_else(|| object(&tool.parts(), &EVERY_PART))
        };
        self.fit_or_brief(self.tools.iter().enumerate().map(whole).collect(), limit)
    }

    /// The answer with these entries or, if that is too long, with brief ones.
    fn fit_or_brief(&self, entries: Vec<String>, limit: Option<usize>) -> String {
        let text = format!("{},\"tools\":[{}]{}}}", self.head, entries.join(","), self.rest);
        match limit {
            Some(limit) if text.len() > limit => self.brief(limit),
            _ => text,
        }
    }

    fn brief(&self, limit: usize) -> String {
        let entries: Vec<_> = self.tools.iter().map(ToolEntry::parts).collect();
        for shown in [&EVERY_PART[..], &[0, 1, 3], &[0]] {
            let entry = |parts: &[String; 4]| object(parts, shown);
            let text = self.brief_text(&entries.iter().map(entry).collect::<Vec<_>>(), 0);
            if text.len() <= limit {
                return text;
            }
        }
        let mut names: Vec<_> = entries.iter().map(|[names, ..]| format!("{{{names}}}")).collect();
        let (all, mut length) = (names.len(), self.brief_text(&names, names.len()).len());
        // `length` may count a few bytes too many for `more`. That is harmless: any name that it costs is
        // counted too.
        while length > limit
            && let Some(last) = names.pop()
        {
            length -= last.len() + usize::from(!names.is_empty());
        }
        self.brief_text(&names, all - names.len())
    }

    fn brief_text(&self, entries: &[String], more: usize) -> String {
        let more = if more == 0 { String::new() } else { format!(",\"more\":{more}") };
        let (head, rest, describer) = (&self.head, &self.rest, self.describer);
        let hint = quote(&format!("{describer} gives the whole definitions of the tools that you name."));
        format!("{head},\"brief\":true,\"hint\":{hint},\"tools\":[{}]{more}{rest}}}", entries.join(","))
    }
}

impl ToolEntry<'_> {
    /// The raw value of one of the names.
    pub(super) fn name(&self, key: &str) -> &str {
        self.names.iter().find(|(name, _)| *name == key).map_or("null", |(_, value)| value)
    }

    /// The definition with its names first, then everything else that the upstream sent.
    pub(super) fn whole(&self) -> String {
        let mut scanner = Scanner::default();
        let node = scanner.scan_str(&self.definition).expect("definitions are valid JSON").root();
        let gone: Vec<(&str, Option<&str>)> =
            self.names.iter().chain(&self.also).map(|(key, _)| (*key, None)).collect();
        let mut rest = Vec::new();
        node.write_with(&mut rest, &gone);
        let rest = String::from_utf8(rest).expect("written from UTF-8 texts");
        let (names, also) = (members(&self.names), after_comma(&self.also));
        match rest.as_str() {
            "{}" => format!("{{{names}{also}}}"),
            rest => format!("{{{names}{also},{}", &rest[1..]),
        }
    }

    /// What the brief form shows of the tool: names, the same in other words, description and signature. All
    /// but the first have a comma before them. [`EVERY_PART`] names all of them.
    fn parts(&self) -> [String; 4] {
        let mut scanner = Scanner::default();
        let node = scanner.scan_str(&self.definition).expect("definitions are valid JSON").root();
        let description = node.get("description").and_then(Node::as_str).unwrap_or_default();
        let description = match first_sentence(&description) {
            text if text.is_empty() => String::new(),
            text => format!(",\"description\":{}", quote(&text)),
        };
        let signature = signature(node.get("inputSchema").map_or("{}", Node::raw));
        let signature = format!(",\"signature\":{}", quote(&signature));
        [members(&self.names), after_comma(&self.also), description, signature]
    }
}

/// A resource or template as a search shows it: whole, unless its definition is very long. Then it has its URI, its
/// name and the first sentence of its description.
pub(super) fn brief_resource(kind: Kind, definition: &str) -> String {
    if definition.len() <= LONGEST_FOUND {
        return definition.to_owned();
    }
    let mut scanner = Scanner::default();
    let node = scanner.scan_str(definition).expect("definitions are valid JSON").root();
    let raw = |key: &'static str| Some((key, node.get(key)?.raw().to_owned()));
    let text = node.get("description").and_then(Node::as_str).map(|text| quote(&first_sentence(&text)));
    let parts = [raw(kind.key()), raw("name"), text.map(|text| ("description", text))];
    format!("{{{}}}", members(&parts.into_iter().flatten().collect::<Vec<_>>()))
}

/// All that the brief form shows of a tool, as indexes into [`ToolEntry::parts`].
const EVERY_PART: [usize; 4] = [0, 1, 2, 3];

/// An object that consists of some of these parts.
fn object(parts: &[String; 4], shown: &[usize]) -> String {
    format!("{{{}}}", shown.iter().map(|at| parts[*at].as_str()).collect::<String>())
}

/// Members of an object, separated by commas.
fn members(members: &[(&str, String)]) -> String {
    let members: Vec<_> = members.iter().map(|(key, value)| format!("{}:{value}", quote(key))).collect();
    members.join(",")
}

/// The same, with a comma before each.
fn after_comma(more: &[(&str, String)]) -> String {
    more.iter().map(|(key, value)| format!(",{}:{value}", quote(key))).collect()
}

/// A description up to its first line break or full stop, cut to the length that the brief form allows.
fn first_sentence(text: &str) -> String {
    let text = text.trim();
    let line = text.lines().next().unwrap_or_default();
    let stop =
        line.char_indices().find(|(at, c)| *c == '.' && line[at + 1..].starts_with(char::is_whitespace));
    shorten(stop.map_or(line, |(at, _)| &line[..=at]).trim_end(), DESCRIPTION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn answer(tools: &[(String, String)]) -> DefinitionsAnswer<'_> {
        let entry = |(name, definition): &'_ (String, String)| {
            let names = [
                ("name", quote(name)),
                ("toolbox_name", quote("github")),
                ("source_server", quote("github")),
            ];
            (names.to_vec(), definition.clone())
        };
        let tools = tools
            .iter()
            .map(|tool| ToolEntry { names: entry(tool).0, also: Vec::new(), definition: (&*tool.1).into() })
            .collect();
        let head =
            "{\"toolbox\":\"github\",\"description\":\"Repositories\",\"servers_connected\":1".to_owned();
        DefinitionsAnswer {
            head,
            tools,
            rest: ",\"_errors\":[\"e\"]".to_owned(),
            describer: "describe_tools",
        }
    }

    fn tool(name: &str, description: &str) -> (String, String) {
        let schema = r#"{"type":"object","properties":{"owner":{"type":"string"},"page":{"type":"integer"}},"required":["owner"]}"#;
        let definition = format!(
            "{{\"name\":\"own\",\"description\":{},\"inputSchema\":{schema},\"new\":1.10}}",
            quote(description)
        );
        (name.to_owned(), definition)
    }

    #[test]
    fn descriptions_give_way_to_signatures_and_these_to_names() {
        let tools = [tool("list_issues", "Lists issues. Newest first."), tool("close", "")];
        let answer = answer(&tools);
        let begin = r#"{"toolbox":"github","description":"Repositories","servers_connected":1"#;
        let of = r#""toolbox_name":"github","source_server":"github""#;
        let schema = r#""inputSchema":{"type":"object","properties":{"owner":{"type":"string"},"page":{"type":"integer"}},"required":["owner"]}"#;
        let hint = "describe_tools gives the whole definitions of the tools that you name.";
        let brief = format!("{begin},\"brief\":true,\"hint\":\"{hint}\"");
        let (taken, end) = (r#""signature":"(owner: string, page?: integer)""#, r#","_errors":["e"]}"#);
        let whole = format!(
            r#"{begin},"tools":[{{"name":"list_issues",{of},"description":"Lists issues. Newest first.",{schema},"new":1.10}},{{"name":"close",{of},"description":"",{schema},"new":1.10}}]{end}"#
        );
        let expected = [
            whole,
            format!(
                r#"{brief},"tools":[{{"name":"list_issues",{of},"description":"Lists issues.",{taken}}},{{"name":"close",{of},{taken}}}]{end}"#
            ),
            format!(
                r#"{brief},"tools":[{{"name":"list_issues",{of},{taken}}},{{"name":"close",{of},{taken}}}]{end}"#
            ),
            format!(r#"{brief},"tools":[{{"name":"list_issues",{of}}},{{"name":"close",{of}}}]{end}"#),
            format!(r#"{brief},"tools":[{{"name":"list_issues",{of}}}],"more":1{end}"#),
            format!(r#"{brief},"tools":[],"more":2{end}"#),
        ];
        assert_eq!(answer.fit(None), expected[0]);
        for (longer, text) in expected.iter().zip(&expected[1..]) {
            assert_eq!(answer.fit(Some(longer.len())), *longer);
            assert_eq!(answer.fit(Some(longer.len() - 1)), *text);
        }
        assert_eq!(answer.fit(Some(1)), expected[5], "it cannot be shorter");
    }

    #[test]
    fn only_the_first_tools_that_a_search_finds_are_whole() {
        // The first sentence makes the second entry exactly as long as it may be; the third is one byte longer.
        let whole = |text: &str| answer(&[tool("same", text)]).tools[0].whole().len();
        let filler = LONGEST_FOUND - whole("Long. ");
        let long = |more: usize| format!("Long. {}", "x".repeat(filler + more));
        let tools = [
            tool("a", "Short. More."),
            tool("same", &long(0)),
            tool("same", &long(1)),
            tool("d", "Short. More."),
        ];
        let text = answer(&tools).fit_found(None);
        let told: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(told["brief"], Value::Null);
        let shown: Vec<_> = told["tools"].as_array().expect("a list").iter().collect();
        let forms: Vec<bool> = shown.iter().map(|tool| tool["signature"].is_null()).collect();
        assert_eq!(forms, [true, true, false, false]);
        assert_eq!(shown[1]["inputSchema"]["required"], serde_json::json!(["owner"]));
        let brief = serde_json::json!({"name": "d", "toolbox_name": "github", "source_server": "github",
            "description": "Short.", "signature": "(owner: string, page?: integer)"});
        assert_eq!(*shown[3], brief);
        assert_eq!((&shown[2]["description"], &shown[2]["inputSchema"]), (&"Long.".into(), &Value::Null));
        // Over the client's limit it becomes what an opening becomes.
        let fitted: Value =
            serde_json::from_str(&answer(&tools).fit_found(Some(text.len() - 1))).expect("JSON");
        assert_eq!((&fitted["brief"], &fitted["tools"][0]["description"]), (&true.into(), &"Short.".into()));
    }

    #[test]
    fn sentences() {
        for (text, expected) in [
            ("Reads a file. Then closes it.", "Reads a file."),
            ("\n Reads a file\nSecond line", "Reads a file"),
            ("Reads e.g.this. No more.", "Reads e.g.this."),
            ("Version 1.2 only.", "Version 1.2 only."),
            ("One.\u{a0}Two", "One."),
            ("", ""),
        ] {
            assert_eq!(first_sentence(text), expected, "{text}");
        }
        assert_eq!(first_sentence(&"é".repeat(161)).chars().count(), 160);
        assert_eq!(first_sentence(&"é".repeat(160)), "é".repeat(160));
    }

    proptest! {
        #[test]
        fn never_over_the_limit_while_every_name_can_stand(
            tools in prop::collection::vec(("[a-z_é\"]{1,24}", ".{0,400}"), 0..40),
            limit in 1_000_usize..9_000,
        ) {
            let tools: Vec<_> = tools.iter().map(|(name, description)| tool(name, description)).collect();
            let answer = answer(&tools);
            let text = answer.fit(Some(limit));
            let told: Value = serde_json::from_str(&text).expect("JSON");
            let shown = told["tools"].as_array().expect("a list").len();
            prop_assert_eq!(shown as u64 + told["more"].as_u64().unwrap_or(0), tools.len() as u64);
            prop_assert!(text.len() <= limit, "{} of {limit}", text.len());
            prop_assert_eq!(&told["_errors"], &serde_json::json!(["e"]));
            if let Some((next, _)) = tools.get(shown) {
                let names = &text[..text.find("\"more\"").expect("it is counted")];
                prop_assert!(names.len() + next.len() + 140 > limit, "{next} would have fitted");
            }
        }
    }
}
