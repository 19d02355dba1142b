use super::*;

/// Run `cargo run -p droverd -- openapi > crates/api/openapi.json` when this fails.
#[test]
fn the_committed_openapi_document_is_that_of_the_routes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/api/openapi.json");
    let committed = std::fs::read_to_string(path).unwrap();
    let current = document().unwrap();
    assert!(
        committed.trim_end() == current,
        "crates/api/openapi.json is out of date: cargo run -p droverd -- openapi > \
         crates/api/openapi.json"
    );
}
