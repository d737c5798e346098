//! Files of users that are read, shown and then replaced as a whole.
//!
//! Every verb that changes a file goes through [`Snapshot`].
//!
//! Invariant: a file that somebody changed after it was read is never overwritten, and a failed write leaves
//! the old file in place.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The contents of a file at the time when it was read.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The path as the caller named it.
    pub path: PathBuf,
    /// The file's real location, with symbolic links resolved.
    target: PathBuf,
    /// The contents; `None` if the file did not exist.
    pub bytes: Option<Vec<u8>>,
}

/// Who may read a newly created file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Everyone whom the umask allows.
    Usual,
    /// The owner only.
    Owner,
}

impl Snapshot {
    /// Reads a file. A missing file is not an error.
    pub fn read(path: &Path) -> io::Result<Self> {
        let target = resolve(path)?;
        let bytes = match contents(&target) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self { path: path.to_owned(), target, bytes })
    }

    /// The text, empty if the file does not exist; `None` if it is not UTF-8.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.bytes.as_deref().unwrap_or_default()).ok()
    }

    /// Replaces the file, unless somebody else changed it after it was read. Permissions and symbolic links
    /// are kept; if anything fails, the old file is still there. Returns the directories that had to be
    /// created, outermost first.
    pub fn replace(&self, bytes: &[u8], audience: Audience) -> io::Result<Vec<PathBuf>> {
        self.unchanged()?;
        let directory = self.target.parent().unwrap_or(Path::new("."));
        let made = make_directories(directory)?;
        let result = self.write(directory, bytes, audience);
        if result.is_err() {
            made.iter().rev().for_each(|directory| drop(fs::remove_dir(directory)));
        }
        result.map(|()| made)
    }

    /// Removes the file, unless somebody else changed it after it was read.
    pub fn remove(&self) -> io::Result<()> {
        self.unchanged()?;
        fs::remove_file(&self.target)
    }

    /// The directories that [`Self::replace`] would have to create, outermost first.
    pub fn missing_directories(&self) -> Vec<PathBuf> {
        missing(self.target.parent().unwrap_or(Path::new(".")))
    }

    /// Gives the new file the owner of the old one where we are allowed to, since we may be running as root.
    fn keep_owner(&self, file: &File) {
        #[cfg(unix)]
        if let (Ok(old), Ok(new)) = (fs::metadata(&self.target), file.metadata()) {
            use std::os::unix::fs::{MetadataExt, fchown};
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                let _ = fchown(file, Some(old.uid()), Some(old.gid()));
            }
        }
        #[cfg(not(unix))]
        let _ = file;
    }

    /// Copies the old file's extended attributes, which include access control lists, where we are allowed
    /// to.
    fn keep_attributes(&self, file: &File) {
        #[cfg(target_os = "linux")]
        if let Ok(old) = File::open(&self.target) {
            use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};
            // Linux limits both the list of names and each value to 64 KiB.
            let (mut names, mut value) = (vec![0; 1 << 16], vec![0; 1 << 16]);
            let length = flistxattr(&old, names.as_mut_slice()).unwrap_or(0);
            for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
                if let Ok(length) = fgetxattr(&old, name, value.as_mut_slice()) {
                    let _ = fsetxattr(file, name, &value[..length], XattrFlags::empty());
                }
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = file;
    }

    /// Whether the file still has the contents that were read.
    pub fn is_current(&self) -> io::Result<bool> {
        Ok(Self::read(&self.path)?.bytes == self.bytes)
    }

    fn unchanged(&self) -> io::Result<()> {
        match self.is_current()? {
            true => Ok(()),
            false => Err(io::Error::other("the file has changed in the meantime; nothing was written")),
        }
    }

    fn write(&self, directory: &Path, bytes: &[u8], audience: Audience) -> io::Result<()> {
        let permissions = match &self.bytes {
            Some(_) => {
                // The rename would replace a read-only file, so the write permission is checked first.
                OpenOptions::new().write(true).open(&self.target)?;
                Some(fs::metadata(&self.target)?.permissions())
            }
            None => None,
        };
        let name = self.target.file_name().unwrap_or_default().to_string_lossy();
        let temporary = directory.join(format!(".{name}.{}.tmp", std::process::id()));
        let written = (|| {
            let mut file = create(&temporary, permissions.is_some() || audience == Audience::Owner)?;
            file.write_all(bytes)?;
            if let Some(permissions) = permissions {
                self.keep_owner(&file);
                file.set_permissions(permissions)?;
                self.keep_attributes(&file);
            }
            file.sync_all()?;
            drop(file);
            crate::memory::put_in_place(&temporary, &self.target)
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written?;
        // The rename has already happened, so a directory that cannot be synced is not an error.
        #[cfg(unix)]
        let _ = File::open(directory).and_then(|directory| directory.sync_all());
        Ok(())
    }
}

/// The largest file that is read when a person names it, in bytes.
const LARGEST: u64 = 64_000_000;

/// Reads a file that a person named. Pipes, devices and other files that could block or never end are refused
/// before they are opened, and so are files that are too large.
pub fn contents(path: &Path) -> io::Result<Vec<u8>> {
    contents_and_metadata(path).map(|(bytes, _)| bytes)
}

/// Like [`contents`], but also returns the metadata of the very file that was read.
pub fn contents_and_metadata(path: &Path) -> io::Result<(Vec<u8>, Metadata)> {
    admit(&fs::metadata(path)?)?;
    let mut options = OpenOptions::new();
    options.read(true);
    // A pipe may have replaced the file since the check, and opening a pipe would wait for its writer.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    admit(&metadata)?;
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    // The file may grow while it is read.
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    too_large(bytes.len() as u64)?;
    Ok((bytes, metadata))
}

fn admit(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return too_large(metadata.len());
    }
    let words = format!("it is {}, not a regular file", kind(metadata));
    Err(io::Error::new(io::ErrorKind::InvalidInput, words))
}

fn too_large(length: u64) -> io::Result<()> {
    if length <= LARGEST {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 64 MB"))
}

/// Names the kind of a file that is not a regular one.
fn kind(metadata: &Metadata) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = metadata.file_type();
        if kind.is_fifo() {
            return "a pipe";
        } else if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        } else if kind.is_socket() {
            return "a socket";
        }
    }
    if metadata.is_dir() { "a directory" } else { "something else" }
}

fn create(path: &Path, private: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if private {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    #[cfg(not(unix))]
    let _ = private;
    options.open(path)
}

/// Creates a directory that only its owner can access.
pub fn private_directory(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn make_directories(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let missing = missing(directory);
    fs::create_dir_all(directory)?;
    Ok(missing)
}

fn missing(directory: &Path) -> Vec<PathBuf> {
    let there = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let mut missing: Vec<_> = directory.ancestors().take_while(there).map(Path::to_owned).collect();
    missing.reverse();
    missing
}

/// Follows symbolic links, even to a target that does not exist yet.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..40 {
        match fs::read_link(&target) {
            Ok(next) => target = target.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(target),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary directory for one test.
    struct Room(PathBuf);

    impl Room {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("mcp-workbench-file-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).expect("the temporary directory is writable");
            Self(path)
        }
    }

    impl Drop for Room {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[cfg(unix)]
    #[test]
    fn permissions_and_links_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let room = Room::new("links");
        let (real, link) = (room.0.join("real.json"), room.0.join("link.json"));
        fs::write(&real, "old").expect("writable");
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).expect("ours");
        symlink("real.json", &link).expect("writable");
        let made =
            Snapshot::read(&link).expect("readable").replace(b"new", Audience::Usual).expect("writable");
        assert!(made.is_empty());
        assert_eq!(fs::read_to_string(&real).expect("there"), "new");
        assert!(link.symlink_metadata().expect("there").is_symlink());
        assert_eq!(real.metadata().expect("there").permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(&room.0).expect("there").count(), 2, "no temporary file is left");
        let private = room.0.join("a/b/private");
        let made = Snapshot::read(&private).expect("none").replace(b"x", Audience::Owner).expect("writable");
        assert_eq!(made, [room.0.join("a"), room.0.join("a/b")]);
        assert_eq!(private.metadata().expect("there").permissions().mode() & 0o777, 0o600);
        let dangling = room.0.join("dangling.json");
        symlink("a/later.json", &dangling).expect("writable");
        let snapshot = Snapshot::read(&dangling).expect("no file is no error");
        snapshot.replace(b"later", Audience::Usual).expect("writable");
        assert_eq!(fs::read_to_string(room.0.join("a/later.json")).expect("there"), "later");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn attributes_stay() {
        use rustix::fs::{XattrFlags, getxattr, setxattr};
        let room = Room::new("attributes");
        let path = room.0.join("x.json");
        fs::write(&path, "old").expect("writable");
        if setxattr(&path, "user.mine", b"yes", XattrFlags::empty()).is_err() {
            // This file system has no extended attributes.
            return;
        }
        Snapshot::read(&path).expect("readable").replace(b"new", Audience::Usual).expect("writable");
        let mut value = [0; 8];
        assert_eq!(getxattr(&path, "user.mine", &mut value), Ok(3));
        assert_eq!((&value[..3], fs::read_to_string(&path).expect("there").as_str()), (&b"yes"[..], "new"));
    }

    #[test]
    fn only_regular_files_of_a_sensible_size_are_read() {
        let room = Room::new("regular");
        let path = room.0.join("large");
        let file = File::create(&path).expect("writable");
        file.set_len(LARGEST).expect("writable");
        assert_eq!(contents(&path).expect("just small enough").len() as u64, LARGEST);
        file.set_len(LARGEST + 1).expect("writable");
        let told = |path: &Path| contents(path).expect_err("refused").to_string();
        assert_eq!(told(&path), "it is larger than 64 MB");
        assert_eq!(told(&room.0), "it is a directory, not a regular file");
        assert_eq!(contents(&room.0.join("none")).expect_err("none").kind(), io::ErrorKind::NotFound);
        #[cfg(unix)]
        {
            assert_eq!(told(Path::new("/dev/zero")), "it is a device, not a regular file");
            let socket = room.0.join("socket");
            let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("writable");
            assert_eq!(told(&socket), "it is a socket, not a regular file");
            std::os::unix::fs::symlink("/dev/zero", room.0.join("link")).expect("writable");
            assert_eq!(told(&room.0.join("link")), "it is a device, not a regular file");
        }
        // A file that reports no length, and a file of length zero.
        #[cfg(target_os = "linux")]
        assert!(!contents(Path::new("/proc/self/status")).expect("readable").is_empty());
        fs::write(&path, "").expect("writable");
        assert_eq!(contents(&path).expect("readable"), b"");
    }

    #[test]
    fn a_file_that_changed_meanwhile_is_left_alone() {
        let room = Room::new("meanwhile");
        let path = room.0.join("x.json");
        let snapshot = Snapshot::read(&path).expect("no file is no error");
        assert_eq!((snapshot.bytes.clone(), snapshot.text()), (None, Some("")));
        fs::write(&path, "theirs").expect("writable");
        assert!(snapshot.replace(b"ours", Audience::Usual).is_err());
        assert!(snapshot.remove().is_err());
        assert_eq!(fs::read_to_string(&path).expect("there"), "theirs");
    }
}
