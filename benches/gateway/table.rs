//! Numbers as Markdown.

use std::sync::Mutex;
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
    text: String,
    shown: String,
    met: bool,
}

impl Target {
    /// Met if the number is at most the limit.
    pub(crate) fn at_most(text: impl Into<String>, measured: f64, limit: f64, unit: &str) -> Self {
        Self { text: text.into(), shown: format!("{measured:.2}{unit}"), met: measured <= limit }
    }

    /// Met by this number only.
    pub(crate) fn exactly(text: impl Into<String>, counted: usize, wanted: usize) -> Self {
        Self { text: text.into(), shown: format!("{:.2}", counted as f64), met: counted == wanted }
    }

    /// Met if the number is at least the limit.
    pub(crate) fn at_least(text: impl Into<String>, measured: f64, limit: f64, unit: &str) -> Self {
        Self { text: text.into(), shown: format!("{measured:.2}{unit}"), met: measured >= limit }
    }
}

/// Every target so far, by what it is about.
static TARGETS: Mutex<Vec<(String, Target)>> = Mutex::new(Vec::new());

/// Notes targets for the table at the end.
pub(crate) fn targets(about: &str, targets: impl IntoIterator<Item = Target>) {
    let named = targets.into_iter().map(|target| (about.to_owned(), target));
    TARGETS.lock().expect("no panic").extend(named);
}

/// Prints every target as one table, as it stands in the README.
pub(crate) fn finish() {
    let targets = std::mem::take(&mut *TARGETS.lock().expect("no panic"));
    let row = |(about, target): (String, Target)| {
        vec![
            format!("{about}: {}", target.text),
            target.shown,
            if target.met { "met" } else { "**missed**" }.to_owned(),
        ]
    };
    let rows: Vec<_> = targets.into_iter().map(row).collect();
    print("Targets", "", &["target", "measured", ""], &rows);
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
