//! Shortens texts that clients would cut off, so that what matters stands in the part that they show. Faces
//! use it for instructions and descriptions.

/// A list that may be shortened, between a head and a tail that may not.
pub struct Listing<'a> {
    /// The text before the rows.
    pub head: &'a str,
    /// The rows.
    pub rows: &'a [ListingRow],
    /// The line that says how many rows were left out, and how to see them.
    pub omitted: &'a dyn Fn(usize) -> String,
    /// The text after the rows.
    pub tail: &'a str,
}

/// A row of a list.
pub struct ListingRow {
    /// The part that must stay.
    pub head: String,
    /// The description, which may be shortened.
    pub about: About,
}

/// The description of a row.
pub enum About {
    /// A text.
    Text(String),
    /// Names, separated by commas, of which only whole ones are shown where there is room for one.
    Names(String),
}

impl About {
    fn whole(&self) -> &str {
        let (Self::Text(text) | Self::Names(text)) = self;
        text
    }

    /// At most `most` characters.
    fn shortened(&self, most: usize) -> String {
        let text = self.whole();
        if text.len() <= most || text.chars().nth(most).is_none() {
            return text.to_owned();
        }
        let room = most.checked_sub(", …".chars().count());
        let last = room.and_then(|room| text.char_indices().nth(room)).map(|(end, _)| end);
        let ends = text.match_indices(", ").map(|(end, _)| end);
        match (self, last.and_then(|last| ends.take_while(|end| *end <= last).last())) {
            (Self::Names(_), Some(end)) => format!("{}, …", &text[..end]),
            _ => shorten(text, most),
        }
    }
}

/// The shortest description worth showing, in characters.
const SHORTEST: usize = 12;

impl Listing<'_> {
    /// The text in at most `limit` bytes (0 means no limit). Descriptions are shortened before rows are left
    /// out.
    pub fn fit(&self, limit: usize) -> String {
        let whole = self.text(usize::MAX, self.rows.len());
        if limit == 0 || whole.len() <= limit {
            return whole;
        }
        let longest = self.rows.iter().map(|row| row.about.whole().chars().count()).max().unwrap_or(0);
        let (mut low, mut high) = (SHORTEST, longest.min(limit));
        while low < high {
            let middle = (low + high).div_ceil(2);
            if self.text(middle, self.rows.len()).len() <= limit { low = middle } else { high = middle - 1 }
        }
        for description in [low, 0] {
            let text = self.text(description, self.rows.len());
            if text.len() <= limit {
                return text;
            }
        }
        let shown = (0..self.rows.len()).rev().find(|shown| self.text(0, *shown).len() <= limit).unwrap_or(0);
        cut(&self.text(0, shown), limit).to_owned()
    }

    fn text(&self, description: usize, rows: usize) -> String {
        let mut text = self.head.to_owned();
        for ListingRow { head, about } in &self.rows[..rows] {
            text.push_str(head);
            if !about.whole().is_empty() && description > 0 {
                text.push_str(": ");
                text.push_str(&about.shortened(description));
            }
            text.push('\n');
        }
        if rows < self.rows.len() {
            text.push_str(&(self.omitted)(self.rows.len() - rows));
            text.push('\n');
        }
        text.push_str(self.tail);
        text
    }
}

/// At most `most` characters of a text, with an ellipsis where it was cut off.
pub fn shorten(text: &str, most: usize) -> String {
    if text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use proptest::prelude::*;

    fn fit(limit: usize, rows: &[(&str, &str)]) -> String {
        let row = |(head, about): &(&str, &str)| ListingRow {
            head: head.to_string(),
            about: match about.contains(", ") {
                true => About::Names(about.to_string()),
                false => About::Text(about.to_string()),
            },
        };
        let rows: Vec<_> = rows.iter().map(row).collect();
        Listing { head: "H\n", rows: &rows, omitted: &|n| format!("+{n}"), tail: "T" }.fit(limit)
    }

    #[test]
    fn descriptions_give_way_before_rows() {
        let rows = [("- a", "some quite long description of a"), ("- b", "short")];
        for (limit, expected) in [
            (0, "H\n- a: some quite long description of a\n- b: short\nT"),
            (100, "H\n- a: some quite long description of a\n- b: short\nT"),
            (40, "H\n- a: some quite long d…\n- b: short\nT"),
            (20, "H\n- a\n- b\nT"),
            (10, "H\n- a\n+1\nT"),
            (6, "H\n+2\nT"),
            (3, "H\n+"),
        ] {
            assert_eq!(fit(limit, &rows), expected, "{limit}");
        }
    }

    #[test]
    fn names_are_shown_whole() {
        let rows = [("- a", "read_file, write_file, move_file")];
        for (limit, expected) in [
            (41, "H\n- a: read_file, write_file, move_file\nT"),
            (40, "H\n- a: read_file, write_file, …\nT"),
            (34, "H\n- a: read_file, …\nT"),
            (23, "H\n- a: read_file, …\nT"),
            (22, "H\n- a\nT"),
        ] {
            assert_eq!(fit(limit, &rows), expected, "{limit}");
        }
    }

    #[test]
    fn many_names_cost_no_more_each_than_few() {
        let best = |count: usize| -> Duration {
            let names: Vec<_> = (0..count).map(|number| format!("tool_{number}")).collect();
            let rows = [("- a", &*names.join(", "))];
            let round = |_| {
                let begun = Instant::now();
                assert!(fit(2000, &rows).ends_with(", …\nT"));
                begun.elapsed()
            };
            (0..5).map(round).min().expect("there are rounds")
        };
        let (few, many) = (best(1000), best(16_000));
        assert!(many <= few * 64, "{few:?} for 1,000, {many:?} for 16,000");
    }

    proptest! {
        #[test]
        fn never_over_the_limit(limit in 1usize..300, rows in prop::collection::vec((".{0,20}", ".{0,60}"), 0..12)) {
            let rows: Vec<_> = rows.iter().map(|(a, b)| (&**a, &**b)).collect();
            prop_assert!(fit(limit, &rows).len() <= limit);
        }
    }
}
