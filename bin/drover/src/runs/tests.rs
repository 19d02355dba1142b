//! Views of runs for the tests beside.

use drover_api::RunView;
use serde_json::{Value, json};

fn with(mut value: Value, more: &Value) -> Value {
    for (key, new) in more.as_object().into_iter().flatten() {
        value[key] = new.clone();
    }
    value
}

/// A drain of host a that began at 16:00:00, with `more`.
pub fn view(more: Value) -> RunView {
    let value = json!({
        "id": "01938f2e-7b1c-7000-8000-2f8e9d3c4b5a",
        "request": {"kind": "drain", "hosts": ["a"]}, "by": "eve", "coordinator": "c",
        "phase": "moving", "began_at": "2026-11-22T16:00:00Z",
    });
    serde_json::from_value(with(value, &more)).unwrap()
}

/// A move from a to b that began at 16:00:00, with `more`.
pub fn one_move(number: u32, vm: &str, state: &str, more: Value) -> Value {
    let value = json!({
        "number": number, "round": 1, "wave": 1, "vm": vm, "from": "a", "to": "b", "state": state,
        "attempt": 1, "memory": 1 << 30, "started_at": "2026-11-22T16:00:00Z",
    });
    with(value, &more)
}
