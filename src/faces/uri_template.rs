//! Whether a concrete URI comes from a template (RFC 6570).

/// Whether expanding the template could give this URI. With `strict`, a plain `{variable}` stands for no `/`, `?` or
/// `#`, as the standard says; without, for anything, as many servers have it.
///
/// Walks the template once with the set of places in the URI that it may have reached, so that no template is slow.
pub fn fits(template: &str, uri: &str, strict: bool) -> bool {
    let uri = uri.as_bytes();
    let mut reached = vec![false; uri.len() + 1];
    reached[0] = true;
    let mut rest = template;
    while !rest.is_empty() {
        let expression = rest.find('{').and_then(|open| Some((open, open + rest[open..].find('}')?)));
        let (literal, expression, after) = match expression {
            Some((open, close)) => (&rest[..open], Some(&rest[open + 1..close]), &rest[close + 1..]),
            None => (rest, None, ""),
        };
        reached = after_literal(literal.as_bytes(), uri, &reached);
        if let Some(expression) = expression {
            reached = after_expression(expression, uri, &reached, strict);
        }
        rest = after;
    }
    reached[uri.len()]
}

fn after_literal(literal: &[u8], uri: &[u8], reached: &[bool]) -> Vec<bool> {
    let mut next = vec![false; reached.len()];
    for at in (0..reached.len()).filter(|at| reached[*at] && uri[*at..].starts_with(literal)) {
        next[at + literal.len()] = true;
    }
    next
}

fn after_expression(expression: &str, uri: &[u8], reached: &[bool], strict: bool) -> Vec<bool> {
    let first = expression.bytes().next().filter(|c| b"#./;?&".contains(c));
    let anything = !strict || first.is_some() || expression.starts_with('+');
    let mut next = vec![false; reached.len()];
    let mut inside = false;
    for at in 0..reached.len() {
        // A variable without a value leaves nothing behind, not even the character that its operator puts first.
        next[at] = inside || (first.is_some() && reached[at]);
        if let Some(c) = uri.get(at) {
            inside |= reached[at] && first.is_none_or(|first| first == *c);
            inside &= anything || !b"/?#".contains(c);
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        for (template, uri, strict, lax) in [
            ("test://static/{id}", "test://static/7", true, true),
            ("test://static/{id}", "test://static/", false, false),
            ("test://static/{id}", "test://static/a/b", false, true),
            ("test://static/{id}", "other://static/7", false, false),
            ("file:///{+path}", "file:///a/b", true, true),
            ("a://{x}/b/{y}", "a://1/b/2", true, true),
            ("a://{x}/b/{y}", "a://1/c/2", false, false),
            ("a://x{?q,r}", "a://x", true, true),
            ("a://x{?q,r}", "a://x?q=1&r=2", true, true),
            ("a://x{/p*}/end", "a://x/1/2/end", true, true),
            ("a://x", "a://x", true, true),
            ("a://{open", "a://{open", true, true),
            ("ä://{x}", "ä://ö", true, true),
        ] {
            assert_eq!(
                (fits(template, uri, true), fits(template, uri, false)),
                (strict, lax),
                "{template} and {uri}"
            );
        }
    }
}
