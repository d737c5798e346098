//! Reads the journal of all processes, and whatever is appended to it afterwards.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use super::files;
use crate::events::happening::{Happening, Millis};

/// A line of the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalLine {
    /// When what it tells of began.
    pub time: Millis,
    /// The line as it stands there, without its end.
    pub text: String,
    /// What it tells of; `None` for a kind that this build does not know.
    pub happening: Option<Happening>,
}

/// Reads the files of a directory, each as far as it goes.
#[derive(Debug)]
pub struct JournalReader {
    directory: PathBuf,
    /// How far each file was read: to the end of its last whole line.
    read: BTreeMap<PathBuf, u64>,
    skipped: usize,
    /// How many files end in the middle of a line.
    cut_off: usize,
}

impl JournalReader {
    /// A reader that has read nothing yet.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, read: BTreeMap::new(), skipped: 0, cut_off: 0 }
    }

    /// Everything that was not read before, in order of time. A line whose end is not written yet is read the next
    /// time.
    pub fn poll(&mut self) -> io::Result<Vec<JournalLine>> {
        let mut lines = Vec::new();
        self.cut_off = 0;
        for path in files(&self.directory)? {
            let from = self.read.get(&path).copied().unwrap_or(0);
            let mut bytes = Vec::new();
            let opened = File::open(&path).and_then(|mut file| {
                file.seek(SeekFrom::Start(from))?;
                file.read_to_end(&mut bytes)
            });
            match opened {
                // It was removed since the directory was read, because it was the oldest.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
            for line in bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let text = std::str::from_utf8(line).ok();
                match text.and_then(|text| Some((text, Happening::read(text)?))) {
                    Some((text, (time, happening))) => {
                        lines.push(JournalLine { time, text: text.to_owned(), happening });
                    }
                    None => self.skipped += 1,
                }
            }
            self.cut_off += usize::from(whole < bytes.len());
            self.read.insert(path, from + whole as u64);
        }
        // The sort keeps lines of the same moment in the order in which they were written.
        lines.sort_by_key(|line| line.time);
        Ok(lines)
    }

    /// How many lines were none of ours, those included whose end is missing.
    pub fn skipped(&self) -> usize {
        self.skipped + self.cut_off
    }

    /// Whether there is any file.
    pub fn found_any(&self) -> bool {
        !self.read.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_of_all_files_come_in_order_of_time_and_once() {
        let directory =
            std::env::temp_dir().join(format!("mcp-workbench-journal-read-{}", std::process::id()));
        let mut reader = JournalReader::new(directory.clone());
        assert!(reader.poll().expect("no directory is no error").is_empty() && !reader.found_any());
        fs::create_dir_all(&directory).expect("it can be made");
        let line = |second: u32, kind: &str| {
            format!(
                r#"{{"time":"2026-11-16T10:05:{second:02}.000Z","kind":"{kind}","face":"toolman","pid":1,"ok":true,"problems":0}}"#
            )
        };
        let append = |name: &str, text: &str| {
            let file = File::options().create(true).append(true).open(directory.join(name));
            file.and_then(|mut file| file.write_all(text.as_bytes())).expect("it can be written");
        };
        append("2.jsonl", &format!("{}\n{}\n", line(2, "reload"), line(4, "dream")));
        append("1.jsonl", &format!("{}\nnonsense\n\n{}\n\u{0}\n", line(3, "reload"), line(1, "reload")));
        append("notes.txt", "not ours");
        let seconds = |lines: Vec<JournalLine>| -> Vec<(u64, bool)> {
            lines.iter().map(|line| (line.time / 1000 % 60, line.happening.is_some())).collect()
        };
        let read = reader.poll().expect("it can be read");
        assert_eq!(read[0].text, line(1, "reload"));
        assert_eq!(seconds(read), [(1, true), (2, true), (3, true), (4, false)]);
        assert_eq!((reader.skipped(), reader.found_any()), (2, true));
        let half = line(6, "reload");
        append("1.jsonl", &half[..20]);
        append("3.jsonl", &format!("{}\n", line(5, "reload")));
        assert_eq!(seconds(reader.poll().expect("it can be read")), [(5, true)]);
        assert_eq!(reader.skipped(), 3);
        append("1.jsonl", &format!("{}\n", &half[20..]));
        fs::remove_file(directory.join("2.jsonl")).expect("it is ours");
        assert_eq!(seconds(reader.poll().expect("it can be read")), [(6, true)]);
        assert!(reader.poll().expect("it can be read").is_empty());
        assert_eq!(reader.skipped(), 2);
        fs::remove_dir_all(&directory).expect("it is ours");
    }
}
