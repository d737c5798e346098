//! The map in ARCHITECTURE.md shows files that are there.

use std::path::{Path, PathBuf};

const ARCHITECTURE: &str = include_str!("../../ARCHITECTURE.md");

/// Words of the map that look like files and directories, each with the directory that its line is about.
fn named() -> Vec<(PathBuf, &'static str)> {
    let map = ARCHITECTURE.split("```").nth(1).expect("the map stands in the first block");
    let (mut directory, mut inner) = (PathBuf::new(), PathBuf::new());
    let mut named = Vec::new();
    for line in map.lines() {
        let indent = line.len() - line.trim_start().len();
        let words = line.split([' ', ',', ':', ';', '(', ')']);
        for (place, word) in words.filter(|word| !word.is_empty()).enumerate() {
            if word.ends_with('/') && place == 0 && indent == 0 {
                (directory, inner) = (word.into(), PathBuf::new());
            } else if word.ends_with('/') && place == 0 && indent == 2 {
                inner = word.into();
            }
            if word.ends_with(".rs") || word.ends_with('/') {
                let of_line = if indent == 4 { directory.join(&inner) } else { directory.clone() };
                named.push((of_line, word));
            }
        }
    }
    named
}

#[test]
fn every_file_of_the_map_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = named();
    assert!(named.len() > 100, "the map is read: {}", named.len());
    for (directory, word) in named {
        let of_directory = std::fs::read_dir(root.join(&directory)).into_iter().flatten().flatten();
        let below = of_directory.map(|entry| entry.path().join(word));
        let mut places = [root.join(word), root.join(&directory).join(word)].into_iter().chain(below);
        assert!(places.any(|place| place.exists()), "{word} is not in {}", directory.display());
    }
}

/// Paths in the text, and the targets of links.
#[test]
fn every_path_in_the_text_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let quoted = ARCHITECTURE.split('`').filter(|word| word.starts_with("src/"));
    let linked =
        ARCHITECTURE.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let paths: Vec<_> = quoted.chain(linked).collect();
    assert!(paths.len() > 30, "the text is read: {paths:?}");
    for path in paths {
        assert!(root.join(path).exists(), "{path} is not there");
    }
}

#[test]
fn every_module_of_the_table_of_invariants_has_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (_, rest) = ARCHITECTURE.split_once("## Invariants").expect("the section is there");
    let (table, _) = rest.split_once("\n## ").expect("another section follows");
    for (path, _) in table.split("](").skip(1).filter_map(|rest| rest.split_once(')')) {
        let text = std::fs::read_to_string(root.join(path)).expect("it is there");
        assert!(text.contains("Invariant:"), "{path} states none");
    }
}

/// Each answer of the form "`Type::name` in `file`" names what stands in that file.
#[test]
fn every_name_of_the_table_of_questions_is_in_its_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (_, rest) = ARCHITECTURE.split_once("## Where to look").expect("the section is there");
    let (table, _) = rest.split_once("\n## ").expect("another section follows");
    let words: Vec<_> = table.split('`').collect();
    let answers = words.windows(3).filter(|part| part[1] == " in " && part[2].ends_with(".rs"));
    let mut count = 0;
    for (name, path) in answers.map(|part| (part[0].rsplit("::").next().unwrap_or_default(), part[2])) {
        let text = std::fs::read_to_string(root.join(path)).expect("it is there");
        let says = |word: &str| {
            let phrase = format!("{word} {name}");
            let mut found = text.split(phrase.as_str()).skip(1);
            found.any(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
        };
        assert!(["fn", "struct", "enum"].into_iter().any(says), "{name} is not in {path}");
        count += 1;
    }
    assert!(count > 10, "the table is read: {count}");
}
