//! The console's own files, which are part of the program: four pages, one style sheet, and modules.

/// A file as it is served.
pub(super) struct StaticFile {
    /// The path below `/console`.
    path: &'static str,
    pub(super) media: &'static str,
    pub(super) text: &'static str,
}

macro_rules! files {
    ($($path:literal, $media:ident, $name:literal;)*) => {
        &[$(StaticFile { path: $path, media: $media, text: include_str!(concat!("page/", $name)) }),*]
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const FILES: &[StaticFile] = files! {
    "", HTML, "overview.html";
    "/servers", HTML, "servers.html";
    "/tools", HTML, "tools.html";
    "/calls", HTML, "calls.html";
    "/console.css", CSS, "console.css";
    "/base.js", SCRIPT, "base.js";
    "/plot.js", SCRIPT, "plot.js";
    "/form.js", SCRIPT, "form.js";
    "/overview.js", SCRIPT, "overview.js";
    "/servers.js", SCRIPT, "servers.js";
    "/tools.js", SCRIPT, "tools.js";
    "/calls.js", SCRIPT, "calls.js";
};

/// The file at a path below `/console`.
pub(super) fn find(path: &str) -> Option<&'static StaticFile> {
    let path = if path == "/" { "" } else { path };
    FILES.iter().find(|file| file.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What all pages together may weigh on the wire.
    const MOST: usize = 150_000;

    #[test]
    fn the_files_are_small_and_ask_for_nothing_from_elsewhere() {
        assert!(FILES.iter().map(|file| file.text.len()).sum::<usize>() <= MOST);
        for file in FILES {
            let away = [
                "http://",
                "https://",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ];
            // The name of a vocabulary is no address.
            let text = file.text.replace("http://www.w3.org/2000/svg", "");
            let found = away.iter().find(|word| text.contains(**word));
            assert_eq!(found, None, "{}", file.path);
        }
    }

    #[test]
    fn pages_find_the_files_that_they_name() {
        for file in FILES {
            let named = file.text.split('"').filter_map(|word| {
                let below = word.strip_prefix("/console").filter(|rest| !rest.starts_with("/api"));
                below.or_else(|| word.strip_prefix('.').filter(|rest| rest.ends_with(".js")))
            });
            for name in named {
                assert!(find(name).is_some(), "{}: {name}", file.path);
            }
        }
    }
}
