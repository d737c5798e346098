//! One toolbox as a plain server: everything under its own name, and nothing of ours.

use crate::config::{Common, NameRule, Toolbox};
use crate::core::catalog::{Kind, NameLimits};
use crate::core::upstream::Upstream;
use crate::core::view::{Exposure, View};
use crate::faces::workbench::schema_change;
use crate::wire::era::ClientHello;
use crate::wire::json::{Node, quote};

/// The face of one toolbox.
pub struct Plain {
    /// The toolbox.
    pub toolbox: Toolbox,
    /// Top-level settings of its file.
    pub common: Common,
}

impl Plain {
    /// Whether it was opened.
    pub fn is_open(&self, view: &View) -> bool {
        view.is_open(self.toolbox.name.as_str())
    }
}

impl Exposure for Plain {
    fn full_name(&self, _upstream: &Upstream, _kind: Kind, key: &str) -> String {
        key.to_owned()
    }

    fn second_name(&self, upstream: &Upstream, key: &str) -> Option<String> {
        Some(format!("{}__{key}", upstream.server))
    }

    fn render(&self, _: &Upstream, kind: Kind, name: &str, definition: Node<'_>, out: &mut Vec<u8>) {
        let own = definition.get(kind.key()).filter(|own| own.as_str().is_some_and(|own| own == name));
        let name = own.map_or_else(|| quote(name), |own| own.raw().to_owned());
        let mut changes = vec![(kind.key(), Some(&*name))];
        if kind == Kind::Tool {
            changes.extend(schema_change(definition));
        }
        definition.write_with(out, &changes);
    }

    fn limits(&self) -> NameLimits {
        NameLimits { rule: NameRule::Exact, length: usize::MAX }
    }

    fn lists(&self, _client: Option<&ClientHello>, _kind: Kind) -> bool {
        true
    }

    fn lists_to_modern(&self) -> bool {
        true
    }
}
