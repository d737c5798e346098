//! The names that a file may give to servers and toolboxes, checked when the file is read.

use std::fmt;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// Checks a name; the error says what is wrong with it.
            pub fn new(name: impl Into<String>) -> Result<Self, &'static str> {
                let name = name.into();
                let check: fn(&str) -> Result<(), &'static str> = $check;
                check(&name).map(|()| Self(name))
            }

            /// The name as written in the file.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A server's name: any text that is not blank and has no control characters.
    ServerName,
    readable
);
name!(
    /// A toolbox's name: like a server's, but without `__`, which separates the parts of a registered name.
    ToolboxName,
    |name| {
        readable(name)?;
        if name.contains("__") { Err("a toolbox name may not contain `__`") } else { Ok(()) }
    }
);

fn readable(name: &str) -> Result<(), &'static str> {
    if name.trim().is_empty() {
        Err("a name may not be blank")
    } else if name.chars().any(char::is_control) {
        Err("a name may not contain control characters")
    } else {
        Ok(())
    }
}
