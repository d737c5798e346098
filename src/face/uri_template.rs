//! Whether a concrete URI can come from a template (RFC 6570), and how closely the template fits. The
//! [`reach`](super::reach) module picks the closest template by it.

/// How closely a template fits a URI; the greater of two fits more closely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fit {
    /// The URI fits when a plain `{variable}` stands for no `/`, `?` or `#`, as the standard says. Otherwise
    /// a variable stands for anything, as many servers have it.
    strict: bool,
    /// How many bytes of the URI stand literally in the template.
    literal: usize,
    /// Whether no expression has an operator; one with an operator may stand for anything.
    plain: bool,
}

/// How closely the template fits; `None` if no expansion of it gives this URI.
pub fn fit(template: &str, uri: &str) -> Option<Fit> {
    [true, false].into_iter().find_map(|strict| fit_as(template, uri.as_bytes(), strict))
}

/// Walks the template once, with the set of positions in the URI that it may have reached, so that no
/// template is slow.
fn fit_as(template: &str, uri: &[u8], strict: bool) -> Option<Fit> {
    let mut fit = Fit { strict, literal: 0, plain: true };
    let mut reached = vec![false; uri.len() + 1];
    reached[0] = true;
    let mut rest = template;
    while !rest.is_empty() {
        let expression = rest.find('{').and_then(|open| Some((open, open + rest[open..].find('}')?)));
        let (literal, expression, after) = match expression {
            Some((open, close)) => (&rest[..open], Some(&rest[open + 1..close]), &rest[close + 1..]),
            None => (rest, None, ""),
        };
        fit.literal += literal.len();
        reached = after_literal(literal.as_bytes(), uri, &reached);
        if let Some(expression) = expression {
            fit.plain &= operator(expression).is_none();
            reached = after_expression(expression, uri, &reached, strict);
        }
        rest = after;
    }
    reached[uri.len()].then_some(fit)
}

/// The operator of an expression; an expression with one may stand for anything.
fn operator(expression: &str) -> Option<u8> {
    expression.bytes().next().filter(|c| b"+#./;?&".contains(c))
}

fn after_literal(literal: &[u8], uri: &[u8], reached: &[bool]) -> Vec<bool> {
    let mut next = vec![false; reached.len()];
    for at in (0..reached.len()).filter(|at| reached[*at] && uri[*at..].starts_with(literal)) {
        next[at + literal.len()] = true;
    }
    next
}

fn after_expression(expression: &str, uri: &[u8], reached: &[bool], strict: bool) -> Vec<bool> {
    let first = operator(expression).filter(|operator| *operator != b'+');
    let anything = !strict || operator(expression).is_some();
    let mut next = vec![false; reached.len()];
    let mut inside = false;
    for at in 0..reached.len() {
        // A variable without a value leaves nothing behind, not even the character that its operator puts
        // first.
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
            let fits = |strict| fit_as(template, uri.as_bytes(), strict).is_some();
            assert_eq!((fits(true), fits(false)), (strict, lax), "{template} and {uri}");
        }
    }

    #[test]
    fn the_closer_of_two_templates() {
        for (closer, laxer, uri) in [
            ("x:docs/{name}", "x:{+path}", "x:docs/1"),
            ("x:docs/{name}", "x:{path}", "x:docs/1"),
            ("x:{+path}", "x:docs/{name}", "x:docs/1/2"),
            ("x:{name}", "x:{+path}", "x:1"),
            ("x:docs{?page}", "x:{name}{?page}", "x:docs?page=1"),
            ("x:docs", "x:docs{?page}", "x:docs"),
            ("x:a/b/{c}", "x:a/{b}/{c}", "x:a/b/c/d"),
            ("x:{a}", "{+anything}", "x:1"),
        ] {
            assert!(fit(laxer, uri).is_some(), "{laxer} and {uri}");
            assert!(fit(closer, uri) > fit(laxer, uri), "{closer}, {laxer} and {uri}");
        }
        assert_eq!(fit("x:{a}/b", "x:a/b"), fit("x:{c}/b", "x:a/b"));
        assert_eq!(fit("x:{a}", "y:1"), None);
    }
}
