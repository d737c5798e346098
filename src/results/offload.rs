//! Taking what is too long out of the result of a tool.
//!
//! [`Offloaded::of`] copies out what is to be kept, once, and what stays; the result itself is needed no longer. The rest
//! ([`Offloaded::write`]) reads the whole once more and can be done elsewhere.

use std::sync::Arc;

use super::{META, Whole, notice};
use crate::json::{Node, Raw, Scanner, append_decoded, quote};

/// A result of which something is to be kept.
pub struct Offloaded {
    /// What is to be kept.
    pub whole: Arc<Whole>,
    /// The result without the whole, and without content.
    left: String,
    /// The blocks of the content that stay, as they were.
    blocks: Vec<String>,
    /// The number of blocks before the notice.
    before: usize,
}

impl Offloaded {
    /// Looks at the result of a tool. `None`: it passes as it came, because it fits, is an error or no final result, is
    /// larger than the `most` that is kept, or has a text that is no Unicode.
    pub fn of(result: Node<'_>, limit: usize, most: usize) -> Option<Self> {
        // Neither form is longer than what it stands in.
        if result.raw().len() <= limit {
            return None;
        }
        let is_final = result.get("resultType").is_none_or(|kind| kind.raw() == "\"complete\"");
        if result.get("isError").is_some_and(|error| error.raw() == "true") || !is_final {
            return None;
        }
        let content = result.get("content").filter(|content| content.is_array());
        let content = content.map_or_else(|| Some(Content::default()), Content::read)?;
        let structured = result.get("structuredContent").map_or("", Node::raw);
        let is_text = content.text.len() >= structured.len();
        let length = content.text.len().max(structured.len());
        if length <= limit || length > most {
            return None;
        }
        let both = content.text.len().min(structured.len()) > limit;
        let (blocks, before) = content.staying(is_text, both);
        let mut changes = vec![("content", Some("[]"))];
        if !is_text || both {
            changes.push(("structuredContent", None));
        }
        let left = result.with(&changes);
        let whole = if is_text { content.text } else { structured.to_owned() };
        Some(Self { whole: Arc::new(Whole::new(whole, limit)), left, blocks, before })
    }

    /// The result with a notice in the place of what is kept under this id, for a client that reads it with this tool.
    pub fn write(&self, tool: &str, id: &str) -> Raw {
        let Self { whole, left, blocks, before } = self;
        let notice = format!("{{\"type\":\"text\",\"text\":{}}}", quote(&notice(tool, id, whole)));
        let (first, last) = blocks.split_at(*before);
        let blocks = first.iter().chain([&notice]).chain(last).map(String::as_str);
        let content = format!("[{}]", blocks.collect::<Vec<_>>().join(","));
        let left = Raw::own(left.as_str());
        let kept =
            format!("{{\"id\":{},\"bytes\":{},\"lines\":{}}}", quote(id), whole.text.len(), whole.lines);
        let meta = left.root().get("_meta").unwrap_or_else(Node::empty).with(&[(META, Some(&kept))]);
        Raw::own(left.root().with(&[("content", Some(&content)), ("_meta", Some(&meta))]))
    }
}

/// The content of a result, read in one pass.
#[derive(Default)]
struct Content<'a> {
    /// The text blocks and embedded text resources, joined by line feeds.
    text: String,
    /// All blocks as they were, and whether each is among the text.
    blocks: Vec<(&'a str, bool)>,
}

impl<'a> Content<'a> {
    /// Reads it; `None` if a text in it has a lone surrogate.
    fn read(content: Node<'a>) -> Option<Self> {
        let (mut read, mut is_first, mut sound) = (Self::default(), true, true);
        let all = content.raw();
        Scanner::default().each_element(content, |block| {
            let own = own_text(block);
            let start = block.raw().as_ptr().addr() - all.as_ptr().addr();
            read.blocks.push((&all[start..start + block.raw().len()], own.is_some()));
            let Some(own) = own else { return };
            if !std::mem::take(&mut is_first) {
                read.text.push('\n');
            }
            sound &= append_decoded(own.raw(), &mut read.text);
        });
        sound.then_some(read)
    }

    /// The blocks that stay, and how many of them stand before the notice.
    fn staying(&self, is_text: bool, both: bool) -> (Vec<String>, usize) {
        let (mut blocks, mut before) = (Vec::new(), None);
        for (raw, has_text) in &self.blocks {
            match *has_text && (is_text || both) {
                true => before = before.or(Some(blocks.len()).filter(|_| is_text)),
                false => blocks.push((*raw).to_owned()),
            }
        }
        (blocks, before.unwrap_or(0))
    }
}

/// The text of a block, or of the resource that it embeds.
fn own_text(block: Node<'_>) -> Option<Node<'_>> {
    let text = match block.get("type").map(Node::raw) {
        Some("\"text\"") => block.get("text"),
        Some("\"resource\"") => block.get("resource").and_then(|resource| resource.get("text")),
        _ => None,
    };
    text.filter(|text| text.is_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const LIMIT: usize = 4000;
    const MOST: usize = 100_000;

    fn long(letter: &str) -> String {
        letter.repeat(3000)
    }

    /// What becomes of a result: what is kept, and what the client gets; `None` if it passes as it came.
    fn offloaded(result: &str) -> Option<(String, String)> {
        let offloaded = Offloaded::of(Raw::own(result).root(), LIMIT, MOST)?;
        let left = offloaded.write("read_result", "r1").root().raw().to_owned();
        Some((Arc::into_inner(offloaded.whole).expect("it is ours").text, left))
    }

    fn read(result: &Value) -> Option<(String, Value)> {
        let (whole, left) = offloaded(&result.to_string())?;
        Some((whole, serde_json::from_str(&left).expect("JSON")))
    }

    #[test]
    fn the_text_goes_and_everything_else_stays_in_order() {
        let (a, b) = (long("a"), long("b"));
        let image = r#"{"type":"image","data":"x"}"#;
        let (link, blob) = (
            r#"{ "type": "resource_link","uri":"a://c"}"#,
            r#"{"type":"resource","resource":{"uri":"a://d","blob":"AAAA"}}"#,
        );
        let result = format!(
            r#"{{"new":1.10,"content":[{image}, {{"type":"text","text":"{a}"}},{link},{{"type":"resource","resource":{{"uri":"a://b","text":"\n{b}"}}}} ,{blob}],"structuredContent":{{"short":1.0}},"_meta":{{"own":1e2}},"unknown":[1]}}"#
        );
        let (whole, left) = offloaded(&result).expect("it is too long");
        assert_eq!(whole, format!("{a}\n\n{b}"));
        let notice = serde_json::from_str::<Value>(&left).expect("JSON")["content"][1]["text"].clone();
        assert!(
            notice
                .as_str()
                .is_some_and(|text| text.starts_with("INCOMPLETE: this result has 6002 bytes in 3 lines;"))
        );
        let expected = format!(
            r#"{{"new":1.10,"content":[{image},{{"type":"text","text":{notice}}},{link},{blob}],"structuredContent":{{"short":1.0}},"_meta":{{"own":1e2,"{META}":{{"id":"r1","bytes":6002,"lines":3}}}},"unknown":[1]}}"#
        );
        assert_eq!(left, expected);
    }

    #[test]
    fn the_longer_form_is_the_whole() {
        let structured = json!({"a": long("a") + &long("b")});
        let text = |text: &str| json!([{"type": "image"}, {"type": "text", "text": text}]);
        // The text fits, and stays.
        let (whole, left) = read(&json!({"content": text("short"), "structuredContent": structured}))
            .expect("it is too long");
        assert_eq!(whole, structured.to_string());
        assert!(left["content"][0]["text"].as_str().is_some_and(|text| text.starts_with("INCOMPLETE")));
        assert_eq!(left["content"].as_array().map(Vec::len), Some(3));
        assert_eq!(left["content"][2]["text"], "short");
        assert_eq!(left.get("structuredContent"), None);
        // Both are too long and equally long: both go, and the text is the whole.
        let same = structured.to_string();
        let (whole, left) =
            read(&json!({"content": text(&same), "structuredContent": structured})).expect("it is too long");
        assert_eq!(whole, same);
        assert_eq!(left["content"].as_array().map(Vec::len), Some(2));
        assert_eq!(left["content"][0]["type"], "image");
        assert_eq!(left.get("structuredContent"), None);
        // Both are too long, and the shorter one is the text: the notice comes first.
        let (whole, left) = read(&json!({"content": text(&same[..5000]), "structuredContent": structured}))
            .expect("it is too long");
        assert_eq!(whole, same);
        assert!(left["content"][0]["text"].as_str().is_some_and(|text| text.starts_with("INCOMPLETE")));
        assert_eq!(
            (left["content"].as_array().map(Vec::len), &left["content"][1]["type"]),
            (Some(2), &json!("image"))
        );
        // The text has just the limit's bytes, and stays.
        let (_, left) = read(&json!({"content": text(&same[..LIMIT]), "structuredContent": structured}))
            .expect("it is too long");
        assert_eq!(left["content"][2]["text"], same[..LIMIT]);
        // The text is longer, and the other form is too long by itself.
        let (whole, left) =
            read(&json!({"content": text(&(same.clone() + "!")), "structuredContent": structured}))
                .expect("it is too long");
        assert_eq!((whole, left.get("structuredContent")), (same.clone() + "!", None));
        // It has just the limit's bytes, and stays as it was spelled.
        let spelled = format!("{{ \"a\":1.0, \"b\": \"\\u0041{}\" }}", "b".repeat(LIMIT - 26));
        assert_eq!(spelled.len(), LIMIT);
        let result = format!("{{\"content\":{},\"structuredContent\":{spelled}}}", text(&same));
        let (_, left) = offloaded(&result).expect("it is too long");
        assert!(left.contains(&spelled), "{left:.200}");
        // What is kept is as it was spelled, too.
        let longer = spelled.replace("1.0", "1.00");
        let (whole, _) = offloaded(&format!("{{\"structuredContent\":{longer}}}")).expect("it is too long");
        assert_eq!(whole, longer);
        // No content at all.
        let (_, left) = read(&json!({"structuredContent": structured})).expect("it is too long");
        assert_eq!(left["content"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn these_pass_as_they_came() {
        let text = long("a") + &long("a");
        let content = json!([{"type": "text", "text": text}]);
        for result in [
            json!({"content": [{"type": "text", "text": "a".repeat(LIMIT)}]}),
            // Bytes count, not characters of JSON.
            json!({"content": [{"type": "text", "text": "\"".repeat(LIMIT)}]}),
            json!({"content": content, "isError": true}),
            json!({"content": content, "resultType": "input_required"}),
            json!({"content": content, "resultType": "task"}),
            json!({"content": [{"type": "text", "text": "a".repeat(MOST + 1)}]}),
            json!({"content": [{"type": "image", "data": text}]}),
            json!({"content": [{"type": "resource", "resource": {"blob": text}}]}),
            json!({"content": {"text": text}}),
            json!({"messages": content}),
        ] {
            assert_eq!(read(&result), None, "{}", &result.to_string()[..80]);
        }
        let over = "ä".repeat(LIMIT / 2) + "a";
        for result in [
            json!({"content": [{"type": "text", "text": over}]}),
            json!({"content": [{"type": "text", "text": "a".repeat(MOST)}]}),
            json!({"content": content, "isError": false, "resultType": "complete"}),
        ] {
            assert!(read(&result).is_some(), "{}", &result.to_string()[..80]);
        }
        let surrogate = format!(r#"{{"content":[{{"type":"text","text":"\ud800{text}"}}]}}"#);
        assert_eq!(offloaded(&surrogate), None);
    }
}
