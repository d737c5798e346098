//! Appends lines to the journal's newest file, begins a new one when it is full, and removes the oldest.
//!
//! Several processes do this at the same time. Each takes the system's lock of the file for one append: while it has it,
//! the file's end is known, so that a line that was cut off gets its line break first and a write that failed can be
//! taken back. A lock that somebody keeps for too long (a process that was stopped) is not waited for: appending is
//! atomic without it, as far as the disk is not full.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::files;

/// A directory has this many files when it is full.
const PARTS: u64 = 8;
/// How long another process may keep the lock of a file.
const PATIENCE: Duration = Duration::from_millis(500);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// Writes to the journal of a directory.
#[derive(Debug)]
pub struct JournalWriter {
    directory: PathBuf,
    current: Option<(PathBuf, File)>,
    /// Whether a failure was reported.
    reported: bool,
}

/// Holds the lock of a file.
struct Locked<'a>(&'a File);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl JournalWriter {
    /// A writer that has opened nothing yet.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, current: None, reported: false }
    }

    /// Appends whole lines, each with its end; the directory holds at most `limit` bytes. What cannot be written is
    /// dropped, and the first time that is reported.
    pub fn append(&mut self, lines: &[u8], limit: u64) {
        let mut left = lines;
        while !left.is_empty() {
            match self.append_some(left, limit) {
                Ok(written) => left = &left[written..],
                Err(error) => {
                    // The next lines try anew, in a file that may be another one.
                    self.current = None;
                    if !std::mem::replace(&mut self.reported, true) {
                        let place = self.directory.display();
                        tracing::warn!(
                            "the journal in {place} cannot be written, and what happens meanwhile is missing there: {error}"
                        );
                    }
                    return;
                }
            }
        }
    }

    /// Appends as many lines as the newest file has room for, at least one; returns their length.
    fn append_some(&mut self, lines: &[u8], limit: u64) -> io::Result<usize> {
        let part = limit / PARTS;
        loop {
            let file = self.open(part, limit)?;
            let locked = lock(&file);
            let length = file.metadata()?.len();
            if length > 0 && length >= part || is_removed(&file) {
                drop(locked);
                self.current = None;
                continue;
            }
            let line_end =
                |from: usize| memchr::memchr(b'\n', &lines[from..]).map_or(lines.len(), |at| from + at + 1);
            let room = usize::try_from(part.saturating_sub(length)).unwrap_or(usize::MAX);
            let mut end = match memchr::memrchr(b'\n', &lines[..room.min(lines.len())]) {
                Some(at) => at + 1,
                // A file that has something in it is full for this line; an empty one takes it whatever its length.
                None if length > 0 => 0,
                None => line_end(0),
            };
            if end == 0 {
                drop(locked);
                self.begin(limit)?;
                continue;
            }
            end = end.min(lines.len());
            write_whole(&file, length, &lines[..end])?;
            return Ok(end);
        }
    }

    /// The newest file, if it has room, or a new one.
    fn open(&mut self, part: u64, limit: u64) -> io::Result<File> {
        if let Some((_, file)) = &self.current {
            return file.try_clone();
        }
        make_directory(&self.directory)?;
        let newest = files(&self.directory)?.pop();
        let has_room =
            |path: &PathBuf| fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() < part);
        let opened = newest.filter(has_room).and_then(|path| {
            let file = options().open(&path).ok()?;
            Some((path, file))
        });
        match opened {
            Some(opened) => self.current = Some(opened),
            None => self.begin(limit)?,
        }
        let (_, file) = self.current.as_ref().expect("it was opened above");
        file.try_clone()
    }

    /// Begins a new file, unless another process has begun one meanwhile, and makes room for it.
    fn begin(&mut self, limit: u64) -> io::Result<()> {
        let full = self.current.take().map(|(path, _)| path);
        let newest = files(&self.directory)?.pop();
        if let (Some(newest), Some(full)) = (&newest, &full)
            && newest > full
            && let Ok(file) = options().open(newest)
        {
            self.current = Some((newest.clone(), file));
            return Ok(());
        }
        let mut now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        loop {
            let name = crate::text::date::rfc3339_millis(now).replace([':', '-', '.'], "");
            let path = self.directory.join(format!("{name}-{}.jsonl", std::process::id()));
            // A clock that was set back must not make the new file an old one.
            if newest.as_ref().is_some_and(|newest| path <= *newest) {
                now += 1;
                continue;
            }
            match options().create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => now += 1,
                file => {
                    self.current = Some((path, file?));
                    break;
                }
            }
        }
        self.make_room(limit)
    }

    /// Removes the oldest files, until what is left and a full file more fit.
    fn make_room(&self, limit: u64) -> io::Result<()> {
        let paths = files(&self.directory)?;
        let sizes: Vec<_> =
            paths.iter().map(|path| fs::metadata(path).map_or(0, |about| about.len())).collect();
        let mut total: u64 = sizes.iter().sum();
        let newest = paths.len().saturating_sub(1);
        for (path, size) in paths.iter().zip(sizes).take(newest) {
            if total <= limit - limit / PARTS {
                break;
            }
            // Somebody else may have removed it.
            if !matches!(fs::remove_file(path), Err(error) if error.kind() != io::ErrorKind::NotFound) {
                total -= size;
            }
        }
        Ok(())
    }
}

/// Takes the lock of a file; `None` if nothing can be locked there, or somebody else has it for too long.
fn lock(file: &File) -> Option<Locked<'_>> {
    let until = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Some(Locked(file)),
            Err(TryLockError::WouldBlock) if Instant::now() < until => sleep(BETWEEN_LOOKS),
            Err(_) => return None,
        }
    }
}

/// Appends bytes to a file of this length, after a line break if the file's last line lacks one. What was written of
/// them is taken back if not all can be.
fn write_whole(mut file: &File, length: u64, bytes: &[u8]) -> io::Result<()> {
    let mut last = [b'\n'];
    if length > 0 {
        file.seek(SeekFrom::Start(length - 1))?;
        file.read_exact(&mut last)?;
    }
    let mended;
    let bytes = match last {
        [b'\n'] => bytes,
        _ => {
            mended = [b"\n", bytes].concat();
            &mended
        }
    };
    // One write, so that it is atomic even for those who could not get the lock.
    let written = match file.write(bytes) {
        Ok(written) if written == bytes.len() => return Ok(()),
        Ok(written) => file.write_all(&bytes[written..]),
        Err(error) => Err(error),
    };
    if written.is_err() {
        let _ = file.set_len(length);
    }
    written
}

/// Whether the file is no longer in its directory.
fn is_removed(file: &File) -> bool {
    #[cfg(unix)]
    let removed = file.metadata().is_ok_and(|about| std::os::unix::fs::MetadataExt::nlink(&about) == 0);
    // On Windows a file that is open cannot be removed.
    #[cfg(not(unix))]
    let removed = {
        let _ = file;
        false
    };
    removed
}

fn options() -> fs::OpenOptions {
    let mut options = File::options();
    options.read(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes the directory, private to the user.
fn make_directory(directory: &Path) -> io::Result<()> {
    // What is above is shared with other programs.
    if let Some(state) = directory.ancestors().nth(2) {
        fs::create_dir_all(state)?;
    }
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("mcp-workbench-journal-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path.join("mcp-workbench").join("journal"))
        }

        fn text(&self) -> String {
            let texts = files(&self.0).expect("it can be read").into_iter();
            texts.map(|path| fs::read_to_string(path).expect("it can be read")).collect()
        }

        fn sizes(&self) -> Vec<u64> {
            let paths = files(&self.0).expect("it can be read");
            paths.iter().map(|path| fs::metadata(path).expect("it is there").len()).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0.ancestors().nth(2).expect("it is ours"));
        }
    }

    #[test]
    fn files_grow_to_an_eighth_and_the_oldest_are_removed() {
        let scratch = Scratch::new("parts");
        let mut writer = JournalWriter::new(scratch.0.clone());
        for number in 0..200 {
            writer.append(format!("line {number:04}\nmore {number:04}\n").as_bytes(), 800);
            let sizes = scratch.sizes();
            assert!(sizes.iter().all(|size| *size <= 100), "{sizes:?}");
            assert!(sizes.iter().sum::<u64>() <= 800, "{sizes:?}");
        }
        let text = scratch.text();
        assert!(text.ends_with("line 0199\nmore 0199\n") && !text.contains("line 0000\n"), "{text}");
        assert_eq!(scratch.sizes().len(), 8);
        // Nothing is missing between the oldest line and the newest.
        let first: u32 = text[5..9].parse().expect("a number");
        assert_eq!(text.lines().filter(|line| line.starts_with("line")).count() as u32, 200 - first);
        // A line that is longer than a file has one for itself.
        let long = format!("{}\n", "x".repeat(300));
        writer.append(format!("before\n{long}after\n").as_bytes(), 800);
        assert!(scratch.text().ends_with(&format!("before\n{long}after\n")), "{}", scratch.text());
        assert!(scratch.sizes().contains(&301));
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_can_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Scratch::new("private");
        JournalWriter::new(scratch.0.clone()).append(b"line\n", 800);
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode(&scratch.0), 0o700);
        assert_eq!(mode(&files(&scratch.0).expect("it can be read")[0]), 0o600);
    }

    #[test]
    fn a_line_that_was_cut_off_does_not_damage_the_next_one() {
        let scratch = Scratch::new("cut");
        JournalWriter::new(scratch.0.clone()).append(b"one\n", 80_000);
        let path = files(&scratch.0).expect("it can be read").remove(0);
        options().open(&path).and_then(|mut file| file.write_all(b"tw")).expect("it can be written");
        JournalWriter::new(scratch.0.clone()).append(b"three\nfour\n", 80_000);
        assert_eq!(scratch.text(), "one\ntw\nthree\nfour\n");
    }

    #[test]
    fn a_journal_that_cannot_be_written_is_written_again_later() {
        let scratch = Scratch::new("failing");
        fs::create_dir_all(scratch.0.parent().expect("a directory")).expect("it can be made");
        fs::write(&scratch.0, "in the way").expect("it can be written");
        let mut writer = JournalWriter::new(scratch.0.clone());
        writer.append(b"lost\n", 800);
        assert!(writer.reported);
        fs::remove_file(&scratch.0).expect("it is ours");
        writer.append(b"kept\n", 800);
        assert_eq!(scratch.text(), "kept\n");
        // Whoever removes the files while they are open gets new ones.
        fs::remove_dir_all(&scratch.0).expect("it is ours");
        writer.append(b"again\n", 800);
        #[cfg(unix)]
        assert_eq!(scratch.text(), "again\n");
    }

    #[test]
    fn many_write_at_the_same_time_and_no_line_is_lost_or_mixed() {
        const WRITERS: usize = 8;
        const LINES: usize = 300;
        let scratch = Scratch::new("many");
        std::thread::scope(|scope| {
            for who in 0..WRITERS {
                let directory = scratch.0.clone();
                scope.spawn(move || {
                    let mut writer = JournalWriter::new(directory);
                    for number in 0..LINES {
                        let line = format!("{who}-{number}-{}\n", "y".repeat(number % 50));
                        writer.append(line.as_bytes(), 8 * 16_384);
                    }
                    assert!(!writer.reported);
                });
            }
        });
        let text = scratch.text();
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), WRITERS * LINES);
        assert!(scratch.sizes().len() > 1, "{:?}", scratch.sizes());
        for line in lines {
            let mut parts = line.split('-');
            let [who, number] =
                [(); 2].map(|()| parts.next().expect("a number").parse::<usize>().expect("a number"));
            assert!(who < WRITERS && parts.next() == Some(&"y".repeat(number % 50)), "{line}");
        }
    }
}
