//! Tests of the search as a whole, on small corpora of our own.

use proptest::prelude::*;

use super::{Index, ParamDoc, ServerDoc, ToolDoc};

fn tool(name: &str, description: &str) -> ToolDoc {
    ToolDoc { name: name.to_owned(), description: description.to_owned(), ..ToolDoc::default() }
}

fn server(order: u32, title: &str, description: &str, tools: &[(&str, &str)]) -> ServerDoc {
    ServerDoc {
        order,
        title: title.to_owned(),
        description: description.to_owned(),
        tools: tools.iter().map(|(name, text)| tool(name, text)).collect(),
    }
}

/// A typical handful of servers.
fn office() -> Vec<(&'static str, ServerDoc)> {
    let github = server(
        0,
        "GitHub",
        "Repositories, issues and pull requests",
        &[
            ("create_issue", "Open a new issue in a repository."),
            ("list_issues", "List the issues of a repository."),
            ("merge_pull_request", "Merge a pull request."),
            ("search_code", "Search for code across repositories."),
        ],
    );
    let serena = server(
        1,
        "Serena",
        "Semantic code editing",
        &[
            ("find_symbol", "Find a class, function or method by its name."),
            ("replace_symbol_body", "Replace the body of a symbol."),
            ("find_referencing_symbols", "Find where a symbol is used."),
        ],
    );
    let files = server(
        2,
        "Filesystem",
        "Access to local files",
        &[
            ("delete_file", "Delete a file."),
            ("move_file", "Move or rename a file."),
            ("read_file", "Read a file."),
            ("list_directory", "List what is in a directory."),
        ],
    );
    let weather = server(
        3,
        "天気",
        "日本の天気予報",
        &[
            ("get_forecast", "指定した都市の天気予報を取得する。"),
            ("поиск_города", "Найти город по названию."),
        ],
    );
    let mut chat = server(
        4,
        "Slack",
        "Channels and messages",
        &[("post_message", "Post a message to a channel."), ("set_status", "Set the status of a user.")],
    );
    chat.tools[1].params = vec![ParamDoc {
        name: "presence".to_owned(),
        description: "How you appear to colleagues".to_owned(),
        enum_values: vec!["away".to_owned(), "invisible".to_owned()],
    }];
    vec![("github", github), ("serena", serena), ("files", files), ("weather", weather), ("slack", chat)]
}

fn index(servers: &[(&str, ServerDoc)]) -> Index {
    let mut index = Index::new();
    for (key, doc) in servers {
        index.set_server(key, doc);
    }
    index
}

fn names(index: &Index, query: &str) -> Vec<String> {
    index.search(query, 5).hits.into_iter().map(|hit| hit.tool).collect()
}

fn check(query: &str, first: &str) {
    let found = names(&index(&office()), query);
    assert_eq!(found.first().map(String::as_str), Some(first), "{query}: {found:?}");
}

#[test]
fn finds_what_is_meant() {
    check("find symbol", "find_symbol");
    check("findSymbol", "find_symbol");
    check("Find-Symbol", "find_symbol");
    check("serena find symbol", "find_symbol");
    check("find the symbol", "find_symbol");
    check("serena/find_symbol", "find_symbol");
    check("referencing symbols", "find_referencing_symbols");
    check("merge_pull", "merge_pull_request");
    check("merge_pu", "merge_pull_request");
    check("open a bug in the repo", "create_issue");
    check("erase a file", "delete_file");
    check("I would like to send a message to my colleagues in the channel, please", "post_message");
    check("become invisible", "set_status");
}

#[test]
fn forgives_slips_of_the_fingers() {
    check("find smybol", "find_symbol");
    check("creat isue", "create_issue");
    check("raed file", "read_file");
    check("raed", "read_file");
    check("list direcotry", "list_directory");
}

#[test]
fn a_word_too_long_for_a_slip_is_not_repaired() {
    // A very long word is a sequence, a key or a hash. Repairing it would take time quadratic in its length.
    let query = format!("find the symbol {}", "ab".repeat(50_000));
    assert_eq!(names(&index(&office()), &query)[0], "find_symbol");
}

#[test]
fn understands_any_script() {
    check("天気", "get_forecast");
    check("東京の天気予報", "get_forecast");
    check("поиск города", "поиск_города");
    check("найти города", "поиск_города");
}

#[test]
fn a_servers_name_does_not_swamp_the_rest() {
    check("github list issues", "list_issues");
    check("github issues", "list_issues");
    check("GitHub: search for code", "search_code");
    check("github pull request merge", "merge_pull_request");
    check("read a file from github", "read_file");
}

#[test]
fn a_servers_name_alone_gives_its_tools() {
    let found = index(&office()).search("slack", 5);
    assert!(found.hits.iter().all(|hit| hit.server == "slack"), "{found:?}");
    assert_eq!(found.hits.len(), 2);
    assert!(found.servers.is_empty(), "its tools speak for it: {found:?}");
}

#[test]
fn servers_without_known_tools_are_found_by_what_they_say() {
    let mut index = index(&office());
    index.set_server("maps", &server(9, "Maps", "Routes and travel times between places", &[]));
    let found = index.search("route between two places", 5);
    assert_eq!(found.servers, ["maps"], "{found:?}");
}

#[test]
fn says_nothing_when_nothing_fits() {
    let index = index(&office());
    for query in ["", "   ", "?!", "qwrtz uiopü", "saxophone recital in Antarctica", "🦀"] {
        let found = index.search(query, 5);
        assert!(found.hits.is_empty(), "{query}: {found:?}");
    }
    assert!(Index::new().search("anything", 5).hits.is_empty());
}

#[test]
fn a_long_request_about_other_things_finds_nothing() {
    let index = index(&office());
    let elsewhere = [
        "I am planning a surprise party for my grandmother and would love to set the table with fresh flowers, \
         candles and a cake, can you recommend a bakery that delivers on Sunday morning?",
        "What would be the healthiest diet for a marathon runner who wants to replace red meat with vegetables and \
         still gain muscle before the race in autumn?",
    ];
    for query in elsewhere {
        assert!(names(&index, query).is_empty(), "{query}: {:?}", names(&index, query));
    }
    let query = "I have been cleaning up my computer since this morning, and now there is an old text file on the \
                 desktop whose name is wrong, could you please rename that file for me?";
    assert_eq!(names(&index, query)[0], "move_file");
}

#[test]
fn numbers_are_values_and_not_wishes() {
    let sums = server(0, "Sums", "", &[("calculator", "Evaluates a formula."), ("plot", "Draws a curve.")]);
    let index = index(&[("sums", sums)]);
    assert_eq!(names(&index, "calculate 1.1604^2.9258 + 17"), ["calculator"]);
    assert!(names(&index, "translate 1.1604^2.9258 + 17").is_empty());
}

#[test]
fn a_near_miss_names_the_server() {
    let mut index = index(&office());
    for (query, near) in [
        ("encrypt a file", Some("files")),
        ("transcode a file", Some("files")),
        ("transcode two files", Some("files")),
        ("saxophone recital in Antarctica", None),
        ("read a file", None),
    ] {
        let found = index.search(query, 5);
        assert_eq!(found.near.as_deref(), near, "{query}: {found:?}");
        assert_eq!(found.hits.is_empty(), query != "read a file", "{query}: {found:?}");
    }
    // A server whose tools are unknown may have the tool, so nothing is missing yet.
    index.set_server("vault", &server(9, "Vault", "Encrypt a file or a message", &[]));
    let found = index.search("encrypt a file", 5);
    assert_eq!((found.near, found.servers), (None, vec!["vault".to_owned()]));
}

#[test]
fn nothing_else_is_removed_than_what_the_query_names() {
    let mut index = Index::new();
    let tools = [
        ("delete_items", "Delete files, folders or other items for good."),
        ("delete_notes", "Delete notes."),
    ];
    index.set_server("memory", &server(0, "Memory", "", &tools[1..]));
    index.set_server(
        "files",
        &server(1, "Files", "", &[("read_file", "Read a file."), ("read_folder", "Read a folder.")]),
    );
    assert_eq!(names(&index, "delete a file"), [""; 0]);
    assert_eq!(names(&index, "delete a note")[0], "delete_notes");
    assert_eq!(names(&index, "delete")[0], "delete_notes");
    index.set_server("desk", &server(2, "Desk", "", &tools[..1]));
    assert_eq!(names(&index, "delete a file")[0], "delete_items");
}

#[test]
fn what_is_meant_is_found_in_other_words() {
    let mut index = Index::new();
    let tools = [
        ("wind_clock", "Set the time of a clock in a house."),
        ("snap", "Photograph a house."),
        ("sell", "Sell a house."),
    ];
    index.set_server("one", &server(0, "", "", &tools));
    assert_eq!(names(&index, "camera picture of a house")[0], "snap");
}

#[test]
fn grammar_alone_finds_texts_that_have_it() {
    let mut index = index(&office());
    index.set_server("me", &server(9, "", "", &[("whoami", "Who am I?"), ("spin_wheel", "Spin it.")]));
    for query in ["who am i", "who I am", "am I"] {
        assert_eq!(names(&index, query).first().map(String::as_str), Some("whoami"), "{query}");
    }
}

#[test]
fn grammar_tells_short_queries_apart() {
    let mut index = Index::new();
    let tools = [("a", "Convert pdf from text."), ("b", "Convert pdf to text.")];
    index.set_server("one", &server(0, "", "", &tools));
    assert_eq!(names(&index, "convert to pdf"), ["b", "a"]);
}

#[test]
fn a_tools_sentence_finds_it_first() {
    let mut index = Index::new();
    let tools = [
        (
            "search_repository_code",
            "Code search. Search for code in a repository, in code, for code, and code.",
        ),
        ("grep", "Search for code in a repository."),
        ("titled", "Look around: Find the way from here to there"),
        ("way_from_here", "Find the way from here: way, here, there."),
    ];
    index.set_server("one", &server(0, "", "", &tools));
    for (query, first) in [
        ("Search for code in a repository", "grep"),
        ("search for code in a repository.", "grep"),
        ("Find the way from here to there", "titled"),
    ] {
        assert_eq!(names(&index, query).first().map(String::as_str), Some(first), "{query}");
    }
}

#[test]
fn reading_and_writing_are_told_apart() {
    let mut index = Index::new();
    let tools = [
        ("send_email", "Send emails to people."),
        ("delete_emails", "Delete emails."),
        ("update_email_draft", "Edit emails before they are sent."),
        ("emails_in_inbox", "Retrieve emails of the mailbox."),
    ];
    index.set_server("mail", &server(0, "Mail", "", &tools));
    let others = [("wind_clock", ""), ("ring_bell", ""), ("paint_wall", ""), ("sort_socks", "")];
    index.set_server("house", &server(1, "House", "", &others));
    for (query, first) in [
        ("get emails", "emails_in_inbox"),
        ("show my emails", "emails_in_inbox"),
        ("remove emails", "delete_emails"),
        ("post emails", "send_email"),
        ("modify emails", "update_email_draft"),
    ] {
        assert_eq!(names(&index, query).first().map(String::as_str), Some(first), "{query}");
    }
}

#[test]
fn things_alone_ask_to_see_them() {
    let check = |query: &str, tools: &[(&str, &str)], expected: &[&str]| {
        let index = index(&[("one", server(0, "", "", tools))]);
        assert_eq!(names(&index, query), expected);
    };
    let tools = [("write_tag", "Tag of a photo."), ("show_tag", "Tag of a photo or film.")];
    check("photo tag", &tools, &["show_tag", "write_tag"]);
    let tools = [("purge_cache", "Cache, purged for good."), ("fill_cache", "Fill the cache.")];
    check("cache", &tools, &["fill_cache", "purge_cache"]);
}

#[test]
fn equals_are_ordered_by_risk_and_then_by_the_file() {
    let check = |tools: Vec<ToolDoc>, expected: &[&str]| {
        let mut index = Index::new();
        index.set_server("one", &ServerDoc { tools, ..ServerDoc::default() });
        assert_eq!(names(&index, "gizmo"), expected);
    };
    check(vec![tool("delete_gizmo", ""), tool("get_gizmo", "")], &["get_gizmo", "delete_gizmo"]);
    check(vec![tool("purge_gizmo", ""), tool("paint_gizmo", "")], &["paint_gizmo", "purge_gizmo"]);
    let destroying = ToolDoc { destructive: Some(true), ..tool("cast_gizmo", "") };
    let reading = ToolDoc { read_only: Some(true), ..tool("zoom_gizmo", "") };
    check(
        vec![destroying, tool("bend_gizmo", ""), tool("fold_gizmo", ""), reading],
        &["zoom_gizmo", "bend_gizmo", "fold_gizmo", "cast_gizmo"],
    );
}

#[test]
fn the_file_decides_between_servers() {
    let mut index = Index::new();
    let doc = |order| server(order, "", "", &[("spin_wheel", "Spin it.")]);
    index.set_server("late", &doc(2));
    index.set_server("early", &doc(1));
    let servers: Vec<String> = index.search("spin wheel", 5).hits.into_iter().map(|hit| hit.server).collect();
    assert_eq!(servers, ["early", "late"]);
}

#[test]
fn says_which_words_matched() {
    let found = index(&office()).search("Please READ my Files", 5);
    assert_eq!(found.hits[0].tool, "read_file");
    assert_eq!(found.hits[0].matched, ["READ", "Files"]);
}

#[test]
fn grammar_alone_brings_no_junk() {
    let found = index(&office()).search("merge a pull request", 10);
    assert!(found.hits.iter().all(|hit| !hit.matched.contains(&"a".to_owned())), "{found:?}");
    assert!(found.hits.iter().all(|hit| !hit.matched.is_empty()), "{found:?}");
}

#[test]
fn grammar_alone_finds_what_has_it() {
    let tools = [
        ("decide", "Find out whether to be or not."),
        ("toggle", "Switch a light on or off."),
        ("lookup", "Weather reports, sorted by town."),
    ];
    let index = index(&[("x", server(0, "X", "", &tools))]);
    assert_eq!(names(&index, "to be or not"), ["decide", "toggle"]);
    assert_eq!(names(&index, "TO BE?"), ["decide"]);
    assert_eq!(index.search("to be or not", 5).hits[0].matched, ["to", "be", "or", "not"]);
    // A grammar word is never repaired and has no longer variants.
    assert_eq!(names(&index, "other does where"), [""; 0]);
    // Beside other words, grammar matches nothing by itself.
    assert_eq!(names(&index, "the weather or not"), ["lookup"]);
}

#[test]
fn marks_the_words_that_matched() {
    let index = index(&office());
    let check = |query: &str, text: &str, expected: &str| {
        let mut marked = text.to_owned();
        for range in index.marks(query, text).into_iter().rev() {
            marked.insert(range.end, ']');
            marked.insert(range.start, '[');
        }
        assert_eq!(marked, expected, "{query}");
    };
    check("read my files", "read_file", "[read]_[file]");
    check("read my files", "readFile", "[read][File]");
    check("raed the file", "Read a file.", "[Read] a [file].");
    check("東京の天気予報", "指定した都市の天気予報", "指定した都市[の天気予報]");
    check("erase", "Delete a file.", "[Delete] a file.");
    check("nothing here", "Read a file.", "Read a file.");
}

#[test]
fn scores_never_rise_along_the_list() {
    let found = index(&office()).search("find symbol, then delete the file and list issues", 10);
    assert!(found.hits.len() > 3);
    assert!(found.hits.is_sorted_by(|a, b| a.score >= b.score), "{found:?}");
}

#[test]
fn several_wishes_are_all_served() {
    let query = "First find the symbol. Then merge the pull request, and post a message to the channel.";
    let found = names(&index(&office()), query);
    for expected in ["find_symbol", "merge_pull_request", "post_message"] {
        assert!(found[..4].iter().any(|name| name == expected), "{expected}: {found:?}");
    }
}

#[test]
fn replacing_and_removing_leave_nothing_behind() {
    let servers = office();
    let mut changed = index(&servers);
    for round in 0..300 {
        changed.set_server(
            "extra",
            &server(9, "", "", &[("find_symbol", "Find."), (&format!("tool{round}"), "")]),
        );
    }
    assert!(changed.remove_server("extra"));
    assert!(!changed.remove_server("extra"));
    let fresh = index(&servers);
    for query in ["find symbol", "read a file", "github issues", "天気", "tool7"] {
        assert_eq!(changed.search(query, 10), fresh.search(query, 10), "{query}");
    }
}

#[test]
fn numbering_anew_changes_nothing() {
    let servers = office();
    let mut changed = index(&servers);
    for _ in 0..3 {
        for (key, doc) in servers.iter().cycle().take(1200) {
            changed.set_server(key, doc);
        }
    }
    let fresh = index(&servers);
    assert_eq!(changed.search("find symbol in a file", 10), fresh.search("find symbol in a file", 10));
}

/// Words that recur often, so that names collide, rank close together and contain one another.
fn word() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "get",
        "delete",
        "list",
        "find",
        "user",
        "file",
        "symbol",
        "issue",
        "GitHub",
        "weather",
        "v2",
        "the",
        "天気",
        "поиск",
        "résumé",
        "zebra",
        "analyze",
    ])
}

fn phrase(most: usize, between: &'static str) -> impl Strategy<Value = String> {
    prop::collection::vec(word(), 1..=most).prop_map(move |words| words.join(between))
}

fn servers() -> impl Strategy<Value = Vec<ServerDoc>> {
    let tool = (phrase(4, "_"), phrase(12, " ")).prop_map(|(name, text)| tool(&name, &text));
    let server = (phrase(2, " "), phrase(6, " "), prop::collection::vec(tool, 0..5));
    let docs =
        server.prop_map(|(title, description, tools)| ServerDoc { order: 0, title, description, tools });
    prop::collection::vec(docs, 1..6).prop_map(|mut docs| {
        for (order, doc) in (0..).zip(&mut docs) {
            doc.order = order;
        }
        docs
    })
}

fn indexed(docs: &[ServerDoc], order: impl Iterator<Item = usize>) -> Index {
    let mut index = Index::new();
    for at in order {
        index.set_server(&format!("server {at}"), &docs[at]);
    }
    index
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranking_does_not_depend_on_the_order_of_adding(docs in servers(), query in phrase(9, " ")) {
        let forward = indexed(&docs, 0..docs.len());
        let backward = indexed(&docs, (0..docs.len()).rev());
        let mut again = indexed(&docs, 0..docs.len());
        again.set_server("server 0", &docs[0]);
        let expected = forward.search(&query, 10);
        prop_assert_eq!(&expected, &forward.search(&query, 10));
        prop_assert_eq!(&expected, &backward.search(&query, 10));
        prop_assert_eq!(&expected, &again.search(&query, 10));
    }

    #[test]
    fn adding_a_tool_never_takes_an_exact_name_from_the_first_place(
        docs in servers(),
        name in phrase(10, "_"),
        more in servers(),
    ) {
        let exact = ServerDoc { tools: vec![tool(&name, "")], ..ServerDoc::default() };
        let mut index = indexed(&docs, 0..docs.len());
        index.set_server("exact", &exact);
        let first = |index: &Index| index.search(&name, 3).hits.first().map(|hit| hit.tool.clone());
        prop_assert_eq!(first(&index), Some(name.clone()));
        for (at, doc) in more.iter().enumerate() {
            index.set_server(&format!("more {at}"), doc);
            prop_assert_eq!(first(&index), Some(name.clone()));
        }
    }

    #[test]
    fn any_text_is_a_query(docs in servers(), query in "\\PC{0,60}", limit in 0_usize..12) {
        let found = indexed(&docs, 0..docs.len()).search(&query, limit);
        prop_assert!(found.hits.len() <= limit);
        prop_assert!(found.hits.iter().all(|hit| hit.score.is_finite()));
    }
}
