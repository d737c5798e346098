//! The gateway's own tools, whatever the face: how their definitions tell clients and people about them, and the shape of
//! answers that are texts.

use crate::json::quote;

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
        format!(
            "{{\"name\":{},\"title\":{},\"description\":{},\"inputSchema\":{}{}{}}}",
            quote(self.name),
            quote(self.title),
            quote(self.description),
            self.input_schema,
            self.effect.annotations(),
            self.effect.meta(),
        )
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
