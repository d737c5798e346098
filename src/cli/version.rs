//! The program's version, commit and target, and how it was installed.

use std::fmt::Write;
use std::path::Path;
use std::sync::LazyLock;

/// `0.1.0 (commit 0123456789ab, x86_64-unknown-linux-musl, installed by npm)`.
pub(super) fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let place = std::env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_default();
        described(
            env!("BUILD_COMMIT"),
            env!("BUILD_TARGET"),
            origin(&place, env!("BUILD_CHANNEL"), Path::exists),
        )
    });
    &TEXT
}

fn described(commit: &str, target: &str, origin: &str) -> String {
    let mut text = format!("{} (", env!("CARGO_PKG_VERSION"));
    if !commit.is_empty() {
        let _ = write!(text, "commit {commit}, ");
    }
    let _ = write!(text, "{target}, {origin})");
    text
}

/// How the executable was installed. The same file serves several channels, so its path is checked first.
fn origin(place: &Path, channel: &str, exists: impl Fn(&Path) -> bool) -> &'static str {
    let folder = place.parent().unwrap_or(Path::new(""));
    if place.components().any(|part| part.as_os_str() == "node_modules") {
        return "installed by npm";
    }
    if channel == "wheel" {
        return "installed from a wheel";
    }
    // Cargo keeps its list of installed programs one directory up.
    if folder.parent().is_some_and(|root| exists(&root.join(".crates.toml"))) {
        return "installed by cargo";
    }
    match channel {
        "release" => "release archive",
        _ => "own build",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_and_the_build_tell_how_it_was_installed() {
        let npm = "/p/node_modules/@mcp-workbench/linux-x64/bin/toolman";
        for (place, channel, list, expected) in [
            (npm, "release", None, "installed by npm"),
            ("/home/me/.local/bin/toolman", "wheel", None, "installed from a wheel"),
            ("/home/me/.cargo/bin/toolman", "", Some("/home/me/.cargo/.crates.toml"), "installed by cargo"),
            (
                "/home/me/.cargo/bin/toolman",
                "release",
                Some("/home/me/.cargo/.crates.toml"),
                "installed by cargo",
            ),
            ("/opt/toolman", "release", None, "release archive"),
            ("/src/target/debug/toolman", "", None, "own build"),
            ("", "", None, "own build"),
        ] {
            let exists = |path: &Path| list.is_some_and(|list| path == Path::new(list));
            assert_eq!(origin(Path::new(place), channel, exists), expected, "{place} {channel}");
        }
    }

    #[test]
    fn a_commit_is_named_where_it_is_known() {
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(described("", "t", "own build"), format!("{version} (t, own build)"));
        assert_eq!(described("abc", "t", "own build"), format!("{version} (commit abc, t, own build)"));
    }
}
