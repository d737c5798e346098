//! Reads the lock file beside a configuration. The command line calls [`approved`] once the configuration is
//! valid.

use super::node::SyntaxError;
use super::report::{Report, Spelling, decode};
use super::source::Source;
use super::{LockRule, Problem};
use crate::lock::{Form, Lock};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The lock file of a configuration file.
pub fn lock_file(config: &Path) -> PathBuf {
    config.with_extension("lock")
}

/// What a lock file approves, or what is wrong with the file; `None` if no lock is in force. `read` is what the
/// file holds.
pub fn approved(
    rule: LockRule,
    form: Form,
    file: &Path,
    read: io::Result<&[u8]>,
) -> Result<Option<Arc<Lock>>, Vec<Problem>> {
    let bytes = match (rule, read) {
        (LockRule::Off, _) => return Ok(None),
        (_, Ok(bytes)) => bytes,
        (LockRule::IfThere | LockRule::Warn, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        (_, Err(error)) => {
            let message = match error.kind() {
                io::ErrorKind::NotFound => "the lock file does not exist".to_owned(),
                _ => format!("the lock file cannot be read: {error}"),
            };
            let hint = format!("write it with `{}`", form.command());
            let report = Report::new(Source::new(file, ""), Spelling::Camel);
            return Err(report.broken(SyntaxError { span: 0..0, message, hint }));
        }
    };
    let report = Report::new(Source::new(file, decode(file, bytes)?), Spelling::Camel);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    match Lock::read(form, &name, &report.source.text) {
        Ok(lock) => Ok(Some(Arc::new(lock))),
        Err(fault) => {
            let (span, message, hint) = (fault.span, fault.message, fault.hint);
            Err(report.broken(SyntaxError { span, message, hint }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &[u8] = b"{\"lockVersion\": 1, \"toolboxes\": {}}";

    #[test]
    fn the_key_decides_whether_the_file_counts() {
        let missing = || Err(io::ErrorKind::NotFound.into());
        let secret = || Err(io::ErrorKind::PermissionDenied.into());
        type Read = io::Result<&'static [u8]>;
        let cases: [(LockRule, Read, Result<bool, &str>); 11] = [
            (LockRule::IfThere, missing(), Ok(false)),
            (LockRule::IfThere, Ok(EMPTY), Ok(true)),
            (LockRule::IfThere, Ok(b"{"), Err("1:2 this is not valid JSON")),
            (LockRule::IfThere, secret(), Err("1:1 the lock file cannot be read: permission denied")),
            (LockRule::Enforce, missing(), Err("1:1 the lock file does not exist")),
            (LockRule::Enforce, Ok(EMPTY), Ok(true)),
            (
                LockRule::Enforce,
                Ok(b"{\"lockVersion\": 1,\n \"toolboxes\": 1}"),
                Err("2:15 `toolboxes` must be an object"),
            ),
            (LockRule::Enforce, Ok(b"\xff"), Err("1:1 this is not UTF-8")),
            (LockRule::Warn, missing(), Ok(false)),
            (LockRule::Warn, Ok(b""), Err("1:1 the file is empty")),
            (LockRule::Off, Ok(b"{"), Ok(false)),
        ];
        for (rule, read, expected) in cases {
            let shown = format!("{rule:?} {read:?}");
            let found = approved(rule, Form::Toolboxes, Path::new("dir/x.lock"), read);
            let found = found.map(|lock| lock.is_some()).map_err(|problems| {
                let [problem] = &problems[..] else { panic!("one problem: {problems:?}") };
                assert!(problem.is_error() && problem.file == Path::new("dir/x.lock"), "{problem:?}");
                format!("{}:{} {}", problem.line, problem.column, problem.message)
            });
            assert_eq!(
                found.as_ref().map_err(String::as_str),
                expected.as_ref().map_err(|text| *text),
                "{shown}"
            );
        }
        let with_mark = [b"\xef\xbb\xbf", EMPTY].concat();
        assert!(approved(LockRule::Enforce, Form::Toolboxes, Path::new("x.lock"), Ok(&with_mark)).is_ok());
    }

    #[test]
    fn the_file_lies_beside_the_configuration() {
        for (config, expected) in [
            ("/a/workbench-config.json", "/a/workbench-config.lock"),
            ("tools.toml", "tools.lock"),
            ("a.b.json", "a.b.lock"),
            ("config", "config.lock"),
        ] {
            assert_eq!(lock_file(Path::new(config)), Path::new(expected));
        }
    }
}
