//! How clients write variables into their files.

use super::template::{Template, is_name};
use crate::config::detect::variable_name;
use crate::edit::Value;
use crate::known_clients::{KnownClient, VariableSyntax};
use std::path::Path;

/// What variables of clients stand for.
pub struct Meaning<'a> {
    /// The variable that holds the user's home: `HOME` or `USERPROFILE`.
    pub home: &'a str,
    /// The project that a file belongs to.
    pub workspace: Option<&'a Path>,
}

/// Reads a text of a client. What has no equivalent here stays as text and is added to `lost`, as written.
pub fn translate(
    syntax: VariableSyntax,
    text: &str,
    meaning: &Meaning<'_>,
    lost: &mut Vec<String>,
) -> Template {
    if syntax == VariableSyntax::Config {
        return Template::ours(text);
    }
    let mut template = Template::default();
    let mut at = 0;
    let opening = if syntax == VariableSyntax::OpenCode { '{' } else { '$' };
    while let Some(found) = text[at..].find(opening) {
        let start = at + found;
        template.push_text(&text[at..start]);
        at = match reference(syntax, &text[start..]) {
            None => {
                template.push_text(&text[start..=start]);
                start + 1
            }
            Some((inside, length)) => {
                if !replace(syntax, inside, meaning, &mut template) {
                    lost.push(text[start..start + length].to_owned());
                    template.push_text(&text[start..start + length]);
                }
                start + length
            }
        };
    }
    template.push_text(&text[at..]);
    template
}

/// The variable that a text begins with: what stands inside, and how long it is in all.
fn reference(syntax: VariableSyntax, text: &str) -> Option<(&str, usize)> {
    let braced = |open: &str| {
        let inside = text.strip_prefix(open)?;
        let close = inside.find('}')?;
        Some((&inside[..close], open.len() + close + 1))
    };
    match syntax {
        VariableSyntax::None | VariableSyntax::Config => None,
        VariableSyntax::Braced | VariableSyntax::Editor => {
            braced("${").filter(|(inside, _)| !inside.is_empty())
        }
        VariableSyntax::OpenCode => {
            braced("{").filter(|(inside, _)| inside.starts_with("env:") || inside.starts_with("file:"))
        }
        VariableSyntax::Dollar => braced("${").filter(|(inside, _)| !inside.is_empty()).or_else(|| {
            let name = text.strip_prefix('$')?;
            let end = name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(name.len());
            let name = &name[..end];
            (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some((name, end + 1))
        }),
    }
}

fn replace(syntax: VariableSyntax, inside: &str, meaning: &Meaning<'_>, template: &mut Template) -> bool {
    let (name, default) = match syntax {
        VariableSyntax::Braced | VariableSyntax::Dollar => match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        },
        VariableSyntax::OpenCode | VariableSyntax::Editor => match inside.split_once(':') {
            Some(("env", name)) => (name, None),
            Some(("input", id)) => {
                template.push_variable(&input_variable(id), None);
                return true;
            }
            _ => match (inside, meaning.workspace) {
                ("userHome", _) => (meaning.home, None),
                ("workspaceFolder", Some(folder)) => {
                    template.push_text(&folder.to_string_lossy());
                    return true;
                }
                ("workspaceFolderBasename", Some(folder)) => {
                    template.push_text(&folder.file_name().unwrap_or_default().to_string_lossy());
                    return true;
                }
                ("pathSeparator" | "/", _) => {
                    template.push_text(std::path::MAIN_SEPARATOR_STR);
                    return true;
                }
                _ => return false,
            },
        },
        VariableSyntax::None | VariableSyntax::Config => return false,
    };
    if !is_name(name) {
        return false;
    }
    template.push_variable(name, default);
    true
}

/// The variable that stands for an input of VS Code.
pub(super) fn input_variable(id: &str) -> String {
    variable_name(id)
}

/// What a client asks its user for: each variable that stands for an answer, and how the client spells the question.
pub fn inputs(client: &KnownClient, file: &Value) -> Vec<(String, String)> {
    const OPENING: &str = "${input:";
    let mut found = Vec::new();
    let servers = client.root(file).and_then(|root| file.at(&root));
    let mut left: Vec<_> =
        servers.filter(|_| client.files.dialect.variables == VariableSyntax::Editor).into_iter().collect();
    while let Some(value) = left.pop() {
        left.extend(value.entries().iter().map(|(_, value)| value).chain(value.items()).rev());
        for (at, _) in value.text().unwrap_or_default().match_indices(OPENING) {
            let text = &value.text().unwrap_or_default()[at..];
            let Some(end) = text.find('}') else { continue };
            let pair = (input_variable(&text[OPENING.len()..end]), text[..=end].to_owned());
            if !found.contains(&pair) {
                found.push(pair);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_syntax() {
        let meaning = Meaning { home: "HOME", workspace: Some(Path::new("/work/app")) };
        for (syntax, text, expected, lost) in [
            (VariableSyntax::None, "${A} $B {env:C}", "$${A} $B {env:C}", ""),
            (VariableSyntax::Braced, "${A} ${B:-c d} $E ${F", "${A} ${B:-c d} $E $${F", ""),
            (VariableSyntax::Braced, "${lower}", "${lower}", "${lower}"),
            (VariableSyntax::Editor, "${env:A}/${userHome}/${workspaceFolder}", "${A}/${HOME}//work/app", ""),
            (VariableSyntax::Editor, "${A} ${input:github-token}", "$${A} ${GITHUB_TOKEN}", "${A}"),
            (VariableSyntax::Editor, "${file:/x} $B", "${file:/x} $B", "${file:/x}"),
            (VariableSyntax::Dollar, "$A-${B} ${C:-d} $5 $$", "${A}-${B} ${C:-d} $5 $$", ""),
            (VariableSyntax::Dollar, "$lower", "$lower", "$lower"),
            (VariableSyntax::OpenCode, "{env:A} ${B} {x} {file:y}", "${A} $${B} {x} {file:y}", "{file:y}"),
        ] {
            let mut missing = Vec::new();
            let template = translate(syntax, text, &meaning, &mut missing);
            assert_eq!((template.spelled().as_str(), missing.join(" ").as_str()), (expected, lost), "{text}");
        }
    }
}
