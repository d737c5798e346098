//! `add`, which puts one server into our own file.

use super::World;
use super::change::{Console, JsonAnswer, Proposal, Settled, format, open, refused, validate};
use super::failure::Failure;
use super::fresh::{fresh, text_to_extend};
use super::import::{literals, put_into_toolbox, variables};
use super::lock;
use super::secrets::Secrets;
use super::shape::servers;
use crate::client_files::{
    ImportedServer, ImportedTimeouts, Launch, Origin, Template, Vault, free_name, toolbox_for, toolman_value,
};
use crate::config::locate::FaceKind;
use crate::config::{Redactor, ServerName, ToolboxName};
use crate::edit::file::Audience;
use crate::edit::{self, Edit, Value};
use serde_json::json;
use std::path::{Path, PathBuf};

/// A server as the command line describes it.
pub(super) struct New<'a> {
    pub(super) name: &'a str,
    pub(super) url: Option<&'a str>,
    pub(super) sse: bool,
    pub(super) command: &'a [String],
    /// `NAME=value`
    pub(super) env: &'a [String],
    /// `Name: value`
    pub(super) headers: &'a [String],
}

/// The file that gets the server.
pub(super) struct Destination<'a> {
    pub(super) face: FaceKind,
    pub(super) file: &'a Path,
    /// The toolbox; one named after the server if none is given.
    pub(super) toolbox: Option<&'a str>,
    /// What to say about the toolbox.
    pub(super) description: Option<&'a str>,
    pub(super) world: &'a World,
}

/// Adds a server. The file is created if there is none.
pub(super) fn add(
    target: &Destination<'_>,
    new: &New<'_>,
    console: &mut Console<'_>,
) -> Result<JsonAnswer, Failure> {
    console.in_turn(target.file, |console| add_now(target, new, console))
}

fn add_now(
    target: &Destination<'_>,
    new: &New<'_>,
    console: &mut Console<'_>,
) -> Result<JsonAnswer, Failure> {
    let face = target.face;
    let mut server = describe(new)?;
    let hidden = literals(std::slice::from_ref(&server));
    if face == FaceKind::Workbench {
        ServerName::new(new.name)
            .map_err(|wrong| Failure::usage(wrong, "give the server a readable name"))?;
    }
    let config = open(face, target.file, target.world, Some(&fresh(face, false)))?;
    let toolbox = toolbox(target, new.name, &config.value)?;
    let secrets = Secrets::of(&config, face, target.world)?;
    let environment = |name: &str| secrets.value(name);
    let mut vault = Vault::new(&environment, variables(&config.text), secrets.own.clone());
    vault.take(&mut server);
    let (replaced, values) = (vault.replaced, vault.values);
    let mut edits = match face {
        FaceKind::Workbench => put_into_toolbox(&server, &toolbox, target.description.unwrap_or_default()),
        FaceKind::Toolman => {
            let path = vec!["servers".to_owned()];
            vec![Edit::Push { path, value: toolman_value(&server), index: usize::MAX }]
        }
    };
    if config.snapshot.bytes.is_some() && !values.is_empty() {
        edits.extend(Secrets::naming(face, &config.value));
    }
    let before = text_to_extend(&config, face, !values.is_empty());
    let after =
        edit::apply(format(face), &before, &edits).map_err(|refusal| refused(target.file, &refusal))?;
    let filed = secrets.with(&values);
    validate(face, target.file, after.as_bytes(), filed.as_deref(), target.world)?;
    let mut answer = match face {
        FaceKind::Workbench => json!({"toolbox": toolbox, "server": new.name}),
        FaceKind::Toolman => json!({"namespace": new.name}),
    };
    let moved = replaced.iter().map(|one| json!({"variable": one.variable, "key": one.key}));
    answer["secrets"] = moved.collect();
    let mut answer: JsonAnswer = answer.as_object().cloned().unwrap_or_default();
    let proposal = Proposal {
        snapshot: &config.snapshot,
        format: format(face),
        after: Some(&after),
        audience: Audience::Usual,
        secrets: Redactor::new(hidden.into_iter().chain(values)),
    };
    console.plan(format!("Adds {}{}", new.name, inside("to", &toolbox)));
    if !replaced.is_empty() {
        let names: Vec<_> = replaced.iter().map(|one| one.variable.as_str()).collect();
        let file = secrets.snapshot.path.display();
        console.plan(format!("Its secrets become variables, kept in {file}: {}", names.join(", ")));
    }
    let settled = console.settle(&proposal, &mut answer, |console| match &filed {
        Some(text) => secrets.write(text, console),
        None => Ok(()),
    })?;
    if settled == Settled::Written {
        lock::remind(target.face, &config, console)?;
    }
    Ok(answer)
}

fn describe(new: &New<'_>) -> Result<ImportedServer, Failure> {
    let launch = match (new.url, new.command) {
        (Some(url), []) => {
            let header = |text: &String| {
                let (name, value) = text.split_once(':').ok_or_else(|| {
                    Failure::usage(
                        "a header needs a `:` between its name and its value",
                        "write it as --header \"Name: value\"",
                    )
                })?;
                Ok((name.trim().to_owned(), Template::ours(value.trim())))
            };
            let headers = new.headers.iter().map(header).collect::<Result<_, Failure>>()?;
            Launch::Url { url: Template::ours(url), headers, sse: new.sse, oauth: Vec::new() }
        }
        (None, [program, args @ ..]) => Launch::Command {
            program: Template::ours(program),
            args: args.iter().map(|arg| Template::ours(arg)).collect(),
        },
        _ => {
            return Err(Failure::usage(
                "a server needs either a command or a URL",
                "write `add NAME -- COMMAND ARGUMENTS…` or `add NAME --url URL`",
            ));
        }
    };
    let variable = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), Template::ours(value))),
        _ => Err(Failure::usage(
            "a variable needs an `=` between its name and its value",
            "write it as --env NAME=value",
        )),
    };
    Ok(ImportedServer {
        name: new.name.to_owned(),
        launch,
        env: new.env.iter().map(variable).collect::<Result<_, _>>()?,
        inherit_env: Vec::new(),
        cwd: None,
        timeouts: ImportedTimeouts::default(),
        tools: None,
        tools_key: String::new(),
        disabled: false,
        description: String::new(),
        origin: Origin { client: "", file: PathBuf::new(), path: Vec::new() },
    })
}

/// The toolbox for a server of this name; empty for `tools.toml`. Fails if there is such a server already.
fn toolbox(target: &Destination<'_>, server: &str, value: &Value) -> Result<String, Failure> {
    if target.face == FaceKind::Toolman {
        for (given, option) in [(target.toolbox, "--toolbox"), (target.description, "--description")] {
            if given.is_some() {
                return Err(Failure::usage("tools.toml has no toolboxes", format!("leave {option} out")));
            }
        }
    }
    if let Some(Err(wrong)) = target.toolbox.map(ToolboxName::new) {
        return Err(Failure::usage(wrong, "give the toolbox another name, such as `dev`"));
    }
    let there = servers(target.face, value).into_iter().find(|place| {
        place.server == server && target.toolbox.is_none_or(|toolbox| place.toolbox == toolbox)
    });
    if let Some(place) = there {
        return Err(Failure::usage(
            format!("a server `{server}` already exists{}", inside("in", &place.toolbox)),
            format!("choose another name, or `{} remove` the old one first", target.face.program()),
        ));
    }
    Ok(match (target.face, target.toolbox) {
        (FaceKind::Toolman, _) => String::new(),
        (FaceKind::Workbench, Some(toolbox)) => toolbox.to_owned(),
        (FaceKind::Workbench, None) => {
            let toolboxes = value.get("toolboxes").map(Value::entries).unwrap_or_default();
            let taken: Vec<_> = toolboxes.iter().map(|(name, _)| name.clone()).collect();
            free_name(&toolbox_for(server), &taken)
        }
    })
}

/// Where a server goes or is, in words; `tools.toml` has no toolboxes.
fn inside(preposition: &str, toolbox: &str) -> String {
    if toolbox.is_empty() { String::new() } else { format!(" {preposition} toolbox `{toolbox}`") }
}
