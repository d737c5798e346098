//! The locations of clients' files.

use crate::config::locate::{Platform, Surroundings};
use crate::known_clients::KnownClient;
use std::path::{Path, PathBuf};

/// A file that a client may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFile {
    /// The absolute path.
    pub path: PathBuf,
    /// Whom the file concerns.
    pub scope: FileScope,
    /// Whether we may write our entry there.
    pub own: bool,
}

/// Whom a file or an entry concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileScope {
    /// The user, in every directory.
    User,
    /// The project in the current directory.
    Project,
}

/// All locations of a client's files, whether or not the files exist: user-wide ones first, most important at
/// the top.
///
/// Descriptions spell them `~/…` (home), `{config}/…` (where the platform keeps settings), `{xdg}/…` (the
/// same by the XDG rules, also on macOS), `$NAME/…` (only if that variable is set), and `windows:…` or
/// `linux:…` (only on that system).
pub fn places(client: &KnownClient, around: &Surroundings<'_>) -> Vec<ClientFile> {
    let user =
        client.files.user.iter().filter_map(|group| group.iter().find_map(|place| path(place, around)));
    let user = user.map(|path| ClientFile { path, scope: FileScope::User, own: true });
    let borrowed = client.files.borrowed.iter().filter_map(|place| path(place, around));
    let borrowed = borrowed.map(|path| ClientFile { path, scope: FileScope::User, own: false });
    let project = client.files.project.iter().map(|place| around.directory.join(place));
    let project = project.map(|path| ClientFile { path, scope: FileScope::Project, own: false });
    let mut places: Vec<ClientFile> = Vec::new();
    for place in user.chain(borrowed).chain(project) {
        if !places.iter().any(|known| known.path == place.path) {
            places.push(place);
        }
    }
    places
}

fn path(place: &str, around: &Surroundings<'_>) -> Option<PathBuf> {
    let variable =
        |name: &str| (around.environment)(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = |rest: &str| around.home.map(|home| home.join(rest));
    if let Some(rest) = place.strip_prefix("windows:") {
        return if around.platform == Platform::Windows { path(rest, around) } else { None };
    }
    if let Some(rest) = place.strip_prefix("linux:") {
        return if around.platform == Platform::Unix { path(rest, around) } else { None };
    }
    let (base, rest) = place.split_once('/').unwrap_or((place, ""));
    let xdg = || variable("XDG_CONFIG_HOME").or_else(|| home(".config"));
    let base = match (base, around.platform) {
        ("~", _) => around.home.map(Path::to_owned),
        ("{xdg}", _) | ("{config}", Platform::Unix) => xdg(),
        ("{config}", Platform::MacOs) => home("Library/Application Support"),
        ("{config}", Platform::Windows) => variable("APPDATA").or_else(|| home("AppData/Roaming")),
        (name, _) => variable(name.strip_prefix('$')?),
    }?;
    Some(if rest.is_empty() { base } else { base.join(rest) })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn found(client: &str, platform: Platform, variables: &[(&str, &str)]) -> Vec<String> {
        let environment = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let around = Surroundings {
            environment: &environment,
            directory: Path::new("/p"),
            home: Some(Path::new("/h")),
            platform,
            exists: &|_| false,
        };
        let client = KnownClient::named(client).expect("a client of the table");
        places(client, &around).iter().map(|place| place.path.display().to_string()).collect()
    }

    #[test]
    fn every_platform_has_its_places() {
        use Platform::{MacOs, Unix, Windows};
        for (client, platform, variables, expected) in [
            ("claude-desktop", Unix, &[][..], &["/h/.config/Claude/claude_desktop_config.json"][..]),
            (
                "claude-desktop",
                Unix,
                &[("XDG_CONFIG_HOME", "/x")],
                &["/x/Claude/claude_desktop_config.json", "/h/.config/Claude/claude_desktop_config.json"],
            ),
            (
                "claude-desktop",
                MacOs,
                &[("XDG_CONFIG_HOME", "/x")],
                &["/h/Library/Application Support/Claude/claude_desktop_config.json"],
            ),
            ("claude-desktop", Windows, &[("APPDATA", "/a")], &["/a/Claude/claude_desktop_config.json"]),
            ("claude-code", Unix, &[], &["/h/.claude.json", "/p/.mcp.json"]),
            ("claude-code", Unix, &[("CLAUDE_CONFIG_DIR", "/c")], &["/c/.claude.json", "/p/.mcp.json"]),
            ("cursor", Unix, &[], &["/h/.cursor/mcp.json", "/p/.cursor/mcp.json"]),
            ("zed", MacOs, &[], &["/h/.config/zed/settings.json", "/p/.zed/settings.json"]),
            ("codex", Unix, &[("CODEX_HOME", "/c")], &["/c/config.toml", "/p/.codex/config.toml"]),
            (
                "cline",
                MacOs,
                &[("CLINE_MCP_SETTINGS_PATH", "/c/s.json")],
                &[
                    "/c/s.json",
                    "/h/Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                ],
            ),
            ("lmstudio", Unix, &[], &["/h/.lmstudio/mcp.json", "/h/.cache/lm-studio/mcp.json"]),
        ] {
            assert_eq!(found(client, platform, variables), expected, "{client} {platform:?}");
        }
    }
}
