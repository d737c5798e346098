//! Names that clients accept: what fits, and what stands for a name that does not.

use crate::config::NameRule;
use crate::hash::HashMap;
use crate::text::digest;

/// The limits that a client sets on tool names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameLimits {
    /// The rule for characters.
    pub rule: NameRule,
    /// The longest name.
    pub length: usize,
    /// A tool of the gateway itself, whose name no other tool gets.
    pub reserved: Option<&'static str>,
}

/// The length of the mark: eight hash digits and the `_` before them.
const MARK: usize = 9;

impl NameLimits {
    /// Whether the name may stay as it is.
    pub fn fits(self, name: &str) -> bool {
        !self.is_too_long(name)
            && (self.rule == NameRule::Exact || name.bytes().map(char::from).all(accepted))
    }

    /// Whether the name has more characters than clients take.
    pub fn is_too_long(self, name: &str) -> bool {
        name.len() > self.length && name.chars().count() > self.length
    }

    /// The name, cut and marked with a hash of its origin.
    pub fn marked(self, name: &str, origin: &[&str], attempt: u32) -> String {
        let kept = name.chars().take(self.length.saturating_sub(MARK));
        let mut marked: String = match self.rule {
            NameRule::Safe => kept.map(|c| if accepted(c) { c } else { '_' }).collect(),
            NameRule::Exact => kept.collect(),
        };
        marked.push_str(&format!("_{:08x}", hash(origin, attempt)));
        marked
    }
}

/// Whether `name` is what some client knows the thing of this origin by, whose name in full does not fit there: as much
/// of it as that client takes, and the mark.
pub fn is_marked(name: &str, full: &str, origin: &[&str]) -> bool {
    let Some((kept, mark)) = name.len().checked_sub(MARK).and_then(|at| name.split_at_checked(at)) else {
        return false;
    };
    let mut whole = full.chars();
    let is_kept = |c: char| whole.next().is_some_and(|own| own == c || (c == '_' && !accepted(own)));
    kept.chars().all(is_kept) && mark == format!("_{:08x}", hash(origin, 0))
}

fn accepted(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// The number behind the mark's eight digits. It must never change, because names outlive a process in
/// prompts.
fn hash(origin: &[&str], attempt: u32) -> u32 {
    let parts = origin.iter().flat_map(|part| part.bytes().chain([0]));
    let attempt = (attempt > 0).then(|| attempt.to_le_bytes());
    let number = digest::number(parts.chain(attempt.into_iter().flatten()));
    (number ^ (number >> 32)) as u32
}

/// The names that differ least from `wanted`, nearest first.
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let wanted = wanted.to_lowercase();
    let mut seen = HashMap::default();
    for name in names {
        let lower = name.to_lowercase();
        let contained = !wanted.is_empty() && (lower.contains(&wanted) || wanted.contains(&lower));
        let score = strsim::jaro_winkler(&wanted, &lower).max(if contained { 0.9 } else { 0.0 });
        if score >= 0.75 {
            seen.entry(name).or_insert(score);
        }
    }
    let mut near: Vec<_> = seen.into_iter().collect();
    near.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    near.into_iter().take(most).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_made_fit() {
        let limits = |rule, length| NameLimits { rule, length, reserved: None };
        for (limits, name, expected) in [
            (limits(NameRule::Safe, 64), "dev__fs__read", None),
            (limits(NameRule::Safe, 64), "dev__My Server__read", Some("dev__My_Server__read_")),
            (limits(NameRule::Safe, 20), "dev__filesystem__read", Some("dev__filesy_")),
            (limits(NameRule::Exact, 64), "dev__My Server__read", None),
            (limits(NameRule::Exact, 20), "dev__ä Server__read_file", Some("dev__ä Serv_")),
        ] {
            match expected {
                None => assert!(limits.fits(name), "{name}"),
                Some(prefix) => {
                    assert!(!limits.fits(name), "{name}");
                    let marked = limits.marked(name, &["o"], 0);
                    assert!(
                        marked.starts_with(prefix) && marked.chars().count() == prefix.chars().count() + 8,
                        "{marked}"
                    );
                    assert!(limits.fits(&marked));
                }
            }
        }
        let limits = limits(NameRule::Safe, 20);
        assert_eq!(limits.marked("a b", &["dev", "fs", "read"], 0), "a_b_2f95bb26");
        assert_eq!(limits.marked("a b", &["dev", "fs", "read"], 1), "a_b_88d7a1b6");
    }

    #[test]
    fn near_names() {
        let names = ["read_file", "write_file", "read_text_file", "list"];
        assert_eq!(nearest("read_fil", names, 2), ["read_file", "read_text_file"]);
        assert!(nearest("zzzz", names, 2).is_empty());
    }

    #[test]
    fn a_marked_name_is_known_whatever_it_was_cut_to() {
        let origin = ["dev", "fs", "read"];
        for (name, expected) in [
            ("a_b_2f95bb26", true),
            ("a b_2f95bb26", true),
            ("a_2f95bb26", true),
            ("_2f95bb26", true),
            ("2f95bb26", false),
            ("a_b_2f95bb27", false),
            ("a-b_2f95bb26", false),
            ("b_2f95bb26", false),
            ("a_b_c_2f95bb26", false),
            ("a_b\u{fc}2f95bb26", false),
        ] {
            assert_eq!(is_marked(name, "a b", &origin), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn marked_names_always_fit(name in ".{1,200}", length in 10usize..80, exact: bool) {
            let rule = if exact { NameRule::Exact } else { NameRule::Safe };
            let limits = NameLimits { rule, length, reserved: None };
            let marked = limits.marked(&name, &["a", &name], 0);
            prop_assert!(limits.fits(&marked) && is_marked(&marked, &name, &["a", &name]));
        }

        #[test]
        fn parts_of_an_origin_do_not_run_together(a in "[ab]{0,4}", b in "[ab]{0,4}", c in "[ab]{0,4}", d in "[ab]{0,4}") {
            prop_assert_eq!(hash(&[&a, &b], 0) == hash(&[&c, &d], 0), (a, b) == (c, d));
        }
    }
}
