//! The list of mutations keeps up with the code: `testing/mutations/run.mjs` runs it, which takes too long for here.

use std::path::Path;

/// One lie: the file, what it amounts to, and its parts.
struct Entry<'a> {
    file: &'a str,
    what: &'a str,
    lines: Vec<&'a str>,
}

impl Entry<'_> {
    /// The lines with this sign, without it.
    fn part(&self, sign: &str) -> String {
        let lines: Vec<&str> = self.lines.iter().filter_map(|line| line.strip_prefix(sign)).collect();
        lines.join("\n")
    }
}

fn entries(list: &str) -> Vec<Entry<'_>> {
    let blocks = list.split("\n\n").map(|block| block.lines().filter(|line| !line.starts_with('#')));
    blocks
        .filter_map(|mut lines| {
            let title = lines.find(|line| !line.is_empty())?;
            let (file, what) = title.split_once(": ").unwrap_or_else(|| panic!("no title: {title}"));
            Some(Entry { file, what, lines: lines.collect() })
        })
        .collect()
}

#[test]
fn every_original_stands_once_in_its_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = std::fs::read_to_string(root.join("testing/mutations/list")).expect("the list");
    let entries = entries(&list);
    assert!(entries.len() >= 40, "{} entries", entries.len());
    for entry in &entries {
        let (original, mutated, test) = (entry.part("- "), entry.part("+ "), entry.part("! "));
        let Entry { file, what, lines } = entry;
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_else(|_| panic!("no {file}: {what}"));
        assert!(!original.is_empty() && original != mutated && !test.is_empty(), "{file}: {what}");
        assert!(lines.iter().all(|line| ["- ", "+ ", "! ", "~ "].iter().any(|sign| line.starts_with(sign))));
        let count = text.matches(&original).count();
        assert_eq!(count, 1, "the original of \"{what}\" stands {count} times in {file}");
    }
}
