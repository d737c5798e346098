//! `docs/compatibility.md` shows the table of clients that the program has. `UPDATE_EXPECTED=1` writes it anew.

use std::path::Path;

use mcp_workbench::inside::page_of_clients;

#[test]
fn the_page_of_clients_is_that_of_the_table() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/compatibility.md");
    let page = page_of_clients();
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&place, &page).expect("the page is ours");
    }
    let expected = std::fs::read_to_string(&place).unwrap_or_default();
    assert_eq!(expected, page, "docs/compatibility.md is out of date; UPDATE_EXPECTED=1 writes it anew");
}
