//! The gateway's own tools, whatever the face: how their definitions tell clients and people about them, and the shape of
//! answers that are texts.

use crate::json::{quote, write_string};

/// One of the gateway's own tools.
pub(super) struct OwnTool<'a> {
    /// Its name on the wire.
    pub(super) name: &'a str,
    /// Its title, for people.
    pub(super) title: &'a str,
    /// What a call does.
    pub(super) effect: Effect,
    /// Its description, for models.
    pub(super) description: &'a str,
    /// Its input schema, as raw JSON.
    pub(super) input_schema: &'a str,
}

/// What a tool call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// It makes other tools available; repeating it does no harm.
    Opens,
    /// It lists what there is.
    Lists,
    /// It finds or describes other tools, or reads what they answered.
    Describes,
    /// It calls another tool, so it can do anything.
    Uses,
    /// It takes tools away.
    Closes,
}

impl Effect {
    fn annotations(self) -> &'static str {
        match self {
            Self::Opens => {
                ",\"annotations\":{\"readOnlyHint\":false,\"destructiveHint\":false,\"idempotentHint\":true,\
                 \"openWorldHint\":true}"
            }
            Self::Lists | Self::Describes => ",\"annotations\":{\"readOnlyHint\":true}",
            Self::Uses | Self::Closes => "",
        }
    }

    /// Claude Code keeps tools from the model until the model searches for them, and keeps long answers from
    /// it too, unless `_meta` says otherwise.
    fn meta(self) -> &'static str {
        match self {
            Self::Opens | Self::Describes | Self::Uses => {
                ",\"_meta\":{\"anthropic/alwaysLoad\":true,\"anthropic/maxResultSizeChars\":200000}"
            }
            Self::Lists | Self::Closes => "",
        }
    }
}

impl OwnTool<'_> {
    /// The definition, as JSON.
    pub(super) fn definition(&self) -> String {
        let [name, title] = [self.name, self.title].map(quote);
        let head = format!("{{\"name\":{name},\"title\":{title},\"description\":");
        let tail = [self.effect.annotations(), self.effect.meta(), "}"].concat();
        // The description may be as long as a catalog, so it is written in its place at once.
        let length = head.len() + self.description.len() + self.input_schema.len() + tail.len();
        let mut out = Vec::with_capacity(length + length / 16);
        out.extend_from_slice(head.as_bytes());
        write_string(&mut out, self.description);
        out.extend_from_slice(b",\"inputSchema\":");
        out.extend_from_slice(self.input_schema.as_bytes());
        out.extend_from_slice(tail.as_bytes());
        String::from_utf8(out).expect("written from texts")
    }
}

/// A result with these texts, one block for each.
pub fn text_result(texts: &[impl AsRef<str>]) -> String {
    format!("{{\"content\":[{}]}}", blocks(texts))
}

/// A result that tells the model what went wrong, one block for each text.
pub(super) fn error_result(texts: &[impl AsRef<str>]) -> String {
    format!("{{\"content\":[{}],\"isError\":true}}", blocks(texts))
}

fn blocks(texts: &[impl AsRef<str>]) -> String {
    let block = |text: &_| format!("{{\"type\":\"text\",\"text\":{}}}", quote(AsRef::<str>::as_ref(text)));
    texts.iter().map(block).collect::<Vec<_>>().join(",")
}
