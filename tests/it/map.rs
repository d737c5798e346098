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
