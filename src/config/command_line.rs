//! The command string of `tools.toml`: plain words, or text for a shell.

use super::expand::{Environment, Fault, FaultKind, expand};
use std::ops::Range;

/// The kind of a command string.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CommandLine {
    /// Words to run directly. Assignments before the program become environment variables.
    Words { assignments: Vec<(String, Word)>, words: Vec<Word> },
    /// Text to be run by a shell, which needs these variables.
    Shell { variables: Vec<String> },
}

/// A word after splitting. Its variables are not replaced yet, so that their values never become syntax.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Word(Vec<Piece>);

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// `NAME=` at the beginning of a word, outside quotes.
    Name(String),
    /// `${VAR}` or `${VAR:-…}`, and its position in the command string.
    Variable(String, Range<usize>),
}

/// The reason why a string is not a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A quote at this byte is not closed.
    Quote(usize),
    /// A `${NAME` is not closed.
    Variable(Fault),
}

/// Splits a command string as a shell would. Shell syntax outside quotes makes it text for a shell, unless
/// `shell` decides.
pub(crate) fn split(text: &str, shell: Option<bool>) -> Result<CommandLine, Broken> {
    let mut splitter = Splitter { text, ..Splitter::default() };
    splitter.run()?;
    if shell.unwrap_or(splitter.syntax) {
        return Ok(CommandLine::Shell { variables: mentioned(text) });
    }
    let mut words = splitter.words;
    let program = words.iter().position(|word| word.name().is_none()).unwrap_or(words.len());
    let rest = words.split_off(program);
    let assignments = words.into_iter().filter_map(Word::into_assignment).collect();
    Ok(CommandLine::Words { assignments, words: rest })
}

/// The words of a command string, including assignments, with variables unexpanded; `None` if it is broken.
pub(crate) fn words(text: &str) -> Option<Vec<String>> {
    let mut splitter = Splitter { text, ..Splitter::default() };
    splitter.run().ok()?;
    Some(splitter.words.iter().map(|word| word.parts().map(|(part, _)| part).collect()).collect())
}

impl Word {
    /// Replaces the variables by their values. Faults have their position in the command string.
    pub(crate) fn fill(
        &self,
        environment: &Environment<'_>,
        used: &mut Vec<(String, String)>,
    ) -> Result<String, Vec<Fault>> {
        let (mut text, mut faults) = (String::new(), Vec::new());
        for piece in &self.0 {
            match piece {
                Piece::Text(part) | Piece::Name(part) => text.push_str(part),
                Piece::Variable(reference, range) => {
                    let expansion = expand(reference, environment);
                    text.push_str(&expansion.text);
                    used.extend(expansion.variables);
                    let faults_here = expansion.faults.into_iter();
                    faults.extend(faults_here.map(|fault| Fault { range: range.clone(), ..fault }));
                }
            }
        }
        if faults.is_empty() { Ok(text) } else { Err(faults) }
    }

    /// The parts in order, each with whether it is a variable (`${…}`).
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&str, bool)> {
        self.0.iter().map(|piece| match piece {
            Piece::Text(text) | Piece::Name(text) => (text.as_str(), false),
            Piece::Variable(reference, _) => (reference.as_str(), true),
        })
    }

    /// The name before `=`, if this is an assignment whose name and `=` are outside quotes.
    fn name(&self) -> Option<&str> {
        match self.0.first() {
            Some(Piece::Name(text)) => text.strip_suffix('='),
            _ => None,
        }
    }

    fn into_assignment(mut self) -> Option<(String, Word)> {
        let name = self.name()?.to_owned();
        self.0.remove(0);
        Some((name, self))
    }
}

#[derive(Default)]
struct Splitter<'t> {
    text: &'t str,
    at: usize,
    words: Vec<Word>,
    /// The word under construction; `None` between words.
    word: Option<Word>,
    /// Whether nothing of the word was quoted so far.
    bare: bool,
    /// Text of the word that is not a piece yet.
    pending: String,
    /// Whether shell syntax was seen.
    syntax: bool,
}

impl Splitter<'_> {
    fn run(&mut self) -> Result<(), Broken> {
        while let Some(character) = self.next() {
            match character {
                c if c.is_whitespace() => self.end_word(),
                '\'' => self.single_quoted()?,
                '"' => self.double_quoted()?,
                '\\' => match self.next() {
                    Some('\n') => {}
                    escaped => self.quoted(escaped.unwrap_or('\\')),
                },
                '$' => self.dollar()?,
                '=' => {
                    self.push('=');
                    let name = self.pending.strip_suffix('=').is_some_and(is_name);
                    if let Some(word) =
                        self.word.as_mut().filter(|word| self.bare && name && word.0.is_empty())
                    {
                        word.0.push(Piece::Name(std::mem::take(&mut self.pending)));
                    }
                }
                other => {
                    self.syntax |= ";|&<>~*?[`".contains(other);
                    self.push(other);
                }
            }
        }
        self.end_word();
        Ok(())
    }

    fn single_quoted(&mut self) -> Result<(), Broken> {
        let start = self.at - 1;
        self.begin_quote();
        loop {
            match self.next() {
                None => return Err(Broken::Quote(start)),
                Some('\'') => return Ok(()),
                Some(other) => self.push(other),
            }
        }
    }

    fn double_quoted(&mut self) -> Result<(), Broken> {
        let start = self.at - 1;
        self.begin_quote();
        loop {
            match self.next() {
                None => return Err(Broken::Quote(start)),
                Some('"') => return Ok(()),
                Some('$') => self.dollar()?,
                Some('\\') => match self.next() {
                    None => return Err(Broken::Quote(start)),
                    Some('\n') => {}
                    Some(escaped) => {
                        if !matches!(escaped, '$' | '`' | '"' | '\\') {
                            self.push('\\');
                        }
                        self.push(escaped);
                    }
                },
                Some(other) => {
                    self.syntax |= other == '`';
                    self.push(other);
                }
            }
        }
    }

    /// Handles a dollar that is not in single quotes. `${VAR}` and `${VAR:-…}` are ours; any other dollar is
    /// for the shell.
    fn dollar(&mut self) -> Result<(), Broken> {
        let start = self.at - 1;
        let rest = &self.text[start..];
        if let Some(fault) = expand(rest, &|_| Some(String::new())).faults.into_iter().next()
            && fault.range.start == 0
            && fault.kind == FaultKind::Unclosed
        {
            let range = start..start + fault.range.end;
            return Err(Broken::Variable(Fault { range, ..fault }));
        }
        if let Some(reference) = rest.find('}').map(|end| &rest[..=end])
            && rest.starts_with("${")
            && expand(reference, &|_| Some(String::new())).text.is_empty()
        {
            self.end_piece();
            self.at = start + reference.len();
            let piece = Piece::Variable(reference.to_owned(), start..self.at);
            self.word.get_or_insert_default().0.push(piece);
            return Ok(());
        }
        self.syntax = true;
        if rest.starts_with("$${") && expand(rest, &|_| None).text.starts_with("${") {
            self.at += "${".len();
            self.push_all("${");
        } else {
            self.push('$');
        }
        Ok(())
    }

    fn next(&mut self) -> Option<char> {
        let character = self.text[self.at..].chars().next()?;
        self.at += character.len_utf8();
        Some(character)
    }

    fn begin_quote(&mut self) {
        self.begin_word();
        self.bare = false;
    }

    fn quoted(&mut self, character: char) {
        self.begin_quote();
        self.push(character);
    }

    fn push(&mut self, character: char) {
        self.begin_word();
        self.pending.push(character);
    }

    fn push_all(&mut self, text: &str) {
        self.begin_word();
        self.pending.push_str(text);
    }

    fn begin_word(&mut self) {
        if self.word.is_none() {
            self.word = Some(Word::default());
            self.bare = true;
        }
    }

    fn end_piece(&mut self) {
        self.begin_word();
        if let Some(word) = &mut self.word
            && !self.pending.is_empty()
        {
            word.0.push(Piece::Text(std::mem::take(&mut self.pending)));
        }
    }

    fn end_word(&mut self) {
        if self.word.is_some() {
            self.end_piece();
            self.words.extend(self.word.take());
        }
    }
}

/// The names after dollars, without duplicates.
fn mentioned(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (at, _) in text.match_indices('$') {
        let rest = text[at + 1..].trim_start_matches('{');
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let name = &rest[..end];
        if is_name(name) && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn is_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "DIR" => Some("a b; $x '\"".into()),
            "EMPTY" => Some(String::new()),
            "KEY" => Some("value".into()),
            _ => None,
        }
    }

    /// Shows `NAME=value|…` for assignments and `[word]` for words, `shell(NAMES)`, or what is broken.
    fn shown(text: &str, shell: Option<bool>) -> String {
        let fill = |word: &Word| match word.fill(&environment, &mut Vec::new()) {
            Ok(text) => text,
            Err(faults) => format!("<{}>", faults[0].name),
        };
        match split(text, shell) {
            Ok(CommandLine::Words { assignments, words }) => {
                let assignments = assignments.iter().map(|(name, word)| format!("{name}={}|", fill(word)));
                let words = words.iter().map(|word| format!("[{}]", fill(word)));
                assignments.chain(words).collect()
            }
            Ok(CommandLine::Shell { variables }) => format!("shell({})", variables.join(",")),
            Err(Broken::Quote(at)) => format!("quote at {at}"),
            Err(Broken::Variable(fault)) => format!("{} open at {:?}", fault.name, fault.range),
        }
    }

    #[test]
    fn plain_words() {
        for (text, expected) in [
            ("", ""),
            ("uvx pjpd-server --data .", "[uvx][pjpd-server][--data][.]"),
            ("  a\t b\n c ", "[a][b][c]"),
            // Quotes and backslashes work as in a shell.
            (r#"a 'b c' "d e" f\ g"#, "[a][b c][d e][f g]"),
            (r#"a'b'"c"d"#, "[abcd]"),
            (r#"a '' """#, "[a][][]"),
            (r#"a "\"\\\$\`\n""#, r#"[a]["\$`\n]"#),
            (r#"a '\n$x`;*'"#, r"[a][\n$x`;*]"),
            (r#"a ";|&<>~*?[""#, "[a][;|&<>~*?[]"),
            (r"a \; \$HOME \*", "[a][;][$HOME][*]"),
            ("a\\\nb", "[ab]"),
            ("@org/name#1 x=y {a,b} !", "[@org/name#1][x=y][{a,b}][!]"),
            // Variables are replaced after splitting, whatever they contain.
            ("a ${DIR}", "[a][a b; $x '\"]"),
            ("a x${KEY}y\"${DIR}\"", "[a][xvalueya b; $x '\"]"),
            ("a ${EMPTY} b", "[a][][b]"),
            ("a ${NONE:-d e;*} b", "[a][d e;*][b]"),
            ("a ${NONE}", "[a][<NONE>]"),
            ("a '${KEY}' \\${KEY}", "[a][${KEY}][${KEY}]"),
            // Leading assignments become environment variables.
            ("A=1 B= C=\"x y\"z D=${KEY} cmd E=2", "A=1|B=|C=x yz|D=value|[cmd][E=2]"),
            ("A=b=c cmd", "A=b=c|[cmd]"),
            ("1A=b cmd", "[1A=b][cmd]"),
            ("'A'=b cmd", "[A=b][cmd]"),
            ("A\\=b cmd", "[A=b][cmd]"),
            ("A-B=c cmd", "[A-B=c][cmd]"),
            ("A=1", "A=1|"),
            ("'A=' cmd", "[A=][cmd]"),
            ("\"A=\"b cmd", "[A=b][cmd]"),
        ] {
            assert_eq!(shown(text, None), expected, "{text}");
        }
    }

    #[test]
    fn shell_syntax() {
        for text in [
            "a; b", "a | b", "a && b", "a &", "a < b", "a > b", "~/x", "a *", "a ?", "a [b]", "`a`",
            "\"`a`\"", "$$",
        ] {
            assert_eq!(shown(text, None), "shell()", "{text}");
        }
        for (text, expected) in [
            ("$HOME/bin/x", "shell(HOME)"),
            ("\"$A\" $A $b_1", "shell(A,b_1)"),
            ("a ${lower}", "shell(lower)"),
            ("a ${V-x}", "shell(V)"),
            ("a $(b ${C})", "shell(C)"),
            ("a ${KEY:-x} | b", "shell(KEY)"),
            ("a $${KEY}", "shell(KEY)"),
        ] {
            assert_eq!(shown(text, None), expected, "{text}");
        }
    }

    #[test]
    fn forced() {
        assert_eq!(shown("a b ${KEY}", Some(true)), "shell(KEY)");
        assert_eq!(shown("a; $b *", Some(false)), "[a;][$b][*]");
        assert_eq!(shown("a ${lower} $${KEY}", Some(false)), "[a][${lower}][${KEY}]");
    }

    #[test]
    fn broken() {
        for shell in [None, Some(true), Some(false)] {
            assert_eq!(shown("a 'b", shell), "quote at 2");
            assert_eq!(shown("a \"b\\", shell), "quote at 2");
            assert_eq!(shown("a ${KEY b", shell), "KEY open at 2..7");
        }
    }

    proptest! {
        #[test]
        fn quoted_words_come_out_as_they_went_in(words in prop::collection::vec("[^'\0]{0,8}", 1..5)) {
            let line = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
            let CommandLine::Words { assignments, words: split } = split(&line, Some(false)).expect("it is whole") else {
                panic!("no shell was asked for")
            };
            prop_assert!(assignments.is_empty());
            let filled: Vec<_> =
                split.iter().map(|word| word.fill(&|_| None, &mut Vec::new()).expect("no variables")).collect();
            prop_assert_eq!(filled, words);
        }

        #[test]
        fn any_text_is_split_or_broken_at_a_place_inside(text in "[a-zA-Z =$\\\\{}'\"\\-:;|ü]{0,30}", shell in any::<Option<bool>>()) {
            match split(&text, shell) {
                Err(Broken::Quote(at)) => prop_assert!(text.is_char_boundary(at) && at < text.len()),
                Err(Broken::Variable(fault)) => prop_assert!(text.get(fault.range).is_some()),
                Ok(CommandLine::Shell { .. }) => prop_assert!(shell != Some(false)),
                Ok(CommandLine::Words { .. }) => prop_assert!(shell != Some(true)),
            }
        }
    }
}
