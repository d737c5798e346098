//! `add` and `remove`, which change one server of our own file.

use super::World;
use super::change::{Answer, Console, Proposal, Settled, format, open, refused, validate};
use super::failure::Failure;
use super::import::{literals, variables};
use super::lock;
use super::secrets::Secrets;
use crate::client_files::{
    Group, ImportedServer, ImportedTimeouts, Launch, Origin, Template, Vault, read_config, toolman_value,
    workbench_value,
};
use crate::config::locate::Face;
use crate::config::read::{listed, nearest};
use crate::config::{Redactor, ServerName, ToolboxName};
use crate::edit::file::Audience;
use crate::edit::{self, Edit, Value};
use serde_json::{Map, json};
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

/// The file that is to be changed.
pub(super) struct Target<'a> {
    pub(super) face: Face,
    pub(super) file: &'a Path,
    pub(super) toolbox: Option<&'a str>,
    pub(super) world: &'a World,
}

/// Adds a server.
pub(super) fn add(target: &Target<'_>, new: &New<'_>, console: &mut Console<'_>) -> Result<Answer, Failure> {
    console.in_turn(target.file, |console| add_now(target, new, console))
}

/// Removes a server.
pub(super) fn remove(target: &Target<'_>, name: &str, console: &mut Console<'_>) -> Result<Answer, Failure> {
    console.in_turn(target.file, |console| remove_now(target, name, console))
}

fn add_now(target: &Target<'_>, new: &New<'_>, console: &mut Console<'_>) -> Result<Answer, Failure> {
    let mut server = describe(new)?;
    let hidden = literals(std::slice::from_ref(&server));
    if target.face == Face::Workbench {
        ServerName::new(new.name)
            .map_err(|wrong| Failure::usage(wrong, "give the server a readable name"))?;
    }
    let config = open(target.face, target.file, target.world, None)?;
    let groups = read_config(target.face, &config.value);
    let toolbox = toolbox(target, &groups)?;
    let names: Vec<_> = names(target.face, &config.value, &toolbox);
    if names.iter().any(|name| name == new.name) {
        return Err(Failure::usage(
            format!("`{}` is there already{}", new.name, inside("in", &toolbox)),
            format!("choose another name, or `{} remove` it first", target.face.program()),
        ));
    }
    let secrets = Secrets::of(&config, target.face, target.world)?;
    let environment = |name: &str| secrets.value(name);
    let mut vault = Vault::new(&environment, variables(&config.text), secrets.own.clone());
    vault.take(&mut server);
    let (replaced, values) = (vault.replaced, vault.values);
    let edit = match target.face {
        Face::Workbench => {
            let path = ["toolboxes", &toolbox, "mcpServers", new.name].map(str::to_owned).to_vec();
            Edit::Set { path, value: workbench_value(&server) }
        }
        Face::Toolman => {
            let path = vec!["servers".to_owned()];
            Edit::Push { path, value: toolman_value(&server), index: usize::MAX }
        }
    };
    let naming = Secrets::naming(target.face, &config.value).filter(|_| !values.is_empty());
    let edits: Vec<_> = naming.into_iter().chain([edit]).collect();
    let after = edit::apply(format(target.face), &config.text, &edits)
        .map_err(|refusal| refused(target.file, &refusal))?;
    let filed = secrets.with(&values);
    validate(target.face, target.file, after.as_bytes(), filed.as_deref(), target.world)?;
    let mut answer = answer(target.face, &toolbox, new.name);
    let moved = replaced.iter().map(|one| json!({"variable": one.variable, "key": one.key}));
    answer.insert("secrets".to_owned(), moved.collect());
    let proposal = Proposal {
        snapshot: &config.snapshot,
        format: format(target.face),
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

fn remove_now(target: &Target<'_>, name: &str, console: &mut Console<'_>) -> Result<Answer, Failure> {
    let config = open(target.face, target.file, target.world, None)?;
    let toolboxes: Vec<_> =
        read_config(target.face, &config.value).into_iter().map(|group| group.name).collect();
    let within = |toolbox: &String| target.toolbox.is_none_or(|wanted| wanted == toolbox);
    if let Some(wanted) = target.toolbox.filter(|wanted| !toolboxes.iter().any(|toolbox| toolbox == wanted)) {
        return Err(unknown("toolbox", wanted, &toolboxes));
    }
    let mut holders = Vec::new();
    let mut all = Vec::new();
    for toolbox in toolboxes.into_iter().filter(within) {
        let names = names(target.face, &config.value, &toolbox);
        if names.iter().any(|known| known == name) {
            holders.push(toolbox);
        }
        all.extend(names);
    }
    let toolbox = match holders.as_slice() {
        [toolbox] => toolbox.clone(),
        [] => return Err(unknown("server", name, &all)),
        many => {
            let message = format!("`{name}` stands in the toolboxes {}", listed(many, "and"));
            return Err(Failure::usage(message, "say which one with --toolbox"));
        }
    };
    let edit = match target.face {
        Face::Workbench => {
            Edit::Remove { path: ["toolboxes", &toolbox, "mcpServers", name].map(str::to_owned).to_vec() }
        }
        Face::Toolman => {
            let path = vec!["servers".to_owned()];
            let index = all.iter().position(|known| known == name).unwrap_or_default();
            if all.iter().filter(|known| *known == name).count() > 1 {
                let message = format!("several servers have the namespace `{name}`");
                return Err(Failure::usage(message, "take one out by hand"));
            }
            if all.len() == 1 { Edit::Remove { path } } else { Edit::Pull { path, index } }
        }
    };
    let after = edit::apply(format(target.face), &config.text, &[edit])
        .map_err(|refusal| refused(target.file, &refusal))?;
    validate(target.face, target.file, after.as_bytes(), None, target.world)?;
    let mut answer = answer(target.face, &toolbox, name);
    let proposal = Proposal {
        snapshot: &config.snapshot,
        format: format(target.face),
        after: Some(&after),
        audience: Audience::Usual,
        secrets: Redactor::default(),
    };
    console.plan(format!("Removes {name}{}", inside("from", &toolbox)));
    console.settle(&proposal, &mut answer, |_| Ok(()))?;
    Ok(answer)
}

fn describe(new: &New<'_>) -> Result<ImportedServer, Failure> {
    let launch = match (new.url, new.command) {
        (Some(url), []) => {
            let header = |text: &String| {
                let (name, value) = text.split_once(':').ok_or_else(|| {
                    Failure::usage("a header has no `:`", "write it as --header \"Name: value\"")
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
                "a server has either a command or a URL",
                "write `add NAME -- COMMAND ARGUMENTS…` or `add NAME --url URL`",
            ));
        }
    };
    let variable = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), Template::ours(value))),
        _ => Err(Failure::usage("a variable has no `=`", "write it as --env NAME=value")),
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
        origin: Origin { client: "", file: PathBuf::new(), path: Vec::new() },
    })
}

fn toolbox(target: &Target<'_>, groups: &[Group]) -> Result<String, Failure> {
    if target.face == Face::Toolman {
        return match target.toolbox {
            None => Ok(String::new()),
            Some(_) => Err(Failure::usage("tools.toml has no toolboxes", "leave --toolbox out")),
        };
    }
    match (target.toolbox, groups) {
        (Some(name), _) => match ToolboxName::new(name) {
            Ok(_) => Ok(name.to_owned()),
            Err(wrong) => Err(Failure::usage(wrong, "give the toolbox another name, such as `dev`")),
        },
        (None, []) => Ok("dev".to_owned()),
        (None, [only]) => Ok(only.name.clone()),
        (None, many) => {
            let names: Vec<_> = many.iter().map(|group| group.name.as_str()).collect();
            let message = format!("the file has the toolboxes {}", listed(&names, "and"));
            Err(Failure::usage(message, "say which one with --toolbox"))
        }
    }
}

/// The names of a toolbox's servers, whatever their entries hold.
fn names(face: Face, value: &Value, toolbox: &str) -> Vec<String> {
    match face {
        Face::Workbench => {
            let servers = value.at(&["toolboxes", toolbox, "mcpServers"]).map(Value::entries);
            servers.unwrap_or_default().iter().map(|(name, _)| name.clone()).collect()
        }
        Face::Toolman => {
            let servers = value.get("servers").map(Value::items).unwrap_or_default();
            let name =
                |server: &Value| server.get("namespace").and_then(Value::text).unwrap_or_default().to_owned();
            servers.iter().map(name).collect()
        }
    }
}

fn unknown(what: &str, name: &str, known: &[String]) -> Failure {
    let hint = match nearest(name, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "there is none".to_owned(),
        None => format!("there is {}", listed(known, "and")),
    };
    Failure::usage(format!("there is no {what} `{name}`"), hint)
}

/// Where a server goes or comes from, in words; `tools.toml` has no toolboxes.
fn inside(preposition: &str, toolbox: &str) -> String {
    if toolbox.is_empty() { String::new() } else { format!(" {preposition} toolbox `{toolbox}`") }
}

fn answer(face: Face, toolbox: &str, name: &str) -> Answer {
    let mut answer = Map::new();
    match face {
        Face::Workbench => {
            answer.insert("toolbox".to_owned(), json!(toolbox));
            answer.insert("server".to_owned(), json!(name));
        }
        Face::Toolman => drop(answer.insert("namespace".to_owned(), json!(name))),
    }
    answer
}
