//! Who besides its owner has access to a file that holds secrets. Only Unix says so in a way that is worth a word.

use std::fs::Metadata;
use std::path::Path;

/// What the group of a file and all others may do with it, the worst of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(unix), allow(dead_code, reason = "elsewhere nothing is known"))]
pub enum Access {
    /// Nothing.
    None,
    /// Read it.
    Read,
    /// Change it.
    Write,
}

impl Access {
    /// To this file. Pipes and devices are not kept, and their permissions mean something else.
    #[cfg(unix)]
    pub fn of_others(file: &Metadata) -> Self {
        use std::os::unix::fs::PermissionsExt;
        match file.permissions().mode() {
            _ if !file.is_file() => Self::None,
            mode if mode & 0o022 != 0 => Self::Write,
            mode if mode & 0o044 != 0 => Self::Read,
            _ => Self::None,
        }
    }

    /// To this file.
    #[cfg(not(unix))]
    pub fn of_others(_: &Metadata) -> Self {
        Self::None
    }
}

/// The command that leaves a file to its owner alone.
pub fn mend(file: &Path) -> String {
    let path = file.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%=".contains(c);
    match path.chars().all(plain) {
        true => format!("chmod 600 {path}"),
        false => format!("chmod 600 '{}'", path.replace('\'', r"'\''")),
    }
}
