use super::*;

#[tokio::test]
async fn names_without_an_ending_find_what_the_system_can_start() {
    let root = std::env::temp_dir().join(format!("mcp-workbench-command-{}", std::process::id()));
    let (bin, work) = (root.join("bin"), root.join("work"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&work).unwrap();
    for file in ["npx", "npx.cmd", "node.exe", "tool.1.exe", "script.js"] {
        fs::write(bin.join(file), "").unwrap();
    }
    fs::write(work.join("local.bat"), "").unwrap();
    // Windows spells the variable `Path`.
    let vars = [("Path".into(), bin.clone().into_os_string())];
    for (program, expected) in [
        ("npx", Some(bin.join("npx.cmd"))),
        ("npx.cmd", Some(bin.join("npx.cmd"))),
        ("NODE.EXE", Some(bin.join("NODE.EXE"))),
        ("tool.1", Some(bin.join("tool.1.exe"))),
        ("script.js", None),
        ("local", None),
        (r".\local", Some(work.join(r".\local.bat"))),
        ("./local.bat", Some(work.join("./local.bat"))),
    ] {
        let command = config::Command {
            program: program.into(),
            args: vec![],
            env: vec![],
            cwd: Some(work.clone()),
            inherit_env: vec![],
        };
        let found = prepare(&command, &vars, &work, || async { None }).await;
        assert_eq!(found.ok().map(|launch| launch.program), expected, "{program}");
    }
    fs::remove_dir_all(&root).unwrap();
}
