//! Checks the arguments of the gateway's own tools; its errors tell a model what to write instead.

use std::borrow::Cow;

use crate::catalog::nearest;
use crate::json::{Node, Sorted};

/// An error for a model; each text becomes a block of its own.
pub(super) type Blocks = Vec<String>;

/// The arguments of one of our tools, indexed by the order of the keys that the tool knows.
pub(super) struct Arguments<'a, const N: usize> {
    keys: [&'static str; N],
    found: Sorted<'a, N>,
}

impl<'a, const N: usize> Arguments<'a, N> {
    /// Looks at every member once; an unknown key is an error, and so is one that appears twice.
    ///
    /// It is part of each caller, where the keys are known as it is compiled and need no loop.
    #[inline(always)]
    pub(super) fn read(arguments: Option<Node<'a>>, keys: [&'static str; N]) -> Result<Self, Blocks> {
        let object = match arguments {
            Some(arguments) if arguments.is_object() => arguments,
            Some(_) => return Err(invalid("arguments must be an object")),
            None => return Err(required(keys.first().unwrap_or(&""), "")),
        };
        match object.only(&keys) {
            Some(found) => Ok(Self { keys, found }),
            None => Err(unrecognized(&keys, object)),
        }
    }

    /// The value of a key, if the key is present.
    #[inline(always)]
    pub(super) fn value(&self, at: usize) -> Option<Node<'a>> {
        self.found.get(at)
    }

    /// A required text that must not be blank.
    #[inline(always)]
    pub(super) fn text(&self, at: usize) -> Result<Cow<'a, str>, Blocks> {
        let key = self.keys[at];
        match self.value(at).map(Node::as_str) {
            None => Err(required(key, " and must be a string")),
            Some(None) => Err(wrong(key, "must be a string")),
            Some(Some(text)) if is_blank(&text) => Err(wrong(key, "cannot be empty")),
            Some(Some(text)) => Ok(text),
        }
    }

    /// An optional text.
    pub(super) fn optional_text(&self, at: usize) -> Result<Option<String>, Blocks> {
        let text = self.value(at).map(|value| {
            let text = value.as_str().map(Cow::into_owned);
            text.ok_or_else(|| wrong(self.keys[at], "must be a string"))
        });
        text.transpose()
    }

    /// An optional object.
    pub(super) fn object(&self, at: usize) -> Result<Option<Node<'a>>, Blocks> {
        match self.value(at) {
            Some(value) if !value.is_object() => Err(wrong(self.keys[at], "must be an object")),
            value => Ok(value),
        }
    }
}

/// Names the unknown keys, and the keys that were probably meant: for each unknown key the nearest
/// missing key, otherwise the first of all keys, if that is missing. If all are known, one appears twice.
#[cold]
fn unrecognized(keys: &[&str], object: Node<'_>) -> Blocks {
    let all: Vec<_> = object.members().map(|(key, _)| key).collect();
    let unknown: Vec<_> = all.iter().filter(|key| !keys.contains(&&***key)).collect();
    if unknown.is_empty() {
        let twice = keys.iter().find(|key| all.iter().filter(|own| own == *key).count() > 1);
        return wrong(twice.unwrap_or(&""), "appears twice");
    }
    let quoted: Vec<_> = unknown.iter().map(|key| format!("'{key}'")).collect();
    let noun = if unknown.len() == 1 { "key" } else { "keys" };
    let mut blocks = invalid(&format!("Unrecognized {noun}: {}", quoted.join(", ")));
    let missing: Vec<&str> = keys.iter().copied().filter(|key| !all.iter().any(|own| own == key)).collect();
    let needed = missing.first().filter(|key| keys.first() == Some(key)).copied();
    let mut meant: Vec<String> = Vec::new();
    for key in &unknown {
        let near = nearest(key, missing.iter().copied(), 1).first().copied().or_else(|| {
            let begins_alike = |other: &&str| key.get(..3).is_some_and(|begin| other.starts_with(begin));
            missing.iter().copied().find(begins_alike).or(needed)
        });
        meant.extend(near.map(|key| format!("`{key}`")).filter(|key| !meant.contains(key)));
    }
    if !meant.is_empty() {
        blocks.push(format!("Did you mean {}?", meant.join(", ")));
    }
    blocks
}

/// Whether the text has nothing but white space.
#[inline(always)]
fn is_blank(text: &str) -> bool {
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_graphic());
    !begins && text.chars().all(char::is_whitespace)
}

#[cold]
fn required(key: &str, more: &str) -> Blocks {
    wrong(key, &format!("is required{more}"))
}

#[cold]
fn wrong(key: &str, what: &str) -> Blocks {
    invalid(&format!("{key} {what}"))
}

/// The error for wrong arguments; `what` says what is wrong.
#[cold]
pub(super) fn invalid(what: &str) -> Blocks {
    vec![format!("Invalid parameters: {what}")]
}
