//! What meta-tools are called with.

use std::borrow::Cow;

use super::Address;
use super::answers::error_result;
use crate::json::Node;

/// The name of a toolbox, from the arguments of a meta-tool; the error is a result for the model.
pub(super) fn toolbox_name<'a>(arguments: Option<Node<'a>>) -> Result<Cow<'a, str>, String> {
    Arguments::read(arguments, ["toolbox_name"])?.text(0)
}

/// The address and the arguments for the tool, from the arguments of `use_tool`.
pub(super) fn use_tool<'a>(arguments: Option<Node<'a>>) -> Result<(Address<'a>, Option<Node<'a>>), String> {
    let outer = Arguments::read(arguments, ["tool", "arguments"])?;
    let tool = match outer.value(0)? {
        Some(tool) if tool.is_object() => tool,
        _ => return Err(invalid("tool must be an object with toolbox, server and tool")),
    };
    let parts = Arguments::read(Some(tool), ["toolbox", "server", "tool"])?;
    let address = Address { toolbox: parts.text(0)?, server: parts.text(1)?, tool: parts.text(2)? };
    Ok((address, outer.object(1)?))
}

/// Toolbox, concatenated name and arguments of a call.
pub(super) type ClassicCall<'a> = (Cow<'a, str>, Cow<'a, str>, Option<Node<'a>>);

/// The parts of a call, from the arguments of `workbench_use_tool`.
pub(super) fn classic_use_tool<'a>(arguments: Option<Node<'a>>) -> Result<ClassicCall<'a>, String> {
    let outer = Arguments::read(arguments, ["toolbox_name", "tool_name", "arguments"])?;
    Ok((outer.text(0)?, outer.text(1)?, outer.object(2)?))
}

/// Checks that a meta-tool that takes nothing was given nothing.
pub(super) fn no_arguments(arguments: Option<Node<'_>>) -> Result<(), String> {
    arguments.map_or(Ok(()), |arguments| Arguments::read(Some(arguments), []).map(drop))
}

/// The arguments of a meta-tool, by their place among the keys that it knows.
struct Arguments<'a, const N: usize> {
    keys: [&'static str; N],
    found: [Option<Node<'a>>; N],
    twice: [bool; N],
}

impl<'a, const N: usize> Arguments<'a, N> {
    /// Looks at every member once; keys that are not known are an error.
    fn read(arguments: Option<Node<'a>>, keys: [&'static str; N]) -> Result<Self, String> {
        let object = match arguments {
            Some(arguments) if arguments.is_object() => arguments,
            Some(_) => return Err(invalid("arguments must be an object")),
            None => return Err(invalid(&format!("{} is required", keys.first().unwrap_or(&"")))),
        };
        let mut read = Self { keys, found: [None; N], twice: [false; N] };
        let mut unknown = Vec::new();
        for (key, node) in object.members() {
            match keys.iter().position(|known| *known == key) {
                Some(at) => read.twice[at] |= read.found[at].replace(node).is_some(),
                None => unknown.push(format!("'{key}'")),
            }
        }
        match &*unknown {
            [] => Ok(read),
            [one] => Err(invalid(&format!("Unrecognized key: {one}"))),
            several => Err(invalid(&format!("Unrecognized keys: {}", several.join(", ")))),
        }
    }

    fn value(&self, at: usize) -> Result<Option<Node<'a>>, String> {
        match self.twice[at] {
            true => Err(invalid(&format!("{} stands twice", self.keys[at]))),
            false => Ok(self.found[at]),
        }
    }

    fn text(&self, at: usize) -> Result<Cow<'a, str>, String> {
        let key = self.keys[at];
        match self.value(at)?.map(Node::as_str) {
            None => Err(invalid(&format!("{key} is required and must be a string"))),
            Some(None) => Err(invalid(&format!("{key} must be a string"))),
            Some(Some(text)) if text.trim().is_empty() => Err(invalid(&format!("{key} cannot be empty"))),
            Some(Some(text)) => Ok(text),
        }
    }

    fn object(&self, at: usize) -> Result<Option<Node<'a>>, String> {
        match self.value(at)? {
            Some(value) if !value.is_object() => {
                Err(invalid(&format!("{} must be an object", self.keys[at])))
            }
            value => Ok(value),
        }
    }
}

fn invalid(what: &str) -> String {
    error_result(&[&format!("Invalid parameters: {what}")])
}
