//! The JSON Schemas of both files, for editors.

/// Of `workbench-config.json`.
pub const WORKBENCH: &str = include_str!("../../schema/workbench-config.schema.json");

/// Of `tools.toml`.
pub const TOOLMAN: &str = include_str!("../../schema/tools.schema.json");

#[cfg(test)]
mod tests {
    use super::super::report::{Report, Spelling};
    use super::super::source::Source;
    use super::super::{server, settings, toolman, workbench};
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// The keys of an object of a schema, by the path to it.
    fn keys(schema: &str, pointer: &str) -> BTreeSet<String> {
        let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
        let properties = schema.pointer(&format!("{pointer}/properties")).expect(pointer).as_object();
        properties.expect(pointer).keys().cloned().collect()
    }

    fn known(keys: &[&str], spelling: Spelling) -> BTreeSet<String> {
        let report = Report::new(Source::new(Path::new("x"), ""), spelling);
        keys.iter().map(|key| report.spelled(key).into_owned()).collect()
    }

    /// Every key that the loader knows is in the schema, and the other way round.
    #[test]
    fn keys_are_those_of_the_loader() {
        use Spelling::{Camel, Snake};
        let toolbox = "/properties/toolboxes/additionalProperties";
        let token = "/properties/auth/properties/tokens/items";
        for (schema, pointer, expected, spelling) in [
            (WORKBENCH, "", workbench::KEYS.to_vec(), Camel),
            (WORKBENCH, toolbox, workbench::TOOLBOX_KEYS.to_vec(), Camel),
            (WORKBENCH, "/definitions/server", server::known(), Camel),
            (WORKBENCH, "/properties/auth", settings::AUTH_KEYS.to_vec(), Camel),
            (WORKBENCH, token, [&settings::TOKEN_KEYS[..], &["toolboxes"]].concat(), Camel),
            (TOOLMAN, "", toolman::KEYS.to_vec(), Snake),
            (TOOLMAN, "/properties/servers/items", toolman::SERVER_KEYS.to_vec(), Snake),
            (TOOLMAN, "/properties/auth", settings::AUTH_KEYS.to_vec(), Snake),
            (TOOLMAN, token, [&settings::TOKEN_KEYS[..], &["namespaces"]].concat(), Snake),
        ] {
            assert_eq!(keys(schema, pointer), known(&expected, spelling), "{pointer}");
        }
    }
}
