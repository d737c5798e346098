//! Definitions of the gateway's own tools, whatever the face: what they say of themselves to clients and to people.

use crate::json::quote;

/// A tool of the gateway's own.
pub(super) struct OwnTool<'a> {
    /// On the wire.
    pub(super) name: &'a str,
    /// For people.
    pub(super) title: &'a str,
    /// What a call of it does.
    pub(super) effect: Effect,
    /// For models.
    pub(super) description: &'a str,
    /// Raw.
    pub(super) input_schema: &'a str,
}

/// What a call of a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// It makes other tools available; doing so twice does no harm.
    Opens,
    /// It lists what there is.
    Lists,
    /// It finds or describes other tools.
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

    /// Claude Code keeps tools from the model until it searches for them, and long answers too, unless it is told otherwise.
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
