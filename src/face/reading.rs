//! `read_result`, with which a model reads a result that was too long for it: to whom it is listed, its definition, and
//! its arguments. Every face has the tool, and it can be called whether it is listed or not.

use super::arguments::{Arguments, Blocks, invalid};
use super::own_tool::{Effect, OwnTool};
use crate::config::ByteLimit;
use crate::json::{Node, quote};
use crate::results::read::{ReadArguments, ReadRequest};

/// The tool's name. Toolman puts its own name before it.
pub const READ: &str = "read_result";

/// The tool's title, for people.
pub(super) const TITLE: &str = "Read a long result";
/// The tool's description, for models.
pub(super) const DESCRIPTION: &str = "Read a result that was too long to be shown whole: a part of it, or what matches in \
    it. Each answer names the call that goes on. Example: {\"id\": \"r7k2…\", \"grep\": \"(?i)error\", \"context\": 2}";

/// The most lines of context around a match.
const MOST_CONTEXT: usize = 50;

/// Whether results of any of these servers are kept from a client that is known to take so many bytes.
pub(super) fn is_on(mut servers: impl Iterator<Item = ByteLimit>, takes: Option<usize>) -> bool {
    servers.any(|over| over.bytes(takes).is_some())
}

/// A text that changes whenever the tool appears in this viewer's list, or vanishes from it. Which modern client looks is
/// not known here, so for those the text follows the settings.
pub(super) fn adds(
    servers: impl Iterator<Item = ByteLimit> + Clone,
    modern: bool,
    takes: Option<usize>,
) -> String {
    let is_auto = modern && servers.clone().any(|over| over == ByteLimit::Auto);
    let [auto, read] =
        [(is_auto, "auto"), (is_on(servers, takes), READ)].map(|(is_so, text)| if is_so { text } else { "" });
    [auto, read].concat()
}

/// The tool's definition under this name.
pub(super) fn definition(name: &str) -> String {
    let (title, effect) = (TITLE, Effect::Describes);
    OwnTool { name, title, effect, description: DESCRIPTION, input_schema: &schema() }.definition()
}

/// The schema of the tool's arguments.
pub(super) fn schema() -> String {
    let string = |what: &str| format!("{{\"type\":\"string\",\"description\":{}}}", quote(what));
    format!(
        "{{\"type\":\"object\",\"properties\":{{\"id\":{},\"lines\":{},\"bytes\":{},\"grep\":{},\"context\":\
         {{\"type\":\"integer\",\"minimum\":0,\"maximum\":{MOST_CONTEXT},\"description\":{}}},\"path\":{}}},\
         \"required\":[\"id\"],\"additionalProperties\":false}}",
        string("The id of the result; alone, it is read from the beginning"),
        string("A range of lines, from 1: \"120-180\", \"120-\", or \"-50\" for the last 50"),
        string("A range of bytes, from 0: \"0-3999\", \"4000-\", or \"-500\" for the last 500"),
        string("A regular expression that is tried on each line; (?i) ignores case"),
        quote("With grep: lines to show around each match"),
        string("A JSONPath, for example $.items[0].name; not with the others"),
    )
}

/// Reads the arguments of a call.
pub fn request(arguments: Option<Node<'_>>) -> Result<ReadRequest, Blocks> {
    let arguments = Arguments::read(arguments, ["id", "lines", "bytes", "grep", "context", "path"])?;
    let context = arguments.value(4).map(|context| {
        let number = context.raw().parse().ok().filter(|number| *number <= MOST_CONTEXT);
        number.ok_or_else(|| invalid(&format!("context must be a whole number from 0 to {MOST_CONTEXT}")))
    });
    let read = ReadArguments {
        id: arguments.text(0)?.into_owned(),
        lines: arguments.optional_text(1)?,
        bytes: arguments.optional_text(2)?,
        grep: arguments.optional_text(3)?,
        context: context.transpose()?,
        path: arguments.optional_text(5)?,
    };
    ReadRequest::new(read).map_err(|wrong| invalid(&wrong))
}

/// The error for arguments that do not fit the result that they are about.
pub fn unfit(wrong: &str) -> Blocks {
    invalid(wrong)
}

/// The error for an id under which nothing is kept for the caller.
pub fn not_kept(id: &str) -> Blocks {
    vec![format!("No result '{id}' is kept here; call the tool again")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Raw;

    #[test]
    fn arguments_are_checked() {
        for (arguments, expected) in [
            ("{}", &["Invalid parameters: id is required and must be a string"][..]),
            (r#"{"id":7}"#, &["Invalid parameters: id must be a string"]),
            (r#"{"id":" "}"#, &["Invalid parameters: id cannot be empty"]),
            ("[]", &["Invalid parameters: arguments must be an object"]),
            (
                r#"{"id":"r","line":"1-2"}"#,
                &["Invalid parameters: Unrecognized key: 'line'", "Did you mean `lines`?"],
            ),
            (r#"{"id":"r","bytes":5}"#, &["Invalid parameters: bytes must be a string"]),
            (r#"{"id":"r","grep":"a","grep":"b"}"#, &["Invalid parameters: grep appears twice"]),
            (
                r#"{"id":"r","grep":"a","context":51}"#,
                &["Invalid parameters: context must be a whole number from 0 to 50"],
            ),
            (
                r#"{"id":"r","grep":"a","context":"1"}"#,
                &["Invalid parameters: context must be a whole number from 0 to 50"],
            ),
            (r#"{"id":"r","context":1}"#, &["Invalid parameters: context needs grep"]),
        ] {
            assert_eq!(request(Some(Raw::own(arguments).root())).unwrap_err(), expected, "{arguments}");
        }
        assert!(request(Some(Raw::own(r#"{"id":"r","grep":"a","context":50,"lines":"-5"}"#).root())).is_ok());
    }
}
