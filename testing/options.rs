//! The command line. [`crate`] documents every flag.

use std::collections::HashMap;
use std::path::PathBuf;
use std::str::FromStr;

use serde_json::value::RawValue;

use crate::behaviours;
use crate::modern::Era;

/// Everything a command line can say.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) tools: Vec<Box<RawValue>>,
    pub(crate) resources: Vec<Box<RawValue>>,
    pub(crate) templates: Vec<Box<RawValue>>,
    pub(crate) prompts: Vec<Box<RawValue>>,
    pub(crate) page: Option<usize>,
    pub(crate) protocol: Option<String>,
    pub(crate) capabilities: Option<Box<RawValue>>,
    pub(crate) instructions: Option<String>,
    pub(crate) scripted: HashMap<String, Scripted>,
    pub(crate) result_as: Option<String>,
    pub(crate) error_as: Option<String>,
    pub(crate) ask_after_initialized: Option<String>,
    pub(crate) era: Era,
    pub(crate) http: Option<u16>,
    pub(crate) sse: bool,
    pub(crate) stay_open: bool,
    pub(crate) no_stream: bool,
    pub(crate) broken: Option<Break>,
    pub(crate) marker: String,
    pub(crate) count: Option<PathBuf>,
    /// Which of the starts that are counted this one is, from 1 on.
    pub(crate) life: usize,
    pub(crate) single: Option<PathBuf>,
    pub(crate) fail_while: Option<PathBuf>,
    pub(crate) wait_for: Option<PathBuf>,
    pub(crate) delay: u64,
    pub(crate) stderr: Vec<String>,
    pub(crate) stdout: Vec<String>,
    pub(crate) exit: Option<i32>,
    pub(crate) stubborn: usize,
    pub(crate) ignore_term: bool,
    pub(crate) ignore_eof: bool,
    pub(crate) exit_after_handshake: bool,
    pub(crate) chaos: Option<u64>,
}

/// How streams break.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Break {
    /// For good.
    Plain,
    /// Their events have ids, by which they can be gone on with.
    WithIds,
}

/// What a method does instead of what it should.
#[derive(Clone)]
pub(crate) enum Scripted {
    Result(Box<RawValue>),
    Error(Box<RawValue>),
    /// Every time, or only the n-th.
    Hang(Option<usize>),
}

impl Options {
    /// Reads the arguments, without the program's name.
    pub(crate) fn parse(arguments: Vec<String>) -> Result<Self, String> {
        let mut options = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(flag) = arguments.next() {
            match flag.as_str() {
                "--ignore-term" => options.ignore_term = true,
                "--ignore-eof" => options.ignore_eof = true,
                "--exit-after-handshake" => options.exit_after_handshake = true,
                "--sse" => options.sse = true,
                "--stay-open" => options.stay_open = true,
                "--no-stream" => options.no_stream = true,
                _ => {
                    let value = arguments.next().ok_or_else(|| format!("{flag} needs a value"))?;
                    options.set(&flag, value).map_err(|problem| format!("{flag}: {problem}"))?;
                }
            }
        }
        Ok(options)
    }

    fn set(&mut self, flag: &str, value: String) -> Result<(), String> {
        match flag {
            "--with" if value == "all" => {
                self.tools.extend(behaviours::NAMES.iter().map(|name| tool(name)));
            }
            "--with" => self.tools.extend(value.split(',').map(tool)),
            "--tool" => self.tools.push(json(value)?),
            "--tools-of" => {
                let text = std::fs::read_to_string(value).map_err(|error| error.to_string())?;
                for line in text.lines() {
                    self.tools.push(json(line.to_owned())?);
                }
            }
            "--tools" => self.tools.extend(numbered(&value, |n| tool(&format!("tool-{n}")))?),
            "--resource" => self.resources.push(json(value)?),
            "--resources" => self.resources.extend(numbered(&value, |n| {
                made(format!(r#"{{"uri":"fake://resource/{n}","name":"Resource {n}"}}"#))
            })?),
            "--template" => self.templates.push(json(value)?),
            "--templates" => self.templates.extend(numbered(&value, |n| {
                made(format!(r#"{{"uriTemplate":"fake://item/{n}/{{id}}","name":"Item {n}"}}"#))
            })?),
            "--prompt" => self.prompts.push(json(value)?),
            "--prompts" => self.prompts.extend(numbered(&value, |n| {
                made(format!(r#"{{"name":"prompt-{n}","description":"Prompt {n}"}}"#))
            })?),
            "--page" => self.page = Some(number(&value)?),
            "--protocol" => self.protocol = Some(value),
            "--capabilities" => self.capabilities = Some(json(value)?),
            "--instructions" => self.instructions = Some(value),
            "--result" => self.script(&value, Scripted::Result)?,
            "--error" => self.script(&value, Scripted::Error)?,
            "--result-as" => self.result_as = Some(value),
            "--error-as" => self.error_as = Some(value),
            "--hang" => {
                let (method, nth) = match value.split_once('#') {
                    Some((method, nth)) => (method, Some(number(nth)?)),
                    None => (&*value, None),
                };
                self.scripted.insert(method.to_owned(), Scripted::Hang(nth));
            }
            "--ask-after-initialized" => self.ask_after_initialized = Some(value),
            "--era" => self.era = value.parse()?,
            "--http" => self.http = Some(number(&value)?),
            "--break" => {
                self.broken = Some(match value.as_str() {
                    "plain" => Break::Plain,
                    "ids" => Break::WithIds,
                    _ => return Err("plain or ids expected".to_owned()),
                });
            }
            "--marker" => self.marker = value,
            "--count" => self.count = Some(value.into()),
            "--single" => self.single = Some(value.into()),
            "--fail-while" => self.fail_while = Some(value.into()),
            "--wait-for" => self.wait_for = Some(value.into()),
            "--delay" => self.delay = number(&value)?,
            "--stderr" => self.stderr.push(value),
            "--stdout" => self.stdout.push(value),
            "--exit" => self.exit = Some(number(&value)?),
            "--chaos" => self.chaos = Some(number(&value)?),
            "--stubborn" => self.stubborn = number(&value)?,
            _ => return Err("unknown flag".to_owned()),
        }
        Ok(())
    }

    fn script(&mut self, value: &str, kind: fn(Box<RawValue>) -> Scripted) -> Result<(), String> {
        let (method, text) = value.split_once('=').ok_or("METHOD=JSON expected")?;
        self.scripted.insert(method.to_owned(), kind(json(text.to_owned())?));
        Ok(())
    }
}

/// The definition of a tool that has nothing but what it needs.
fn tool(name: &str) -> Box<RawValue> {
    made(format!(r#"{{"name":"{name}","description":"Does {name}","inputSchema":{{"type":"object"}}}}"#))
}

fn made(text: String) -> Box<RawValue> {
    RawValue::from_string(text).expect("names hold nothing that JSON escapes")
}

fn json(text: String) -> Result<Box<RawValue>, String> {
    RawValue::from_string(text).map_err(|error| error.to_string())
}

fn number<N: FromStr<Err: ToString>>(text: &str) -> Result<N, String> {
    text.parse().map_err(|error: N::Err| error.to_string())
}

fn numbered<T>(count: &str, item: impl Fn(usize) -> T) -> Result<Vec<T>, String> {
    Ok((1..=number(count)?).map(item).collect())
}
