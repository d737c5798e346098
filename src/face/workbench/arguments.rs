//! Reads the arguments of meta-tools.

use std::borrow::Cow;

use super::Address;
use crate::face::arguments::{Arguments, Blocks, invalid};
use crate::json::{Node, Scanner};

/// The most tools that one call of `describe_tools` describes.
pub(super) const MOST_DESCRIBED: usize = 20;

/// The name of a toolbox, from a meta-tool's arguments.
pub(super) fn toolbox_name<'a>(arguments: Option<Node<'a>>) -> Result<Cow<'a, str>, Blocks> {
    Arguments::read(arguments, ["toolbox_name"])?.text(0)
}

/// The toolbox's name, from the arguments of `open_toolbox`, and whether it stands under the key of our
/// ancestor, which knew only proxy mode.
pub(super) fn open_toolbox<'a>(arguments: Option<Node<'a>>) -> Result<(Cow<'a, str>, bool), Blocks> {
    let has = |key: &str| arguments.is_some_and(|arguments| arguments.get(key).is_some());
    match has("toolbox") && !has("toolbox_name") {
        true => Ok((Arguments::read(arguments, ["toolbox"])?.text(0)?, true)),
        false => Ok((toolbox_name(arguments)?, false)),
    }
}

/// The tool's address and its arguments, from the arguments of `use_tool`.
pub(super) fn use_tool<'a>(arguments: Option<Node<'a>>) -> Result<(Address<'a>, Option<Node<'a>>), Blocks> {
    let outer = Arguments::read(arguments, ["tool", "arguments"])?;
    match outer.value(0) {
        Some(tool) if tool.is_object() => Ok((address(tool)?, outer.object(1)?)),
        _ => Err(invalid("tool must be an object with toolbox, server and tool")),
    }
}

/// The parts of an address.
#[inline(always)]
fn address(tool: Node<'_>) -> Result<Address<'_>, Blocks> {
    address_with(tool, "tool").or_else(|error| ancestors_address(tool, error))
}

#[inline(always)]
fn address_with<'a>(tool: Node<'a>, last: &'static str) -> Result<Address<'a>, Blocks> {
    let parts = Arguments::read(Some(tool), ["toolbox", "server", last])?;
    Ok(Address { toolbox: parts.text(0)?, server: parts.text(1)?, tool: parts.text(2)? })
}

/// The parts of an address as our ancestor wrote it, with `name` instead of `tool`; of others this error.
#[cold]
fn ancestors_address(tool: Node<'_>, error: Blocks) -> Result<Address<'_>, Blocks> {
    match tool.get("tool").is_none() && tool.get("name").is_some() {
        true => address_with(tool, "name"),
        false => Err(error),
    }
}

/// The tools that a call of `describe_tools` names.
pub(super) fn describe_tools(arguments: Option<Node<'_>>) -> Result<Vec<Address<'static>>, Blocks> {
    let expected = || {
        invalid(&format!(
            "tools must be a list of 1 to {MOST_DESCRIBED} objects with toolbox, server and tool"
        ))
    };
    let outer = Arguments::read(arguments, ["tools"])?;
    let list = outer.value(0).filter(|list| list.is_array()).ok_or_else(expected)?;
    let mut addresses = Vec::new();
    Scanner::default().each_element(list, |tool| {
        addresses.push(match tool.is_object() {
            true => address(tool).map(Address::into_owned),
            false => Err(expected()),
        });
    });
    match addresses.len() {
        1..=MOST_DESCRIBED => addresses.into_iter().collect(),
        _ => Err(expected()),
    }
}

/// A classic call: the toolbox, the concatenated name and the arguments.
pub(super) type ClassicCall<'a> = (Cow<'a, str>, Cow<'a, str>, Option<Node<'a>>);

/// The parts of a classic call, from the arguments of `workbench_use_tool`.
pub(super) fn classic_use_tool<'a>(arguments: Option<Node<'a>>) -> Result<ClassicCall<'a>, Blocks> {
    let outer = Arguments::read(arguments, ["toolbox_name", "tool_name", "arguments"])?;
    Ok((outer.text(0)?, outer.text(1)?, outer.object(2)?))
}

/// Checks that a meta-tool without parameters was given none.
pub(super) fn no_arguments(arguments: Option<Node<'_>>) -> Result<(), Blocks> {
    arguments.map_or(Ok(()), |arguments| Arguments::read(Some(arguments), []).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outcome of reading these arguments.
    macro_rules! outcome {
        ($text:expr, $read:expr) => {{
            let mut scanner = Scanner::default();
            let read = $read(Some(scanner.scan_str($text).expect("JSON").root()));
            read.map_or_else(|blocks| blocks.join(" / "), |_| "ok".to_owned())
        }};
    }

    #[test]
    fn arguments_of_open_toolbox() {
        for (arguments, expected) in [
            (r#"{"toolbox_name":"dev"}"#, "ok"),
            (r#"{"toolbox":"dev"}"#, "ok"),
            (r#"{"toolbox":"dev","toolbox_name":"dev"}"#, "Invalid parameters: Unrecognized key: 'toolbox'"),
            (r#"{"toolbox":" "}"#, "Invalid parameters: toolbox cannot be empty"),
            (
                r#"{"toolboxName":"dev"}"#,
                "Invalid parameters: Unrecognized key: 'toolboxName' / Did you mean `toolbox_name`?",
            ),
            (r#"{"tb":"dev"}"#, "Invalid parameters: Unrecognized key: 'tb' / Did you mean `toolbox_name`?"),
            (
                r#"{"toolbox_name":"dev","extra_field":1}"#,
                "Invalid parameters: Unrecognized key: 'extra_field'",
            ),
            (
                r#"{"a":1,"b":2}"#,
                "Invalid parameters: Unrecognized keys: 'a', 'b' / Did you mean `toolbox_name`?",
            ),
            (r#"{}"#, "Invalid parameters: toolbox_name is required and must be a string"),
            (r#"[]"#, "Invalid parameters: arguments must be an object"),
        ] {
            assert_eq!(outcome!(arguments, open_toolbox), expected, "{arguments}");
        }
    }

    #[test]
    fn arguments_of_use_tool() {
        for (arguments, expected) in [
            (r#"{"tool":{"toolbox":"a","server":"b","tool":"c"}}"#, "ok"),
            (r#"{"tool":{"toolbox":"a","server":"b","name":"c"},"arguments":{}}"#, "ok"),
            (
                r#"{"tool":{"toolbox":"a","server":"b","name":"c","tool":"c"}}"#,
                "Invalid parameters: Unrecognized key: 'name'",
            ),
            (
                r#"{"tool":{"toolbox_name":"a","server":"b","tool":"c"}}"#,
                "Invalid parameters: Unrecognized key: 'toolbox_name' / Did you mean `toolbox`?",
            ),
            (
                r#"{"tool":{"toolbox":"a","server":"b","tool":"c"},"args":{}}"#,
                "Invalid parameters: Unrecognized key: 'args' / Did you mean `arguments`?",
            ),
            (r#"{"tool":"c"}"#, "Invalid parameters: tool must be an object with toolbox, server and tool"),
        ] {
            assert_eq!(outcome!(arguments, use_tool), expected, "{arguments}");
        }
    }

    #[test]
    fn arguments_of_describe_tools() {
        let expected =
            "Invalid parameters: tools must be a list of 1 to 20 objects with toolbox, server and tool";
        let one = r#"{"toolbox":"a","server":"b","tool":"c"}"#;
        let many = |count: usize| format!(r#"{{"tools":[{}]}}"#, vec![one; count].join(","));
        for (arguments, expected) in [
            (&*many(1), "ok"),
            (&many(20), "ok"),
            (&many(21), expected),
            (r#"{"tools":[]}"#, expected),
            (r#"{"tools":{}}"#, expected),
            (r#"{"tools":["a/b/c"]}"#, expected),
            (r#"{}"#, expected),
            (
                r#"{"tools":[{"toolbox":"a","server":"b"}]}"#,
                "Invalid parameters: tool is required and must be a string",
            ),
            (r#"{"tool":[]}"#, "Invalid parameters: Unrecognized key: 'tool' / Did you mean `tools`?"),
        ] {
            assert_eq!(outcome!(arguments, describe_tools), expected, "{arguments}");
        }
    }
}
