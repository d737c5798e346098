//! Checks who besides its owner can access a file that holds secrets. Only Unix permissions are worth
//! reporting.

use std::fs::Metadata;
use std::path::Path;

/// The most that the group or others may do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(unix), allow(dead_code, reason = "elsewhere nothing is known"))]
pub enum Access {
    /// They have no access.
    None,
    /// They can read the file.
    Read,
    /// They can change the file.
    Write,
}

impl Access {
    /// The access of others to this file. Pipes and devices report none, because they store nothing and their
    /// permissions mean something else.
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

    /// The access of others to this file, which is unknown on this system.
    #[cfg(not(unix))]
    pub fn of_others(_: &Metadata) -> Self {
        Self::None
    }
}

/// The shell command that restricts a file to its owner.
pub fn mend(file: &Path) -> String {
    let path = file.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%=".contains(c);
    match path.chars().all(plain) {
        true => format!("chmod 600 {path}"),
        false => format!("chmod 600 '{}'", path.replace('\'', r"'\''")),
    }
}
