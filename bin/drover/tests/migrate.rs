//! `drover migrate` against an agent that plays a script.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;

const ID: &str = "01938f2e-7b1c-7000-8000-2f8e9d3c4b5a";

fn view(phase: &str, more: &Value) -> Value {
    let mut view = json!({
        "id": ID, "vm": "web", "source": "a", "destination": "b", "role": "source",
        "phase": phase, "started_at": "2026-11-21T20:00:00Z",
        "bytes": {"total": 1 << 30, "transferred": 640 << 20, "remaining": 0},
        "round": 1, "rate": 0, "paths": [], "left_out": [], "notes": [],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        view[key] = value.clone();
    }
    view
}

/// What an agent does: the answers to each look at the migration in turn, the last one for ever.
struct Script {
    looks: Vec<Value>,
    cancel: (u16, Value),
    after_cancel: Value,
}

impl Script {
    fn of(looks: Vec<Value>) -> Self {
        let cancelled = view("cancelled", &json!({"guest": "source"}));
        Self {
            looks,
            cancel: (200, view("cancelling", &Value::Null)),
            after_cancel: cancelled,
        }
    }
}

struct Agent {
    directory: TempDir,
    calls: Arc<Mutex<Vec<String>>>,
    /// Tells of each look, so that a test can act in the middle.
    looked: std::sync::mpsc::Receiver<()>,
}

impl Agent {
    fn start(mut script: Script) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("s")).unwrap();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (look, looked) = std::sync::mpsc::channel();
        let seen = Arc::clone(&calls);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let (call, body) = read(&stream);
                seen.lock()
                    .unwrap()
                    .push(format!("{call} {body}").trim().to_owned());
                let (status, answer) = match call.as_str() {
                    "POST /v1/vms/web/migrate" => (202, view("preparing", &Value::Null)),
                    call if call.ends_with("/cancel") => {
                        script.looks = vec![script.after_cancel.clone()];
                        script.cancel.clone()
                    }
                    _ => {
                        let more = script.looks.len() > 1;
                        let answer = if more {
                            script.looks.remove(0)
                        } else {
                            script.looks[0].clone()
                        };
                        let _ = look.send(());
                        (200, answer)
                    }
                };
                let answer = answer.to_string();
                let length = answer.len();
                let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n");
                let _ = stream.write_all((head + &answer).as_bytes());
            }
        });
        Self {
            directory,
            calls,
            looked,
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    fn drover(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        command.args(arguments).env("DROVER_SOCKET", self.socket());
        command.env_remove("HOME").env_remove("XDG_STATE_HOME");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        parts(self.drover(arguments).output().unwrap())
    }

    /// Sends `signals` once the migration is being followed.
    fn run_interrupted(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let child = self.drover(arguments).spawn().unwrap();
        self.looked.recv().unwrap();
        let pid = child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-INT", &pid])
                .status()
                .unwrap()
                .success()
        );
        parts(child.wait_with_output().unwrap())
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

fn parts(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn read(stream: &UnixStream) -> (String, String) {
    let mut reader = BufReader::new(stream);
    let mut call = String::new();
    reader.read_line(&mut call).unwrap();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let call = call
        .rsplit_once(' ')
        .map(|(call, _)| call.to_owned())
        .unwrap_or_default();
    (call, String::from_utf8(body).unwrap())
}

const MIGRATE: [&str; 4] = ["migrate", "web", "--to", "b"];

fn completed() -> Value {
    view(
        "completed",
        &json!({"total_ms": 3250, "downtime_ms": 85, "encryption": "tls13-aes128gcm",
                "notes": ["no multifd"]}),
    )
}

#[test]
fn a_migration_is_followed_to_its_end_and_is_silent_without_a_terminal() {
    let agent = Agent::start(Script::of(vec![
        view("transferring", &Value::Null),
        completed(),
    ]));
    let (code, stdout, stderr) = agent.run(&MIGRATE);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(
        stdout,
        "guest web runs on b; moved in 3.2 s, stopped for 85 ms, 640 MiB sent, encrypted by \
         tls13-aes128gcm\n  note: no multifd\n"
    );
    assert_eq!(stderr, "");
    assert_eq!(agent.calls()[0], "POST /v1/vms/web/migrate {\"to\":\"b\"}");
}

#[test]
fn options_are_handed_to_the_agent() {
    let agent = Agent::start(Script::of(vec![completed()]));
    let options = [
        "--downtime-limit",
        "50",
        "--throttle",
        "off",
        "--throttle-most",
        "40",
        "--deadline",
        "10m",
        "--at-deadline",
        "stop-and-copy",
        "--channels",
        "4",
        "--lanes",
        "3",
        "--detach",
    ];
    let (code, stdout, _) = agent.run(&[&MIGRATE[..], &options].concat());
    assert_eq!(code, Some(0));
    assert!(stdout.contains("drover status"), "{stdout}");
    let convergence = r#"{"downtime_limit_ms":50,"throttle":"off","throttle_most":40,"deadline_s":600,"at_deadline":"stop-and-copy"}"#;
    let body =
        format!(r#"{{"to":"b","convergence":{convergence},"channels":4,"lanes_per_path":3}}"#);
    assert_eq!(agent.calls(), [format!("POST /v1/vms/web/migrate {body}")]);
}

#[test]
fn json_is_one_document_with_the_exit_code() {
    let agent = Agent::start(Script::of(vec![
        view("transferring", &Value::Null),
        completed(),
    ]));
    let (code, stdout, stderr) = agent.run(&[&MIGRATE[..], &["--json"]].concat());
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let document: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(document["exit_code"], 0);
    assert_eq!(document["migration"]["phase"], "completed");
    assert_eq!(document["migration"]["downtime_ms"], 85);
}

#[test]
fn a_migration_that_fails_tells_its_cause_and_where_the_guest_is() {
    let failed = view(
        "failed",
        &json!({"cause": "path 0 was lost", "next": "check eth1", "guest": "source"}),
    );
    let agent = Agent::start(Script::of(vec![failed]));
    let (code, stdout, stderr) = agent.run(&MIGRATE);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert_eq!(
        stderr,
        "drover: guest web was not moved and runs on a: path 0 was lost\n  next: check eth1\n"
    );
    let (_, stdout, _) = agent.run(&[&MIGRATE[..], &["--json"]].concat());
    let document: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(document["exit_code"], 1);
    assert_eq!(document["error"]["code"], "migration-failed");
    assert_eq!(document["migration"]["cause"], "path 0 was lost");
}

#[test]
fn a_guest_is_never_said_to_run_where_the_agent_does_not_say_so() {
    let cause = "its QEMU has ended";
    for (phase, more, said) in [
        (
            "failed",
            json!({"guest": "nowhere"}),
            "guest web runs neither on a nor on b: ",
        ),
        (
            "failed",
            json!({"guest": "source-stopped"}),
            "guest web was not moved and stands still on a: ",
        ),
        (
            "failed",
            json!({"guest": "unknown"}),
            "the migration of guest web ended as failed: ",
        ),
        (
            "failed",
            json!({"guest": "on-the-moon"}),
            "the migration of guest web ended as failed: ",
        ),
        (
            "failed",
            json!({}),
            "the migration of guest web ended as failed: ",
        ),
        (
            "given-up",
            json!({"guest": "unknown"}),
            "the migration of guest web ended as given-up: ",
        ),
        (
            "cancelled",
            json!({"guest": "nowhere"}),
            "cancelled; guest web runs neither on a nor on b\n",
        ),
        ("cancelled", json!({}), "cancelled\n"),
    ] {
        let mut more = more;
        more["cause"] = json!(cause);
        let agent = Agent::start(Script::of(vec![view(phase, &more)]));
        let (code, stdout, stderr) = agent.run(&MIGRATE);
        assert_ne!(code, Some(0));
        assert_eq!(stdout, "");
        assert!(
            stderr.starts_with(&format!("drover: {said}")),
            "{more}: {stderr}"
        );
        assert!(!stderr.contains("runs on a"), "{more}: {stderr}");
    }
}

#[test]
fn ctrl_c_cancels_the_migration_and_says_so() {
    let agent = Agent::start(Script::of(vec![view("transferring", &Value::Null)]));
    let (code, stdout, stderr) = agent.run_interrupted(&MIGRATE);
    assert_eq!((code, stdout.as_str()), (Some(5), ""), "{stderr}");
    assert!(
        stderr.starts_with("cancelling: guest web is to stay on a"),
        "{stderr}"
    );
    assert!(
        stderr.ends_with("drover: cancelled; guest web runs on a\n"),
        "{stderr}"
    );
    assert!(
        agent
            .calls()
            .contains(&format!("POST /v1/migrations/{ID}/cancel"))
    );
}

#[test]
fn ctrl_c_that_comes_too_late_says_so_and_waits_for_the_end() {
    let late = json!({"error": {"code": "too-late", "message": "handed off"}});
    let script = Script {
        cancel: (409, late),
        after_cancel: completed(),
        ..Script::of(vec![view("handing-off", &Value::Null)])
    };
    let agent = Agent::start(script);
    let (code, stdout, stderr) = agent.run_interrupted(&MIGRATE);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stderr.contains("too late to cancel: guest web has been handed off to b"),
        "{stderr}"
    );
    assert!(stdout.starts_with("guest web runs on b"), "{stdout}");
}

#[test]
fn a_guest_is_enough_to_cancel_its_migration() {
    let agent = Agent::start(Script::of(vec![json!([view(
        "transferring",
        &Value::Null
    )])]));
    let (code, stdout, stderr) = agent.run(&["cancel", "web"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.starts_with("guest web is to stay on a"), "{stdout}");
    assert!(
        agent
            .calls()
            .contains(&format!("POST /v1/migrations/{ID}/cancel"))
    );

    let agent = Agent::start(Script::of(vec![json!([completed()])]));
    let (code, _, stderr) = agent.run(&["cancel", "web"]);
    assert_eq!(code, Some(4));
    assert!(stderr.contains("guest web is not migrating"), "{stderr}");
    assert!(stderr.contains("next: `drover status`"), "{stderr}");
}
