use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A directory with `bin/tool` (executable), `bin/plain` (not executable), `bin/folder/`, `login/npx`,
/// `work/local` and `work/sub/`. It is removed when it is dropped.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("mcp-workbench-command-{}-{count}", std::process::id()));
        for directory in ["bin/folder", "login", "work/sub"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        for (file, mode) in
            [("bin/tool", 0o755), ("bin/plain", 0o644), ("login/npx", 0o755), ("work/local", 0o755)]
        {
            fs::write(root.join(file), "").unwrap();
            fs::set_permissions(root.join(file), fs::Permissions::from_mode(mode)).unwrap();
        }
        Self(root)
    }

    /// The text with `@` in place of the root.
    fn short(&self, text: impl fmt::Display) -> String {
        text.to_string().replace(self.0.to_str().unwrap(), "@")
    }

    fn long(&self, text: &str) -> String {
        text.replace('@', self.0.to_str().unwrap())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn vars(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn command(program: &str) -> config::Command {
    config::Command {
        program: program.into(),
        args: vec!["-y".into()],
        env: vec![],
        cwd: None,
        inherit_env: vec![],
    }
}

#[tokio::test]
async fn programs_are_found_or_it_is_said_where_they_were_looked_for() {
    const NOT_FOUND: &str = "install it, or give its absolute path as the command";
    let place = Place::new();
    // The program, `PATH`, login `PATH`, then the program found with the child's `PATH`, or the error.
    type Case<'a> = (&'a str, &'a str, Option<&'a str>, Result<(&'a str, &'a str), &'a str>);
    let cases: &[Case] = &[
        ("tool", "@/bin", None, Ok(("@/bin/tool", "@/bin"))),
        ("tool", "@/missing:@/bin:/", None, Ok(("@/bin/tool", "@/missing:@/bin:/"))),
        ("tool", "@/bin", Some("@/login"), Ok(("@/bin/tool", "@/bin"))),
        ("npx", "@/bin", Some("@/login:@/x"), Ok(("@/login/npx", "@/login:@/x"))),
        ("npx", "@/bin", Some("login:@/login"), Ok(("@/login/npx", "login:@/login"))),
        ("./local", "", None, Ok(("@/work/./local", ""))),
        ("../bin/tool", "", None, Ok(("@/work/../bin/tool", ""))),
        ("@/bin/tool", "", None, Ok(("@/bin/tool", ""))),
        (
            "none",
            "@/bin:@/login:@/bin",
            None,
            Err("looked in PATH (@/bin, @/login); the login shell printed no PATH"),
        ),
        ("none", "@/bin", Some("@/login"), Err("looked in PATH (@/bin) and in the login shell's (@/login)")),
        ("none", "@/bin", Some("@/bin"), Err("looked in PATH (@/bin), which is also the login shell's")),
        (
            "none",
            "/a:/b:/c:/d:/e",
            Some("/f"),
            Err("looked in PATH (5 directories) and in the login shell's (/f)"),
        ),
        (
            "none",
            "",
            None,
            Err("looked in PATH (which has no absolute entry); the login shell printed no PATH"),
        ),
        (
            "local",
            ".::../work",
            Some(":."),
            Err(
                "looked in PATH (which has no absolute entry); the login shell printed no PATH; the working \
                 directory has one, which a bare name never means (write './local' for that)",
            ),
        ),
        (
            "plain",
            "@/bin",
            Some("@/login"),
            Err("looked in PATH (@/bin) and in the login shell's (@/login); @/bin/plain is there but not \
                 executable (chmod +x)"),
        ),
        (
            "folder",
            "@/bin",
            Some("@/login"),
            Err("looked in PATH (@/bin) and in the login shell's (@/login)"),
        ),
        ("..", "@/bin", Some("@/login"), Err("looked in PATH (@/bin) and in the login shell's (@/login)")),
        ("./none", "@/bin", None, Err("command '@/work/./none' does not exist; correct the path")),
        ("@/bin/folder", "", None, Err("command '@/bin/folder' is a directory; name the program in it")),
        (
            "@/bin/plain",
            "",
            None,
            Err(
                "command '@/bin/plain' is not executable; chmod +x it, or name its interpreter as the command \
                 and the file as an argument",
            ),
        ),
    ];
    for (program, path, login, expected) in cases {
        let vars = vars(&[("PATH", &place.long(path))]);
        let login = login.map(|login| place.long(login).into());
        let command = command(&place.long(program));
        let result = prepare(&command, &vars, &place.0.join("work"), || async { login }).await;
        let result = match &result {
            Ok(launch) => {
                assert_eq!(launch.args, ["-y"]);
                let path = value_of(&launch.env, "PATH").unwrap().display();
                Ok((place.short(launch.program.display()), place.short(path)))
            }
            Err(error) => Err(place.short(format!("{error}; {}", error.hint()))),
        };
        let expected = match expected {
            Ok((program, path)) => Ok((program.to_string(), path.to_string())),
            Err(text) if text.starts_with("looked") => {
                Err(format!("command '{program}' not found; {text}; {NOT_FOUND}"))
            }
            Err(text) => Err(text.to_string()),
        };
        assert_eq!(result, expected, "{program} in {path}");
    }
}

#[tokio::test]
async fn a_declared_path_wins_and_is_kept_before_the_login_shells() {
    let place = Place::new();
    let cases = [("tool", "@/bin/tool", "@/bin"), ("npx", "@/login/npx", "@/bin:@/login")];
    for (program, found, path) in cases {
        let mut command = command(program);
        command.env = vec![("PATH".into(), Secret::new(place.long("@/bin")))];
        let vars = vars(&[("PATH", &place.long("@/work"))]);
        let login = Some(place.long("@/login").into());
        let launch = prepare(&command, &vars, Path::new("/"), || async { login }).await.unwrap();
        assert_eq!(launch.program, Path::new(&place.long(found)));
        assert_eq!(launch.env, super::tests::vars(&[("PATH", &place.long(path))]));
    }
}

#[tokio::test]
async fn the_login_shell_is_not_asked_without_need() {
    let place = Place::new();
    for program in ["tool", "@/bin/tool", "@/bin/plain", "@/none"] {
        let vars = vars(&[("PATH", &place.long("@/bin"))]);
        let command = command(&place.long(program));
        let never = || async { panic!("asked for {program}") };
        let _ = prepare(&command, &vars, &place.0, never).await;
    }
}

#[tokio::test]
async fn the_working_directory_must_be_one() {
    let place = Place::new();
    let cases = [
        ("@/work/sub", None),
        ("@/gone", Some("working directory '@/gone' does not exist; create it or correct 'cwd'")),
        ("@/bin/tool", Some("working directory '@/bin/tool' is not a directory; correct 'cwd'")),
    ];
    for (cwd, expected) in cases {
        let mut command = command("../local");
        command.cwd = Some(place.long(cwd).into());
        let result = prepare(&command, &[], Path::new("/"), || async { None }).await;
        assert_eq!(
            result.as_ref().err().map(|error| place.short(format!("{error}; {}", error.hint()))).as_deref(),
            expected
        );
        if let Ok(launch) = result {
            assert_eq!(launch.cwd, command.cwd);
            assert_eq!(launch.program, place.0.join("work/sub/../local"));
        }
    }
}

#[test]
fn upstreams_see_only_what_they_should() {
    let ours = vars(&[
        ("HOME", "/home/me"),
        ("LC_ALL", "C"),
        ("LC", "no"),
        ("PATH", "/bin"),
        ("API_KEY", "secret"),
        ("OTHER", "x"),
        ("TZ", "UTC"),
    ]);
    let declared = |pairs: &[(&str, &str)]| -> Vec<(String, Secret)> {
        pairs.iter().map(|(name, value)| (name.to_string(), Secret::new(*value))).collect()
    };
    // The inherited names, the declared variables, and the child's environment.
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
    let cases: &[Case] = &[
        (&[], &[], "HOME=/home/me LC_ALL=C PATH=/bin TZ=UTC"),
        (&["OTHER", "ABSENT"], &[], "HOME=/home/me LC_ALL=C PATH=/bin OTHER=x TZ=UTC"),
        (&["*"], &[], "HOME=/home/me LC_ALL=C LC=no PATH=/bin API_KEY=secret OTHER=x TZ=UTC"),
        (&["O*"], &[], "HOME=/home/me LC_ALL=C PATH=/bin TZ=UTC"),
        (&[], &[("PATH", "/x"), ("B", "1"), ("A", "")], "HOME=/home/me LC_ALL=C PATH=/x TZ=UTC B=1 A="),
        (
            &["*"],
            &[("API_KEY", "mine")],
            "HOME=/home/me LC_ALL=C LC=no PATH=/bin API_KEY=mine OTHER=x TZ=UTC",
        ),
    ];
    for (inherit, declares, expected) in cases {
        let inherit: Vec<_> = inherit.iter().map(|name| name.to_string()).collect();
        let env = environment(&ours, &inherit, &declared(declares));
        let env: Vec<_> = env.iter().map(|(n, v)| format!("{}={}", n.display(), v.display())).collect();
        assert_eq!(env.join(" "), *expected);
    }
}
