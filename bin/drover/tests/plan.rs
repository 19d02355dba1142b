//! `drover plan` against an agent that gives one answer.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};
use tempfile::TempDir;

struct Agent {
    directory: TempDir,
    /// The body of each request.
    asked: Receiver<Value>,
}

impl Agent {
    fn answering(status: u16, answer: &Value) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("s")).unwrap();
        let (tell, asked) = channel();
        let answer = answer.to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let (mut length, mut line) = (0, String::new());
                while stream.read_line(&mut line).unwrap() > 2 {
                    let header = line.to_ascii_lowercase();
                    if let Some(value) = header.strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).unwrap();
                // Of a GET there is none.
                let _ = tell.send(serde_json::from_slice(&body).unwrap_or_default());
                let length = answer.len();
                let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n");
                let _ = stream.get_mut().write_all((head + &answer).as_bytes());
            }
        });
        Self { directory, asked }
    }

    fn path(&self, name: &str) -> String {
        let path = self.directory.path().join(name);
        path.to_str().unwrap().to_owned()
    }

    /// Exit code, stdout and stderr.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        let command = command.args(arguments).env("DROVER_SOCKET", self.path("s"));
        command.env_remove("HOME").env_remove("XDG_STATE_HOME");
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    }
}

fn planned() -> Value {
    let nothing = json!({"least": 0, "expected": 0, "most": 0});
    json!({
        "plan": {
            "format": 1, "inputs": "0".repeat(64), "request": {"kind": "drain", "hosts": ["a", "b"]},
            "cordon": ["a", "b"], "uncordon": [], "steps": [], "stays": [], "unmoved": [],
            "expected": {"bytes": nothing, "ms": nothing, "bound_ms": 0, "longest_downtime_ms": nothing},
            "afterwards": {"hosts": [], "losses": {"of": "host", "can_lose": 1, "kept": true,
                "too_much": null, "bound_to_their_host": 0}},
            "seal": "0".repeat(64)
        },
        "notes": ["c is left out, with its guests: no answer"]
    })
}

#[test]
fn the_inventory_shows_what_each_host_has_and_who_is_not_in_it() {
    let host = |name: &str| {
        json!({
            "name": name, "state": "ready", "facts_age_seconds": 3, "memory": 64_u64 << 30,
            "memory_for_host": 4_u64 << 30, "cpus": 16, "cpu": {"model": "EPYC-Milan", "features": []},
            "bandwidth": 20_000_000_000_u64, "qemu": "10.0.2"
        })
    };
    let vm = |name: &str, host: &str, moving_to: Option<&str>, state: &str| {
        json!({
            "name": name, "host": host, "moving_to": moving_to, "state": state, "memory": 8_u64 << 30,
            "memory_used": 2_u64 << 30, "vcpus": 4, "cpu": {"kind": "passthrough"}, "downtime_limit_ms": 300,
            "dirty_rate": (name == "web").then_some(10 << 20), "blockers": []
        })
    };
    let vms = [
        vm("db", "a", Some("b"), "running"),
        vm("off", "b", None, "stopped"),
        vm("web", "a", None, "running"),
    ];
    let answer = json!({
        "inventory": {"hosts": [host("a"), host("b")], "vms": vms},
        "left_out": [{"host": "c", "why": "no answer"}], "notes": ["b: 1 Gbit/s is assumed"]
    });
    let agent = Agent::answering(200, &answer);
    let (code, said, errors) = agent.run(&["inventory"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    insta::assert_snapshot!(said);
    let (code, document, _) = agent.run(&["inventory", "--json"]);
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(code, Some(0));
    let dirty = &document["inventory"]["vms"][2]["dirty_rate"];
    assert_eq!(*dirty, answer["inventory"]["vms"][2]["dirty_rate"]);
    assert_eq!(document["left_out"][0]["host"], "c");
}

#[test]
fn a_plan_is_shown_printed_as_json_and_written_but_not_over_a_file() {
    let agent = Agent::answering(200, &planned());
    let file = agent.path("plan.json");
    let (code, said, errors) = agent.run(&["plan", "drain", "b", "a", "-o", &file]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(said.starts_with("Drain a, b: nothing to move"), "{said}");
    assert!(said.contains("note: c is left out"), "{said}");
    assert!(
        said.ends_with(&format!("Nothing was changed.\nThe plan is in {file}.\n")),
        "{said}"
    );
    let request = json!({"request": {"kind": "drain", "hosts": ["a", "b"]}});
    assert_eq!(agent.asked.recv().unwrap(), request);
    let written = || serde_json::from_slice::<Value>(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(written(), planned()["plan"]);

    std::fs::write(&file, "7").unwrap();
    let (code, _, errors) = agent.run(&["plan", "drain", "a", "-o", &file]);
    assert_eq!(code, Some(1));
    assert!(
        errors.contains(&file) && errors.contains("--force"),
        "{errors}"
    );
    assert_eq!(written(), json!(7));
    assert!(
        agent.asked.try_recv().is_err(),
        "nobody was asked for nothing"
    );
    let (code, ..) = agent.run(&["plan", "drain", "a", "-o", &file, "--force"]);
    assert_eq!((code, written()), (Some(0), planned()["plan"].clone()));

    let (code, document, errors) = agent.run(&["plan", "drain", "a", "--json"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["plan"], planned()["plan"]);
    assert_eq!(document["notes"], planned()["notes"]);
}

#[test]
fn where_there_is_no_plan_the_exit_code_is_4_and_every_reason_is_told() {
    let message = "No plan: 1 guest cannot move.\n  web on a: must move\n    b: is cordoned";
    let refusal = json!({"error": {"code": "no-plan", "message": message}});
    let agent = Agent::answering(409, &refusal);
    let file = agent.path("plan.json");
    let (code, said, errors) = agent.run(&["plan", "drain", "a", "-o", &file]);
    assert_eq!((code, said.as_str()), (Some(4), ""));
    assert_eq!(errors, format!("drover: {message}\n"));
    assert!(!std::path::Path::new(&file).exists());
    let (code, ..) = agent.run(&["plan", "drain"]);
    assert_eq!(code, Some(2), "no host is named");
}
