//! What the agent of the tests says of runs.

use drover_plan::{Digest, Plan};
use serde_json::{Value, json};

pub const ID: &str = "01938f2e-7b1c-7000-8000-2f8e9d3c4b5a";

fn with(mut value: Value, more: &Value) -> Value {
    for (key, new) in more.as_object().into_iter().flatten() {
        value[key] = new.clone();
    }
    value
}

/// A drain of host a, with `more`.
pub fn view(more: &Value) -> Value {
    let value = json!({
        "id": ID, "request": {"kind": "drain", "hosts": ["a"]}, "by": "eve", "coordinator": "c",
        "phase": "cordoning", "began_at": "2026-11-22T16:00:00Z",
    });
    with(value, more)
}

/// The same after 12.3 s, at its end.
pub fn ended(result: &str, more: &Value) -> Value {
    let end = json!({"phase": "ended", "result": result, "ended_at": "2026-11-22T16:00:12.3Z"});
    with(view(&end), more)
}

/// A move from a to b, with `more`.
pub fn one_move(number: u32, vm: &str, state: &str, more: &Value) -> Value {
    let value = json!({
        "number": number, "round": 1, "wave": 1, "vm": vm, "from": "a", "to": "b", "state": state,
        "attempt": 1, "memory": 1 << 30, "started_at": "2026-11-22T16:00:00Z",
    });
    with(value, more)
}

pub fn refusal(code: &str, message: &str) -> Value {
    json!({"error": {"code": code, "message": message}})
}

/// A plan with the seal that fits it.
pub fn sealed(plan: &Value) -> Value {
    let mut plan: Plan = serde_json::from_value(plan.clone()).unwrap();
    plan.seal = Digest::of_plan(&plan);
    serde_json::to_value(plan).unwrap()
}

pub fn planned() -> Value {
    let nothing = json!({"least": 0, "expected": 0, "most": 0});
    sealed(&json!({
        "format": 1, "inputs": "0".repeat(64), "request": {"kind": "drain", "hosts": ["a"]},
        "cordon": ["a"], "uncordon": [], "steps": [], "stays": [], "unmoved": [],
        "expected": {"bytes": nothing, "ms": nothing, "bound_ms": 0, "longest_downtime_ms": nothing},
        "afterwards": {"hosts": [], "losses": {"of": "host", "can_lose": 1, "kept": true,
            "too_much": null, "bound_to_their_host": 0}},
        "seal": "0".repeat(64)
    }))
}
