//! Both configuration files: whatever they hold, they are loaded or every problem has its place.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use mcp_workbench::{Inputs, load, load_toolman};

fuzz_target!(|bytes: &[u8]| {
    let environment = |name: &str| (name == "HOME").then(|| "/home".to_owned());
    let workbench = load(Path::new("workbench-config.json"), bytes, &Inputs::of(&environment)).map(|(_, warnings)| warnings);
    let toolman = load_toolman(Path::new("tools.toml"), bytes, &Inputs::of(&environment)).map(|(_, warnings)| warnings);
    for outcome in [workbench, toolman] {
        let (Ok(problems) | Err(problems)) = outcome;
        for problem in problems {
            assert!(problem.line >= 1 && problem.column >= 1);
            assert!(problem.render(false).contains(&format!(":{}:{}", problem.line, problem.column)));
        }
    }
});
