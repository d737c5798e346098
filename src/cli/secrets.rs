//! `secrets.env` beside a configuration, where `init`, `import` and `add` put secrets that were given in
//! clear text; and the values of a configuration's variables.
//!
//! Invariant: the file is written before the configuration that names it, and both in one turn, so that
//! processes which add to the file at the same time lose nothing. What the file holds is kept.

use super::World;
use super::change::{Config, Console};
use super::failure::Failure;
use super::load::env_file;
use crate::config::env_file::{SECRETS, line, parse};
use crate::config::expand::expand;
use crate::config::locate::FaceKind;
use crate::core::process::git_may_commit;
use crate::edit::file::{Audience, Snapshot};
use crate::edit::{Edit, Value};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The values of a configuration's variables, and its `secrets.env`.
pub(super) struct Secrets<'a> {
    world: &'a World,
    /// The snapshot of `secrets.env`, whether the file exists or not.
    pub(super) snapshot: Snapshot,
    /// The values in `secrets.env`.
    pub(super) own: HashMap<String, String>,
    /// The values in all files that the configuration names.
    named: HashMap<String, String>,
}

impl<'a> Secrets<'a> {
    /// The secrets of a configuration.
    pub(super) fn of(config: &Config, face: FaceKind, world: &'a World) -> Result<Self, Failure> {
        let file = &config.snapshot.path;
        let directory = file.parent().unwrap_or(Path::new(""));
        let path = directory.join(SECRETS);
        let snapshot = Snapshot::read(&path).map_err(|error| Failure::unreadable(&path, &error))?;
        let text = snapshot.text().ok_or_else(|| {
            Failure::configuration(format!("{} is not UTF-8", path.display()), "save it as UTF-8")
        })?;
        let own = parse(text).map_err(|lines| {
            let message = format!("{}: line {} is not `NAME=value`", path.display(), lines[0]);
            Failure::configuration(message, "correct it; nothing was changed")
        })?;
        let mut named = HashMap::new();
        for path in named_files(&config.value, face, directory, world).into_iter().rev() {
            let text = env_file(&path).ok().and_then(|file| String::from_utf8(file.bytes).ok());
            named.extend(text.and_then(|text| parse(&text).ok()).into_iter().flatten());
        }
        Ok(Self { world, own: own.into_iter().collect(), named, snapshot })
    }

    /// The value of a variable.
    pub(super) fn value(&self, name: &str) -> Option<String> {
        self.world.variable(name).or_else(|| self.filed(name))
    }

    /// The value of a variable according to the files alone.
    pub(super) fn filed(&self, name: &str) -> Option<String> {
        self.named.get(name).or_else(|| self.own.get(name)).cloned()
    }

    /// The text of `secrets.env` with these values added under their names; `None` if it has them all.
    pub(super) fn with(&self, values: &[(String, String)]) -> Option<String> {
        let mut text = self.snapshot.text().unwrap_or_default().to_owned();
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let mut known = self.own.clone();
        let before = known.len();
        for (value, name) in values {
            if known.insert(name.clone(), value.clone()).is_some() {
                continue;
            }
            if !text.is_empty() && !text.ends_with('\n') {
                text.push_str(newline);
            }
            text.push_str(&line(name, value));
            text.push_str(newline);
        }
        (known.len() > before).then_some(text)
    }

    /// The edit that makes a configuration name `secrets.env`; `None` if it does already.
    pub(super) fn naming(face: FaceKind, config: &Value) -> Option<Edit<'static>> {
        let path = vec![env_file_key(face).to_owned()];
        let ours = || Value::String(SECRETS.to_owned());
        let is_ours = |value: &Value| value.text().is_some_and(|name| name.trim_end_matches('?') == SECRETS);
        let value = match config.get(env_file_key(face)) {
            None => ours(),
            Some(Value::List(items)) if items.iter().any(is_ours) => return None,
            Some(Value::List(items)) => Value::List(items.iter().cloned().chain([ours()]).collect()),
            Some(one) if is_ours(one) => return None,
            Some(one) => Value::List(vec![one.clone(), ours()]),
        };
        Some(Edit::Set { path, value })
    }

    /// Writes `secrets.env` so that git ignores it and nobody else can read it.
    pub(super) fn write(&self, text: &str, console: &mut Console<'_>) -> Result<(), Failure> {
        let path = &self.snapshot.path;
        let failed = |path: &Path, error: std::io::Error| {
            let hint = "the file is unchanged; check its permissions and the free space on the disk";
            Failure::failed(format!("cannot write {}: {error}", path.display()), hint)
        };
        console.hold(&self.snapshot)?;
        self.snapshot.replace(text.as_bytes(), Audience::Owner).map_err(|error| failed(path, error))?;
        if git_may_commit(path) {
            let ignore = path.with_file_name(".gitignore");
            let snapshot = Snapshot::read(&ignore).map_err(|error| Failure::unreadable(&ignore, &error))?;
            let mut bytes = snapshot.bytes.clone().unwrap_or_default();
            if !bytes.is_empty() && !bytes.ends_with(b"\n") {
                bytes.push(b'\n');
            }
            bytes.extend(format!("/{SECRETS}\n").bytes());
            snapshot.replace(&bytes, Audience::Usual).map_err(|error| failed(&ignore, error))?;
            console.say(&format!("added {SECRETS} to {}", ignore.display()))?;
        }
        Ok(())
    }
}

/// The files that a configuration names, in the order of the configuration.
fn named_files(config: &Value, face: FaceKind, directory: &Path, world: &World) -> Vec<PathBuf> {
    let environment = |name: &str| world.variable(name);
    let texts = match config.get(env_file_key(face)) {
        Some(Value::List(items)) => items.iter().filter_map(Value::text).collect(),
        Some(one) => one.text().into_iter().collect(),
        None => Vec::new(),
    };
    let path = |text: &str| directory.join(expand(text, &environment).text.trim_end_matches('?'));
    texts.into_iter().map(path).collect()
}

fn env_file_key(face: FaceKind) -> &'static str {
    match face {
        FaceKind::Workbench => "envFile",
        FaceKind::Toolman => "env_file",
    }
}
