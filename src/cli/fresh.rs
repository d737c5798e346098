//! The text of a configuration that `init`, `import` or `add` creates, before any server is in it.

use super::change::Config;
use super::schema::SCHEMA_URLS;
use crate::config::locate::FaceKind;

/// The settings of a new file: the key in each face, the value, and why it is set.
const SETTINGS: [([&str; 2], &str, &str); 4] = [
    (
        ["onMissingVariable", "on_missing_variable"],
        "\"skip\"",
        "A server whose variables are not set does not start; all others do.",
    ),
    (["envFile", "env_file"], "\"secrets.env\"", "The values of variables, kept out of this file."),
    (
        ["offloadOver", "offload_over"],
        "\"auto\"",
        "A result that is too long for the client is kept, and the model reads it in parts.",
    ),
    (
        ["journal", "journal"],
        "true",
        "Calls are noted in a journal, without their arguments; `log` shows them.",
    ),
];

/// A configuration without servers, with or without a reference to the file of secrets.
pub(super) fn fresh(face: FaceKind, secrets: bool) -> String {
    let settings = SETTINGS.iter().filter(|(keys, ..)| secrets || keys[0] != "envFile");
    match face {
        FaceKind::Workbench => {
            let settings: String = settings
                .map(|([key, _], value, why)| format!("  // {why}\n  \"{key}\": {value},\n"))
                .collect();
            format!("{{\n  \"$schema\": \"{}\",\n{settings}  \"toolboxes\": {{}}\n}}\n", SCHEMA_URLS.0)
        }
        FaceKind::Toolman => {
            let settings: String =
                settings.map(|([_, key], value, why)| format!("# {why}\n{key} = {value}\n")).collect();
            format!("#:schema {}\n\n{settings}active_toolsets = []\n", SCHEMA_URLS.1)
        }
    }
}

/// The text that servers are added to: that of the file or, if there is none yet, a fresh one.
pub(super) fn text_to_extend(config: &Config, face: FaceKind, secrets: bool) -> String {
    match config.snapshot.bytes {
        Some(_) => config.text.clone(),
        None => fresh(face, secrets),
    }
}
