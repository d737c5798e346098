//! One toolbox as a plain server: everything under its own name, and nothing of ours.

use crate::config::{Common, NameRule, Toolbox};
use crate::core::catalog::{Item, Kind, NameLimits};
use crate::core::upstream::Upstream;
use crate::core::view::{Clash, Exposure, View};
use crate::faces::workbench::schema_change;
use crate::wire::era::ClientHello;
use crate::wire::json::{Scanner, quote};

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

    fn render(&self, _upstream: &Upstream, kind: Kind, name: &str, item: &Item) -> String {
        let mut scanner = Scanner::default();
        let node = scanner.scan_str(&item.raw).expect("definitions are valid JSON").root();
        let name = if *name == *item.key { item.raw_key.to_string() } else { quote(name) };
        let mut changes = vec![(kind.key(), Some(&*name))];
        if kind == Kind::Tool {
            changes.extend(schema_change(node));
        }
        let mut text = Vec::new();
        node.write_with(&mut text, &changes);
        String::from_utf8(text).expect("written from UTF-8 texts")
    }

    fn allows(&self, upstream: &Upstream, kind: Kind, key: &str) -> bool {
        kind != Kind::Tool || upstream.spec().filter.allows(key)
    }

    fn starts_active(&self, _kind: Kind, _full: &str, _name: &str) -> bool {
        true
    }

    fn clash(&self) -> Clash {
        Clash::Rename
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

    fn tells(&self, _kind: Kind, _definition: &str) -> Option<String> {
        None
    }
}
