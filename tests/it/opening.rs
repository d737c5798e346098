//! Toolboxes that are opened and closed while something else happens to them.

use serde_json::{Value, json};

use crate::harness::{Gateway, Lab, TOOLS_CHANGED, VERSION, classic, dev, fake};

const OPEN: &str = "workbench_open_toolbox";
const CLOSE: &str = "workbench_close_toolbox";
const DEV: &str = r#"{"toolbox_name":"dev"}"#;

impl Gateway {
    /// What `workbench_list_toolboxes` says of `dev`: whether it is open, and how many tools it has.
    #[track_caller]
    fn state_of_dev(&mut self) -> (Value, Value) {
        let listed = self.call("workbench_list_toolboxes", "{}").json();
        let mut toolboxes = listed["toolboxes"].as_array().expect("a list").iter();
        let dev = toolboxes.find(|toolbox| toolbox["name"] == "dev").expect("it is configured");
        (dev["is_open"].clone(), dev["tool_count"].clone())
    }
}

/// A gateway whose servers with `--fail-while @dir/broken` fail.
fn broken(config: Value) -> Gateway {
    let lab = Lab::new();
    lab.write("broken", "");
    let mut gateway = Gateway::spawn_with(lab, config, |_| ());
    gateway.initialize(VERSION);
    gateway
}

fn repair(gateway: &Gateway) {
    std::fs::remove_file(gateway.lab.dir.join("broken")).expect("it is there");
}

#[test]
fn a_call_to_a_server_that_ended_starts_nothing_once_its_toolbox_is_closed() {
    let mut gateway =
        Gateway::start(classic("dynamic", json!({"a": fake("--with echo,crash --count @dir/a")})));
    gateway.call(OPEN, DEV).text();
    gateway.call("dev__a__crash", "{}").failure();
    let call = |id: &str, name: &str, arguments: &str| {
        let params = format!(r#"{{"name":"{name}","arguments":{arguments}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"tools/call","params":{params}}}"#) + "\n"
    };
    gateway.send_bytes((call("call", "dev__a__echo", "{}") + &call("close", CLOSE, DEV)).as_bytes());
    gateway.answer(r#""close""#).json();
    let text = gateway.answer(r#""call""#).failure();
    assert!(text.contains("closed"), "{text}");
    assert_eq!(gateway.lab.starts("a"), 1);
    gateway.until("nothing of it is left", |gateway| {
        !gateway.lab.processes().iter().any(|(_, line)| line.contains("fake-upstream"))
    });
}

#[test]
fn an_opening_goes_on_with_the_server_that_a_new_file_puts_in_the_place_of_another() {
    for others in [json!({}), json!({"b": fake("--with echo")})] {
        let with = |a: Value| {
            let mut servers = others.clone();
            servers["a"] = a;
            dev("dynamic", servers)
        };
        let connected = 1 + others.as_object().expect("servers").len();
        let mut gateway = Gateway::start(with(fake("--with echo --wait-for @dir/never")));
        let open = gateway.post_call("open_toolbox", DEV);
        gateway.fence();
        gateway.rewrite(&with(fake("--with report,received")));
        let opened = gateway.answer(&open).json();
        assert_eq!(opened["servers_connected"], connected, "{opened}");
        assert_eq!(opened["tools_registered"], connected + 1, "{opened}");
        assert!(opened.get("_errors").is_none(), "{opened}");
        assert_eq!(gateway.count(TOOLS_CHANGED), 1);
        assert_eq!(gateway.tools().len(), connected + 2);
        gateway.call("dev__a__report", "{}").text();
    }
}

#[test]
fn an_opening_waits_for_a_server_that_is_added_and_not_for_one_that_is_removed() {
    let (slow, b) = (fake("--with echo --wait-for @dir/never"), fake("--with echo"));
    let mut gateway = Gateway::start(dev("dynamic", json!({"slow": slow, "b": b})));
    let open = gateway.post_call("open_toolbox", DEV);
    gateway.fence();
    gateway.rewrite(&dev("dynamic", json!({"b": b, "c": fake("--with echo,report")})));
    let opened = gateway.answer(&open).json();
    assert_eq!(opened["servers_connected"], 2, "{opened}");
    assert_eq!(opened["tools_registered"], 3, "{opened}");
    assert!(opened.get("_errors").is_none(), "{opened}");
}

#[test]
fn a_toolbox_that_a_new_file_removes_while_it_opens_is_not_open_when_it_comes_back() {
    let servers = json!({
        "a": fake("--with echo --wait-for @dir/never"), "b": fake("--with echo --count @dir/b")
    });
    let config = classic("dynamic", servers);
    let mut gateway = Gateway::start(&config);
    let open = gateway.post_call(OPEN, DEV);
    gateway.until("the other one runs", |gateway| gateway.lab.starts("b") == 1);
    let mut without = config.clone();
    without["toolboxes"] = json!({"other": {"mcpServers": {}}});
    gateway.rewrite(&without);
    let text = gateway.answer(&open).failure();
    assert!(text.contains("Toolbox 'dev' not found in configuration"), "{text}");
    gateway.reload(config, "mark");
    assert_eq!(gateway.state_of_dev(), (json!(false), json!(0)));
    assert_eq!(gateway.lab.starts("b"), 1, "nobody has opened it again");
}

#[test]
fn a_toolbox_that_is_closed_while_it_is_opened_again_stays_closed() {
    let flaky = fake("--with echo --fail-while @dir/broken --wait-for @dir/go");
    let mut gateway = broken(classic("dynamic", json!({"a": fake("--with echo"), "flaky": flaky})));
    assert_eq!(gateway.call(OPEN, DEV).json()["servers_connected"], 1);
    repair(&gateway);
    let open = gateway.post_call(OPEN, DEV);
    gateway.fence();
    gateway.call(CLOSE, DEV).json();
    let text = gateway.answer(&open).failure();
    assert!(text.contains("'dev'") && text.contains("closed"), "{text}");
    assert_eq!(gateway.state_of_dev(), (json!(false), json!(0)));
    assert_eq!(gateway.tools().len(), 3);
    gateway.lab.write("go", "");
    assert_eq!(gateway.call(OPEN, DEV).json()["servers_connected"], 2);
}

#[test]
fn an_opening_that_fails_altogether_leaves_another_of_the_same_toolbox_alone() {
    let servers = json!({
        "quick": fake("--with echo --fail-while @dir/broken"),
        "slow": fake("--exit 9 --wait-for @dir/go"),
    });
    let mut gateway = broken(classic("dynamic", servers));
    let first = gateway.post_call(OPEN, DEV);
    gateway.until("one of them has failed", |gateway| gateway.stderr().contains("[dev/quick]"));
    repair(&gateway);
    let second = gateway.post_call(OPEN, DEV);
    gateway.fence();
    gateway.lab.write("go", "");
    gateway.answer(&first);
    let opened = gateway.answer(&second).json();
    assert_eq!(opened["servers_connected"], 1, "{opened}");
    assert_eq!(gateway.state_of_dev(), (json!(true), json!(1)));
}

#[test]
fn a_toolbox_that_a_new_file_empties_while_it_opens_is_open_and_empty() {
    let config = |servers| classic("dynamic", servers);
    let mut gateway = Gateway::start(config(json!({"a": fake("--with echo --wait-for @dir/never")})));
    let open = gateway.post_call(OPEN, DEV);
    gateway.fence();
    gateway.rewrite(&config(json!({})));
    assert_eq!(gateway.answer(&open).json()["servers_connected"], 0);
    assert_eq!(gateway.state_of_dev(), (json!(true), json!(0)));
    gateway.reload(config(json!({"b": fake("--with echo")})), "mark");
    gateway.until("what is added starts", |gateway| gateway.state_of_dev() == (json!(true), json!(1)));
}

#[test]
fn a_server_that_finishes_calls_after_a_reload_ends_when_its_toolbox_is_closed() {
    let server = |flags: &str| classic("dynamic", json!({"a": fake(&format!("--with echo,slow {flags}"))}));
    let mut gateway = Gateway::start(server(""));
    gateway.call(OPEN, DEV).json();
    let call = gateway.post_call("dev__a__slow", "{}");
    gateway.fence();
    gateway.reload(server("--tools 1"), "mark");
    gateway.call(CLOSE, DEV).json();
    let text = gateway.answer(&call).failure();
    assert!(text.contains("closed"), "{text}");
    gateway.until("nothing of it is left", |gateway| {
        !gateway.lab.processes().iter().any(|(_, line)| line.contains("fake-upstream"))
    });
}

#[test]
fn an_open_that_brings_back_several_servers_tells_once() {
    let flaky = |more: &str| fake(&format!("--with echo --fail-while @dir/broken {more}"));
    let servers = json!({"a": fake("--with echo"), "b": flaky(""), "c": flaky("--delay 200")});
    let mut gateway = broken(dev("dynamic", servers));
    assert_eq!(gateway.open("dev")["servers_connected"], 1);
    assert_eq!(gateway.count(TOOLS_CHANGED), 1);
    repair(&gateway);
    assert_eq!(gateway.open("dev")["servers_connected"], 3);
    assert_eq!(gateway.count(TOOLS_CHANGED), 1);
    assert_eq!(gateway.tools(), ["open_toolbox", "dev__a__echo", "dev__b__echo", "dev__c__echo"]);
    gateway.open("dev");
    assert_eq!(gateway.count(TOOLS_CHANGED), 0);
}

#[test]
fn a_server_that_ends_while_others_still_start_is_named_among_those_that_failed() {
    for late in ["0", "z"] {
        let servers =
            json!({"a": fake("--with crash,started"), late: fake("--with echo --wait-for @dir/go")});
        let mut gateway = Gateway::start(dev("proxy", servers));
        let open = gateway.post_call("open_toolbox", DEV);
        gateway.until("it runs", |gateway| {
            gateway.use_tool("a", "crash", r#"{"code":5}"#).failure().contains("status 5")
        });
        gateway.lab.write("go", "");
        let opened = gateway.answer(&open).json();
        assert_eq!(opened["servers_connected"], 1, "{opened}");
        let errors = opened["_errors"].as_array().expect("there was one").clone();
        assert!(
            errors.len() == 1 && errors[0].as_str().is_some_and(|text| text.contains("'a'")),
            "{errors:?}"
        );
    }
}

#[test]
fn toolboxes_stand_in_the_order_in_which_they_opened() {
    let config = |description: &str| {
        json!({"toolboxes": {
            "slow": {"mcpServers": {
                "a": fake("--tools 1"), "b": fake("--tools 1 --wait-for @dir/go")
            }},
            "quick": {"description": description, "mcpServers": {"a": fake("--tools 1")}}
        }})
    };
    let mut gateway = Gateway::start(config(""));
    let slow = gateway.post_call("open_toolbox", r#"{"toolbox_name":"slow"}"#);
    gateway.fence();
    gateway.open("quick");
    assert_eq!(gateway.tools(), ["open_toolbox", "quick__a__tool-1"]);
    gateway.lab.write("go", "");
    gateway.answer(&slow).json();
    let order = ["open_toolbox", "quick__a__tool-1", "slow__a__tool-1", "slow__b__tool-1"];
    assert_eq!(gateway.tools(), order);
    for name in &order[1..] {
        gateway.call(name, "{}").text();
    }
    gateway.reload(config("another"), "mark");
    assert_eq!(gateway.tools(), order);
}

#[test]
fn closing_does_not_let_a_server_that_fails_start_more_often() {
    let servers = json!({"a": fake("--with echo"), "bad": fake("--exit 9 --count @dir/bad")});
    let mut gateway = Gateway::start(classic("dynamic", servers));
    let mut last = Value::Null;
    for _ in 0..20 {
        last = gateway.call(OPEN, DEV).json();
        assert_eq!(last["servers_connected"], 1, "one that works may be opened and closed at will: {last}");
        gateway.call(CLOSE, DEV).json();
    }
    let starts = gateway.lab.starts("bad");
    assert!((2..=8).contains(&starts), "{starts} starts");
    assert!(last["_errors"][0].as_str().is_some_and(|text| text.contains("next attempt")), "{last}");
}

#[test]
fn a_subscription_ends_when_its_toolbox_is_closed() {
    let flags = "--with report,notify,crash --resources 1";
    let mut gateway = Gateway::start(classic("dynamic", json!({"a": fake(flags)})));
    let uri = json!({"uri": "workbench://dev/a/fake://resource/1"});
    let subscribed =
        |gateway: &mut Gateway| gateway.call("dev__a__report", "{}").json()["subscriptions"].clone();
    gateway.call(OPEN, DEV).json();
    gateway.request("resources/subscribe", &uri).result();
    gateway.call(CLOSE, DEV).json();
    gateway.call(OPEN, DEV).json();
    let updated = "notifications/resources/updated";
    let update = json!({"method": updated, "params": r#"{"uri":"fake://resource/1"}"#});
    gateway.call("dev__a__notify", &update).text();
    assert_eq!(gateway.count(updated), 0, "nobody has subscribed since it was opened");
    gateway.request("resources/subscribe", &uri).result();
    gateway.call("dev__a__notify", &update).text();
    assert_eq!(gateway.count(updated), 1);
    gateway.call("dev__a__crash", "{}").failure();
    gateway.until("it runs again", |gateway| !gateway.call("dev__a__report", "{}").is_error());
    assert_eq!(subscribed(&mut gateway), json!(["fake://resource/1"]), "the new process is told");
}
