//! The outline of a JSON text: what is where, so that a model can ask for a path.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::path::{self, Value};

/// One path a line, each good as `path`, breadth first, arrays by their first element, `most` bytes at most; `None` where
/// the text is not JSON, or is JSON that `path` cannot read.
pub(super) fn outline(text: &str, most: usize) -> Option<String> {
    let mut waiting = VecDeque::from([("$".to_owned(), path::root(text)?)]);
    let mut outline = String::new();
    while let Some((place, value)) = waiting.pop_front() {
        let mut line = format!("{place}: ");
        let mut children = Vec::new();
        match value {
            Value::Object(members) => {
                let mut count = 0;
                for (key, member) in members {
                    count += 1;
                    // The outline has no room for more members than it has bytes.
                    if children.len() < most {
                        children.push((format!("{place}{}", path::step(&key)), member));
                    }
                }
                let _ = write!(line, "object of {count}");
            }
            Value::Array(mut elements) => {
                let first = elements.next();
                let count = usize::from(first.is_some()) + elements.count();
                children.extend(first.map(|first| (format!("{place}[0]"), first)));
                let _ = write!(line, "array of {count}");
            }
            Value::Scalar(name) => line.push_str(name),
        }
        if outline.len() + line.len() + 1 > most {
            break;
        }
        outline.push_str(&line);
        outline.push('\n');
        waiting.extend(children.into_iter().map(|(place, raw)| (place, path::value(raw))));
    }
    outline.truncate(outline.trim_end().len());
    Some(outline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_breadth_first_and_shows_arrays_by_their_first_element() {
        let text = r#" {"items":[{"id":7,"a b":null,"l":[]},{"id":8}],"ok":true,"n\u00e9":"x","0":{}} "#;
        let expected = "$: object of 4\n$.items: array of 2\n$.ok: boolean\n$.né: string\n$['0']: object of 0\n\
                        $.items[0]: object of 3\n$.items[0].id: number\n$.items[0]['a b']: null\n$.items[0].l: array of 0";
        assert_eq!(outline(text, 1000).as_deref(), Some(expected));
        assert_eq!(outline(text, 40).as_deref(), Some("$: object of 4\n$.items: array of 2"));
        assert_eq!(outline("[1", 1000), None);
        assert_eq!(outline("plain text", 1000), None);
        assert_eq!(outline("7", 1000).as_deref(), Some("$: number"));
    }

    #[test]
    fn each_path_is_good_as_a_path() {
        let text = r#"{"it's":{"\\":{"\"":[{"\n":1}]}},"\\\"'":0,"../../../a":{"\u2028é":"\ud83d\ude00"}}"#;
        let outline = outline(text, 1000).unwrap();
        assert_eq!(outline.lines().count(), 9, "{outline}");
        for line in outline.lines() {
            let (path, _) = line.rsplit_once(": ").unwrap();
            assert_eq!(path::find(text, path).map(|found| found.len()), Ok(1), "{path}");
        }
    }

    #[test]
    fn what_no_path_can_read_has_no_outline() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let (deep, deeper) = (nested(127), nested(128));
        for (text, is_read) in [
            (deep.as_str(), true),
            (&deeper, false),
            (r#"{"a":[1e308]}"#, true),
            (r#"{"a":[1e999]}"#, false),
            (r#"["\ud83d\ude00"]"#, true),
            (r#"["\ud83d"]"#, false),
            (r#"{"\ude00":1}"#, false),
            ("[true,null,-1,18446744073709551616]", true),
            ("[1] 2", false),
        ] {
            let outline = outline(text, 1000);
            assert_eq!((outline.is_some(), path::find(text, "$").is_ok()), (is_read, is_read), "{text}");
        }
    }
}
