//! Asks git about a file, for the verbs that write or check `secrets.env`.

use std::path::Path;
use std::process::Stdio;

/// Whether a file is in a git work tree that does not ignore it, so that it may be committed. Without git,
/// nobody commits anything.
pub fn git_may_commit(file: &Path) -> bool {
    let (Some(directory), Some(name)) = (file.parent(), file.file_name()) else { return false };
    if !directory.ancestors().any(|directory| directory.join(".git").exists()) {
        return false;
    }
    #[allow(clippy::disallowed_methods, reason = "this module owns processes")]
    let mut command = std::process::Command::new("git");
    // The repository's own settings must not start a program.
    command.args(["-c", "core.fsmonitor=false", "check-ignore", "--quiet", "--"]).arg(name);
    command.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Status 0 means ignored, 1 not ignored, and anything else that git does not know.
    command.status().is_ok_and(|status| status.code() == Some(1))
}
