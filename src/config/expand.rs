//! Expands `${VAR}` and `${VAR:-default}` in one string.

use std::ops::Range;

/// Looks up a variable. An empty variable counts as set.
pub type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The result for one string.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expansion {
    /// The text with every variable replaced. Faulty places stay as written.
    pub text: String,
    /// The name and value of each variable that was found, in order of appearance.
    pub variables: Vec<(String, String)>,
    /// The places that could not be replaced, in order of appearance.
    pub faults: Vec<Fault>,
}

/// A place that could not be replaced.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// The bytes of the original text, starting at `$`.
    pub range: Range<usize>,
    /// The variable's name.
    pub name: String,
    /// The reason.
    pub kind: FaultKind,
}

/// The reason why a place could not be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The variable is not set and has no default.
    Unset,
    /// No `}` follows.
    Unclosed,
}

/// Expands a string once; inserted values are not expanded again.
///
/// Only `${` before a name (`[A-Z_][A-Z0-9_]*`) has a meaning, and `$${`, which stands for the literal text.
/// `$VAR`, `${lower}`, `${}`, `${V-x}` and all other dollars stay as they are. A default ends at the first
/// `}`.
pub fn expand(text: &str, environment: &Environment<'_>) -> Expansion {
    let mut expansion = Expansion::default();
    let mut at = 0;
    while let Some(found) = text[at..].find('$') {
        let dollar = at + found;
        expansion.text.push_str(&text[at..dollar]);
        at = match place(&text[dollar..]) {
            Place::Plain => {
                expansion.text.push('$');
                dollar + 1
            }
            Place::Escape => {
                expansion.text.push_str("${");
                dollar + "$${".len()
            }
            Place::Unclosed { name } => {
                let end = dollar + "${".len() + name.len();
                expansion.text.push_str(&text[dollar..end]);
                expansion.faults.push(Fault {
                    range: dollar..end,
                    name: name.to_owned(),
                    kind: FaultKind::Unclosed,
                });
                end
            }
            Place::Variable { name, default, length } => {
                let end = dollar + length;
                match (environment(name), default) {
                    (Some(value), _) => {
                        expansion.text.push_str(&value);
                        expansion.variables.push((name.to_owned(), value));
                    }
                    (None, Some(default)) => expansion.text.push_str(default),
                    (None, None) => {
                        expansion.text.push_str(&text[dollar..end]);
                        expansion.faults.push(Fault {
                            range: dollar..end,
                            name: name.to_owned(),
                            kind: FaultKind::Unset,
                        });
                    }
                }
                end
            }
        };
    }
    expansion.text.push_str(&text[at..]);
    expansion
}

/// The meaning of a dollar.
pub(crate) enum Place<'t> {
    /// A dollar without any meaning.
    Plain,
    /// `$${` before a name.
    Escape,
    Variable {
        name: &'t str,
        default: Option<&'t str>,
        length: usize,
    },
    Unclosed {
        name: &'t str,
    },
}

/// The meaning of the dollar at the beginning of this text.
pub(crate) fn place(text: &str) -> Place<'_> {
    if let Some(rest) = text.strip_prefix("$${") {
        return if name(rest).is_some() { Place::Escape } else { Place::Plain };
    }
    let Some(inside) = text.strip_prefix("${") else { return Place::Plain };
    let Some(name) = name(inside) else { return Place::Plain };
    let Some(close) = inside.find('}') else { return Place::Unclosed { name } };
    let length = "${".len() + close + "}".len();
    let after = &inside[name.len()..close];
    match after.strip_prefix(":-") {
        Some(default) => Place::Variable { name, default: Some(default), length },
        None if after.is_empty() => Place::Variable { name, default: None, length },
        None => Place::Plain,
    }
}

/// The variable name at the beginning of a text.
fn name(text: &str) -> Option<&str> {
    let end = text
        .find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))
        .unwrap_or(text.len());
    let name = &text[..end];
    (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("localhost".into()),
            "EMPTY" => Some(String::new()),
            "_A1" => Some("one".into()),
            "NESTED" => Some("${HOST}".into()),
            "BRACE" => Some("}".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_defaults_and_everything_that_stays() {
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("${HOST}", "localhost"),
            ("http://${HOST}:80/${_A1}", "http://localhost:80/one"),
            ("${HOST}${HOST}", "localhostlocalhost"),
            ("${HOST:-other}", "localhost"),
            // An empty variable counts as set.
            ("[${EMPTY}]", "[]"),
            ("[${EMPTY:-default}]", "[]"),
            // Defaults apply to unset variables.
            ("${NONE:-default}", "default"),
            ("[${NONE:-}]", "[]"),
            ("${NONE:-a b:-c $x}", "a b:-c $x"),
            // The default ends at the first `}` and is not expanded.
            ("${NONE:-${HOST}}", "${HOST}"),
            ("${NONE:-a}b}", "ab}"),
            // Values are not expanded again.
            ("${NESTED}", "${HOST}"),
            ("${BRACE}", "}"),
            // These have no meaning to us.
            ("${lower}", "${lower}"),
            ("${Mixed}", "${Mixed}"),
            ("${}", "${}"),
            ("${", "${"),
            ("${lower", "${lower"),
            ("${1A}", "${1A}"),
            ("${NONE-x}", "${NONE-x}"),
            ("${NONE:x}", "${NONE:x}"),
            ("${NONE-${HOST}}", "${NONE-localhost}"),
            ("${env:HOME}", "${env:HOME}"),
            ("${ HOST}", "${ HOST}"),
            ("$HOST", "$HOST"),
            ("$", "$"),
            ("a$", "a$"),
            // The escape stands for the literal text.
            ("$${HOST}", "${HOST}"),
            ("$${HOST", "${HOST"),
            ("$${HOST:-x} ${HOST}", "${HOST:-x} localhost"),
            ("$${lower}", "$${lower}"),
            ("$${}", "$${}"),
            ("$$", "$$"),
            ("$$HOST", "$$HOST"),
            ("$$${HOST}", "$${HOST}"),
            ("ü${HOST}ü", "ülocalhostü"),
        ] {
            let expansion = expand(text, &environment);
            assert_eq!(expansion.text, expected, "{text}");
            assert_eq!(expansion.faults, [], "{text}");
        }
    }

    #[test]
    fn faults_name_the_variable_and_the_place() {
        use FaultKind::{Unclosed, Unset};
        for (text, expected) in [
            ("${NONE}", &[("NONE", 0..7, Unset)][..]),
            ("a ${NONE} ${HOST} ${OTHER}", &[("NONE", 2..9, Unset), ("OTHER", 18..26, Unset)]),
            ("${HOST", &[("HOST", 0..6, Unclosed)]),
            ("x ${HOST:-y", &[("HOST", 2..8, Unclosed)]),
            ("${HOST} ${NONE", &[("NONE", 8..14, Unclosed)]),
        ] {
            let faults: Vec<_> = expand(text, &environment)
                .faults
                .into_iter()
                .map(|fault| (fault.name, fault.range, fault.kind))
                .collect();
            let expected: Vec<_> =
                expected.iter().cloned().map(|(name, range, kind)| (name.to_owned(), range, kind)).collect();
            assert_eq!(faults, expected, "{text}");
        }
    }

    #[test]
    fn every_value_from_the_environment_is_told() {
        let expansion = expand("${HOST}/${NONE:-x}/${_A1}/${EMPTY}", &environment);
        let expected = [("HOST", "localhost"), ("_A1", "one"), ("EMPTY", "")];
        assert_eq!(expansion.variables, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    proptest! {
        #[test]
        fn text_without_a_reference_stays(text in "[^$]*(\\$[^${]|\\$\\{[^A-Z_])*") {
            prop_assume!(!text.ends_with('$'));
            prop_assert_eq!(expand(&text, &environment).text, text);
        }

        #[test]
        fn any_text_survives_and_values_arrive_whole(text in "([${}:A-Z_a-z0-9ü-]|\\$\\{HOST\\})*", value in ".*") {
            let expansion = expand(&text, &|name| (name == "HOST").then(|| value.clone()));
            for (name, found) in &expansion.variables {
                prop_assert_eq!(name, "HOST");
                prop_assert_eq!(found, &value);
            }
            for fault in &expansion.faults {
                let opening = format!("${{{}", fault.name);
                prop_assert!(text[fault.range.clone()].starts_with(&opening));
            }
        }

        #[test]
        fn an_escaped_reference_is_its_own_text(name in "[A-Z_][A-Z0-9_]{0,9}", around in "[^$]*") {
            let text = format!("{around}$${{{name}}}{around}");
            let expected = format!("{around}${{{name}}}{around}");
            prop_assert_eq!(expand(&text, &|_| Some("value".into())).text, expected);
        }
    }
}
