//! The outline of a JSON text: what is where, so that a model can ask for a path.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::Whole;
use super::path::{self, Value};

/// One path a line, each good as `path`, breadth first, arrays by their first element, `most` bytes at most; `None` where
/// the text is not JSON.
pub(super) fn outline(whole: &Whole, most: usize) -> Option<String> {
    let root = match whole.is_structured {
        true => path::value(&whole.text),
        false => path::root(&whole.text)?,
    };
    let mut waiting = VecDeque::from([("$".to_owned(), root)]);
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

    fn outline(text: &str, most: usize) -> Option<String> {
        let outline = super::outline(&Whole::new(text.to_owned(), 4000), most);
        if outline.is_some() {
            assert_eq!(super::outline(&Whole::of_structured(text.to_owned(), 4000), most), outline);
        }
        outline
    }

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
        let text = r#"{"it's":{"\\":{"\"":[{"\n":1}]}}}"#;
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        for line in outline(text, 1000).unwrap().lines() {
            let (path, _) = line.rsplit_once(": ").unwrap();
            let found = serde_json_path::JsonPath::parse(path).unwrap().query(&value).all();
            assert_eq!(found.len(), 1, "{path}");
        }
    }
}
