//! Numbers as Markdown.

use std::time::Duration;

/// A table with a heading, printed at once.
pub(crate) fn print(title: &str, note: &str, head: &[&str], rows: &[Vec<String>]) {
    println!("\n### {title}\n");
    if !note.is_empty() {
        println!("{note}\n");
    }
    println!("| {} |", head.join(" | "));
    let rules: Vec<_> = (0..head.len()).map(|column| if column == 0 { "---" } else { "--:" }).collect();
    println!("| {} |", rules.join(" | "));
    for row in rows {
        println!("| {} |", row.join(" | "));
    }
}

/// A target with its number and whether it is met.
pub(crate) struct Target {
    /// What is asked.
    pub(crate) text: &'static str,
    /// What was measured, as it is shown.
    pub(crate) shown: String,
    /// Whether it is met.
    pub(crate) met: bool,
}

impl Target {
    /// Met if the number is at most the limit.
    pub(crate) fn at_most(text: &'static str, measured: f64, limit: f64, unit: &str) -> Self {
        Self { text, shown: format!("{measured:.2}{unit}"), met: measured <= limit }
    }

    /// Met if the number is at least the limit.
    pub(crate) fn at_least(text: &'static str, measured: f64, limit: f64, unit: &str) -> Self {
        Self { text, shown: format!("{measured:.2}{unit}"), met: measured >= limit }
    }
}

/// Targets as a table.
pub(crate) fn targets(title: &str, targets: Vec<Target>) {
    let row = |target: Target| {
        vec![target.text.to_owned(), target.shown, if target.met { "pass" } else { "**FAIL**" }.to_owned()]
    };
    let rows: Vec<_> = targets.into_iter().map(row).collect();
    print(&format!("{title}: targets"), "", &["target", "measured", ""], &rows);
}

/// The one in the middle.
pub(crate) fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    quantile(&mut numbers.into_iter().collect::<Vec<_>>(), 0.5)
}

/// The number that a part of all do not exceed.
pub(crate) fn quantile(numbers: &mut [f64], part: f64) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    let last = numbers.len().saturating_sub(1);
    numbers.get((last as f64 * part).round() as usize).copied().unwrap_or(f64::NAN)
}

/// In microseconds.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// In milliseconds.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
