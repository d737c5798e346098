//! Finds the configuration file that is meant, and the user's own directories. The command line calls it
//! before anything is read.

use super::expand::Environment;
use std::fmt;
use std::path::{Path, PathBuf};

/// A product surface; each has a file of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaceKind {
    /// Toolboxes, `workbench-config.json`.
    Workbench,
    /// One catalog, `tools.toml`.
    Toolman,
}

/// The platforms, by where users keep their own files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// `$XDG_CONFIG_HOME` or `~/.config`.
    Unix,
    /// `~/Library/Application Support`.
    MacOs,
    /// `%APPDATA%`.
    Windows,
}

/// What the search for a file depends on.
pub struct Surroundings<'a> {
    /// The environment variables.
    pub environment: &'a Environment<'a>,
    /// The working directory, absolute.
    pub directory: &'a Path,
    /// The user's home.
    pub home: Option<&'a Path>,
    /// The platform, which decides where the user's own file is kept.
    pub platform: Platform,
    /// Whether something exists at a path.
    pub exists: &'a dyn Fn(&Path) -> bool,
}

/// The purposes of a user's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The user's own decisions.
    Settings,
    /// What programs remember about a user.
    State,
    /// What programs can do without.
    Cache,
}

/// The reason why there is no file to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotFound {
    /// A file was named and does not exist.
    Named {
        /// The absolute path of the file.
        file: PathBuf,
        /// What named the file: `--config` or `$WORKBENCH_CONFIG`.
        by: &'static str,
    },
    /// No file was named, and there is none at the usual places.
    Anywhere {
        /// The face whose file was looked for.
        face: FaceKind,
        /// The absolute paths that were tried.
        places: Vec<PathBuf>,
    },
}

/// Finds the file, as an absolute path: the one that the command line or the environment names, otherwise the
/// one in the working directory, otherwise the user's own.
pub fn locate(face: FaceKind, named: Option<&Path>, around: &Surroundings<'_>) -> Result<PathBuf, NotFound> {
    let variable = match face {
        FaceKind::Workbench => (around.environment)("WORKBENCH_CONFIG").filter(|value| !value.is_empty()),
        FaceKind::Toolman => None,
    };
    let named = match (named, &variable) {
        (Some(file), _) => Some((file, "--config")),
        (None, Some(file)) => Some((Path::new(file), "$WORKBENCH_CONFIG")),
        (None, None) => None,
    };
    if let Some((file, by)) = named {
        let file = around.directory.join(file);
        return if (around.exists)(&file) { Ok(file) } else { Err(NotFound::Named { file, by }) };
    }
    let mut places = vec![around.directory.join(face.file_name())];
    places.extend(user_file(face, around));
    match places.iter().find(|place| (around.exists)(place)) {
        Some(file) => Ok(file.clone()),
        None => Err(NotFound::Anywhere { face, places }),
    }
}

/// The user's own file, whether it exists or not; `None` if the user has no home.
pub fn user_file(face: FaceKind, around: &Surroundings<'_>) -> Option<PathBuf> {
    let base = user_directory(Purpose::Settings, around)?;
    let folder = match face {
        FaceKind::Workbench => "mcp-workbench",
        FaceKind::Toolman => "toolman",
    };
    Some(base.join(folder).join(face.file_name()))
}

/// The directory for a user's files of one purpose: where an XDG variable points, otherwise the platform's
/// own place.
pub fn user_directory(purpose: Purpose, around: &Surroundings<'_>) -> Option<PathBuf> {
    use Platform::{MacOs, Unix, Windows};
    let variable = |name| (around.environment)(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = |rest: &str| around.home.map(|home| home.join(rest));
    let (named, place) = match purpose {
        Purpose::Settings => ("XDG_CONFIG_HOME", [".config", "Library/Application Support"]),
        Purpose::State => ("XDG_STATE_HOME", [".local/state", "Library/Application Support"]),
        Purpose::Cache => ("XDG_CACHE_HOME", [".cache", "Library/Caches"]),
    };
    variable(named).or_else(|| match (around.platform, purpose) {
        (Unix, _) => home(place[0]),
        (MacOs, _) => home(place[1]),
        (Windows, Purpose::Settings) => variable("APPDATA").or_else(|| home("AppData/Roaming")),
        (Windows, _) => variable("LOCALAPPDATA").or_else(|| home("AppData/Local")),
    })
}

impl FaceKind {
    /// The usual name of its file.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Workbench => "workbench-config.json",
            Self::Toolman => "tools.toml",
        }
    }

    /// The name of its executable.
    pub fn program(self) -> &'static str {
        match self {
            Self::Workbench => "mcp-workbench",
            Self::Toolman => "toolman",
        }
    }

    /// A minimal file that works.
    pub fn minimal_file(self) -> &'static str {
        match self {
            Self::Workbench => {
                r#"{
  "toolboxes": {
    "dev": {
      "description": "Files of this project",
      "mcpServers": {
        "filesystem": {
          "command": "npx",
          "args": ["-y", "@modelcontextprotocol/server-filesystem", "."]
        }
      }
    }
  }
}
"#
            }
            Self::Toolman => {
                r#"active_toolsets = ["files_*"]

[[servers]]
namespace = "files"
command = "npx -y @modelcontextprotocol/server-filesystem ."
"#
            }
        }
    }
}

impl Platform {
    /// The platform that this program was built for.
    pub fn current() -> Self {
        if cfg!(windows) {
            Self::Windows
        } else if cfg!(target_os = "macos") {
            Self::MacOs
        } else {
            Self::Unix
        }
    }
}

impl NotFound {
    /// What is wrong, in one sentence.
    pub fn message(&self) -> String {
        match self {
            Self::Named { file, by } => {
                format!("the file {} that {by} names does not exist", file.display())
            }
            Self::Anywhere { face, places } => {
                let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
                format!("no {} found; looked for {}", face.file_name(), places.join(" and "))
            }
        }
    }

    /// What to do about it; may have many lines.
    pub fn hint(&self) -> String {
        match self {
            Self::Named { by: "--config", .. } => "check the path after --config".to_owned(),
            Self::Named { by, .. } => format!("check the path in {by}, or unset it"),
            Self::Anywhere { face, .. } => format!(
                "`{} init` makes one from your clients' servers, `--config FILE` names another; a minimal one is\n\n{}",
                face.program(),
                face.minimal_file(),
            ),
        }
    }
}

impl fmt::Display for NotFound {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n{}", self.message(), self.hint().trim_end())
    }
}

impl std::error::Error for NotFound {}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Finds a file, with variables, home and existing files given as words.
    fn find(
        face: FaceKind,
        named: Option<&str>,
        variables: &[(&str, &str)],
        platform: Platform,
        files: &[&str],
    ) -> String {
        let environment = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let exists = |path: &Path| files.iter().any(|file| Path::new(file) == path);
        let around = Surroundings {
            environment: &environment,
            directory: Path::new("/work"),
            home: Some(Path::new("/home/u")),
            platform,
            exists: &exists,
        };
        match locate(face, named.map(Path::new), &around) {
            Ok(file) => file.display().to_string(),
            Err(missing) => missing.message(),
        }
    }

    #[test]
    fn named_then_variable_then_here_then_the_users_own() {
        use FaceKind::{Toolman, Workbench};
        use Platform::{MacOs, Unix, Windows};
        let here = "/work/workbench-config.json";
        let own = "/home/u/.config/mcp-workbench/workbench-config.json";
        let variable = ("WORKBENCH_CONFIG", "v.json");
        let xdg = ("XDG_CONFIG_HOME", "/xdg");
        for (face, named, variables, platform, files, expected) in [
            (Workbench, Some("n.json"), &[variable][..], Unix, &["/work/n.json", here][..], "/work/n.json"),
            (Workbench, Some("/n.json"), &[], Unix, &["/n.json"], "/n.json"),
            (Workbench, None, &[variable], Unix, &["/work/v.json", here], "/work/v.json"),
            (Workbench, None, &[("WORKBENCH_CONFIG", "")], Unix, &[here], here),
            (Workbench, None, &[], Unix, &[here, own], here),
            (Workbench, None, &[], Unix, &[own], own),
            (
                Workbench,
                None,
                &[xdg],
                Unix,
                &["/xdg/mcp-workbench/workbench-config.json", own],
                "/xdg/mcp-workbench/workbench-config.json",
            ),
            (Workbench, None, &[("XDG_CONFIG_HOME", "relative")], Unix, &[own], own),
            (
                Workbench,
                None,
                &[],
                MacOs,
                &["/home/u/Library/Application Support/mcp-workbench/workbench-config.json"],
                "/home/u/Library/Application Support/mcp-workbench/workbench-config.json",
            ),
            (
                Workbench,
                None,
                &[("APPDATA", "/appdata")],
                Windows,
                &["/appdata/mcp-workbench/workbench-config.json"],
                "/appdata/mcp-workbench/workbench-config.json",
            ),
            (Toolman, None, &[variable], Unix, &["/work/tools.toml", "/work/v.json"], "/work/tools.toml"),
            (
                Toolman,
                None,
                &[],
                Unix,
                &["/home/u/.config/toolman/tools.toml"],
                "/home/u/.config/toolman/tools.toml",
            ),
            // A file that was named and does not exist is not replaced by another.
            (
                Workbench,
                Some("n.json"),
                &[variable],
                Unix,
                &[here, "/work/v.json"],
                "the file /work/n.json that --config names does not exist",
            ),
            (
                Workbench,
                None,
                &[variable],
                Unix,
                &[here],
                "the file /work/v.json that $WORKBENCH_CONFIG names does not exist",
            ),
            (
                Workbench,
                None,
                &[],
                Unix,
                &[],
                "no workbench-config.json found; looked for /work/workbench-config.json and /home/u/.config/mcp-workbench/workbench-config.json",
            ),
        ] {
            assert_eq!(find(face, named, variables, platform, files), expected);
        }
    }

    #[test]
    fn each_platform_has_its_places() {
        use Platform::{MacOs, Unix, Windows};
        use Purpose::{Cache, Settings, State};
        for (purpose, platform, variables, expected) in [
            (Settings, Unix, &[][..], "/home/u/.config"),
            (State, Unix, &[], "/home/u/.local/state"),
            (Cache, Unix, &[], "/home/u/.cache"),
            (State, Unix, &[("XDG_STATE_HOME", "/s")], "/s"),
            (Cache, Unix, &[("XDG_CACHE_HOME", "relative")], "/home/u/.cache"),
            (Settings, MacOs, &[], "/home/u/Library/Application Support"),
            (State, MacOs, &[], "/home/u/Library/Application Support"),
            (Cache, MacOs, &[], "/home/u/Library/Caches"),
            (Cache, MacOs, &[("XDG_CACHE_HOME", "/c")], "/c"),
            (Settings, Windows, &[("APPDATA", "/roaming")], "/roaming"),
            (State, Windows, &[("LOCALAPPDATA", "/local")], "/local"),
            (Cache, Windows, &[], "/home/u/AppData/Local"),
        ] {
            let environment = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            let around = Surroundings {
                environment: &environment,
                directory: Path::new("/work"),
                home: Some(Path::new("/home/u")),
                platform,
                exists: &|_| false,
            };
            let found = user_directory(purpose, &around).expect("there is a home");
            assert_eq!(found, Path::new(expected), "{purpose:?} on {platform:?}");
        }
    }

    #[test]
    fn nothing_found_shows_a_file_that_works_and_names_init() {
        let text = NotFound::Anywhere { face: FaceKind::Workbench, places: vec![] }.to_string();
        let minimal = FaceKind::Workbench.minimal_file();
        assert!(text.contains("`mcp-workbench init`") && text.contains(minimal.trim_end()), "{text}");
        let loaded = crate::config::load(
            Path::new("/x.json"),
            minimal.as_bytes(),
            &crate::config::Inputs::of(&|_| None),
        );
        assert_eq!(loaded.expect("a valid file").1, []);
    }
}
