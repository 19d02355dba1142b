//! `drover doctor plan`, `apply`, `undo` and `changes`, with a real agent on a host that is a network namespace.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../../droverd/tests/change/network.rs"]
#[allow(dead_code, reason = "not all of it is used here")]
mod network;
#[path = "../../droverd/tests/support/mod.rs"]
mod support;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use network::Network;
use serde_json::Value;
use support::{Agent, Place};

const POLL: Duration = Duration::from_millis(20);

struct Host {
    network: Network,
    place: Place,
    _agent: Agent,
}

impl Host {
    /// Its `/etc/sysctl.d` is its agent's alone: `ip netns exec` makes that mounts of its own.
    async fn new(test: &str) -> Option<Self> {
        let network = Network::new(test)?;
        let place = Place::new();
        fs::create_dir(place.path("sysctl.d")).unwrap();
        let droverd = place.droverd();
        let mut command = network.command("sh");
        let line = "mount --bind \"$0\" /etc/sysctl.d && exec \"$@\"";
        command
            .args(["-c", line])
            .arg(place.path("sysctl.d"))
            .arg(droverd.get_program())
            .args(droverd.get_args())
            .env_remove("JOURNAL_STREAM");
        let agent = place.start_by(command).await;
        Some(Self {
            network,
            place,
            _agent: agent,
        })
    }

    /// A command below `doctor`.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        command.arg("doctor").args(arguments);
        command
            .env("DROVER_SOCKET", self.place.socket())
            .env_remove("HOME")
            .env_remove("XDG_STATE_HOME")
            .stdin(Stdio::null());
        command
    }

    /// Its exit code, answer and errors.
    fn doctor(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (out, err) = (text(output.stdout), text(output.stderr));
        (output.status.code(), out, err)
    }

    fn done(&self, arguments: &[&str]) -> String {
        let (code, out, err) = self.doctor(arguments);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{arguments:?}: {out}");
        out
    }

    fn document(&self, arguments: &[&str]) -> Value {
        let (code, out, err) = self.doctor(&[arguments, &["--json"]].concat());
        assert_eq!(err, "", "everything is in the document");
        let document: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(document["exit_code"].as_i64(), code.map(i64::from));
        document
    }

    fn timestamps(&self) -> String {
        let read = self.network.on_a("sysctl -n net.ipv4.tcp_timestamps");
        read.trim().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_written_applied_listed_undone_and_forgotten() {
    let Some(host) = Host::new("cli").await else {
        return;
    };
    let file = host.place.path("tune.plan");
    let file = file.to_str().unwrap();
    let shown = host.done(&["plan"]);
    assert!(shown.contains("# + net.ipv4.tcp_timestamps = 1"), "{shown}");
    let said = host.done(&["plan", "-o", file]);
    assert!(
        said.starts_with(&format!("{file}: 3 changes, 4 settings;")),
        "{said}"
    );
    let lasting = host.document(&["plan", "--lasting"]);
    let places = lasting["lasting"].as_array().unwrap();
    let lines = places.iter().map(|place| place["lines"].to_string());
    assert!(
        lines.collect::<String>().contains("tcp_timestamps"),
        "{lasting:#}"
    );
    // All of it are settings, for which there is a file.
    assert_eq!(lasting["not_kept"].as_array().unwrap().len(), 0);
    let (code, _, said) = host.doctor(&["plan", "-o", file]);
    assert_eq!(code, Some(1));
    assert!(said.contains("is there already"), "{said}");
    assert_eq!(host.timestamps(), "0", "nothing was changed");

    let said = host.done(&["apply", file]);
    let expected =
        "applied: 4 settings; nothing is proved by that: no path to another host worked before";
    assert!(said.starts_with(expected), "{said}");
    assert_eq!(host.timestamps(), "1");
    let said = host.done(&["plan"]);
    assert!(said.starts_with("nothing would be changed"), "{said}");

    let document = host.document(&["changes"]);
    let change = &document["changes"][0];
    assert_eq!(change["state"], "applied");
    let id = change["id"].as_str().unwrap();
    let said = host.done(&["changes", id]);
    assert!(said.contains(&format!("change {id}: applied")), "{said}");
    assert!(said.contains("net.ipv4.tcp_timestamps"), "{said}");

    assert_eq!(host.done(&["undo"]), "undone: 4 settings as before\n");
    assert_eq!(host.timestamps(), "0");
    let document = host.document(&["undo"]);
    assert_eq!(document["error"]["code"], "not-undoable");
    assert_eq!(document["exit_code"], 4);

    host.done(&["apply", file]);
    let document = host.document(&["changes"]);
    let id = document["changes"][0]["id"].as_str().unwrap();
    let said = host.done(&["forget", id]);
    assert!(said.contains("what it has set stays, and cannot"), "{said}");
    assert_eq!(host.timestamps(), "1");
    let document = host.document(&["forget", id]);
    assert_eq!(document["error"]["code"], "no-such-change");
    assert_eq!(document["exit_code"], 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_brought_to_its_end_without_the_command_that_asked_for_it() {
    let Some(host) = Host::new("clihup").await else {
        return;
    };
    let file = host.place.path("tune.plan");
    let file = file.to_str().unwrap();
    host.done(&["plan", "-o", file]);
    let mut apply = host.command(&["apply", file]);
    let mut apply = apply.stdout(Stdio::null()).spawn().unwrap();
    let state = || host.document(&["changes"])["changes"][0]["state"].clone();
    while state().is_null() {
        tokio::time::sleep(POLL).await;
    }
    // As a terminal does whose connection is gone.
    let pid = apply.id().to_string();
    Command::new("kill").args(["-HUP", &pid]).status().unwrap();
    apply.wait().unwrap();
    while state() != "applied" {
        tokio::time::sleep(POLL).await;
    }
    assert_eq!(host.timestamps(), "1");
    assert_eq!(host.done(&["undo"]), "undone: 4 settings as before\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_applied_is_an_error_with_its_code_and_what_to_do() {
    let Some(host) = Host::new("clino").await else {
        return;
    };
    let file = host.place.path("tune.plan");
    let path = file.to_str().unwrap();
    let (code, _, said) = host.doctor(&["apply", path]);
    assert_eq!(code, Some(1));
    assert!(said.contains("cannot read the plan"), "{said}");
    fs::write(&file, "host = 7").unwrap();
    let (code, _, said) = host.doctor(&["apply", path]);
    assert_eq!(code, Some(4));
    assert!(said.contains("it is no plan of changes"), "{said}");
    assert!(
        said.contains("next: `drover doctor plan -o FILE`"),
        "{said}"
    );
    fs::remove_file(&file).unwrap();

    host.done(&["plan", "-o", path]);
    host.network.on_a("sysctl -qw net.ipv4.tcp_timestamps=1");
    let document = host.document(&["apply", path]);
    assert_eq!(document["error"]["code"], "change-refused");
    assert_eq!(document["change"]["change"]["state"], "refused");
    let message = document["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("tcp_timestamps is \"1\", and not \"0\""),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_last_is_planned_written_shown_and_put_back() {
    let Some(host) = Host::new("clilast").await else {
        return;
    };
    let [short, long] = ["short.plan", "long.plan"].map(|name| host.place.path(name));
    let [short, long] = [&short, &long].map(|path| path.to_str().unwrap());
    host.done(&["plan", "-o", short]);
    let document = host.document(&["apply", short, "--persist"]);
    assert_eq!(document["exit_code"], 4);
    assert_eq!(document["error"]["code"], "change-plan-unusable");
    let next = document["error"]["next"].as_str().unwrap();
    assert!(next.contains("plan --lasting -o FILE"), "{next}");

    let said = host.done(&["plan", "--lasting", "-o", long]);
    assert!(
        said.contains("--persist` it lasts beyond a restart"),
        "{said}"
    );
    let plan = fs::read_to_string(long).unwrap();
    for line in [
        "# /etc/sysctl.d/90-drover.conf, which is new",
        "# + net.ipv4.tcp_timestamps = 1",
        "[[lasting.files]]",
    ] {
        assert!(plan.lines().any(|found| found == line), "{line}\n{plan}");
    }
    let written = host.place.path("sysctl.d").join("90-drover.conf");
    assert!(!written.exists(), "nothing was changed");

    let said = host.done(&["apply", long, "--persist"]);
    assert!(said.starts_with("applied: 4 settings;"), "{said}");
    let kept = "written, for sysctl.d: /etc/sysctl.d/90-drover.conf\n";
    assert!(said.ends_with(kept), "{said}");
    let text = fs::read_to_string(&written).unwrap();
    assert!(text.contains("net.ipv4.tcp_timestamps = 1\n"), "{text}");
    assert_eq!(host.timestamps(), "1");
    let document = host.document(&["changes"]);
    let id = document["changes"][0]["id"].as_str().unwrap();
    assert_eq!(document["changes"][0]["files"], 1);
    let document = host.document(&["changes", id]);
    let file = &document["change"]["files"][0];
    assert_eq!(file["file"], "/etc/sysctl.d/90-drover.conf");
    assert_eq!(file["state"], "done");
    let said = host.done(&["changes", id]);
    assert!(said.contains("/etc/sysctl.d/90-drover.conf"), "{said}");

    let said = host.done(&["undo"]);
    assert_eq!(said, "undone: 4 settings and 1 file as before\n");
    assert!(!written.exists());
    assert_eq!(host.timestamps(), "0");
}
