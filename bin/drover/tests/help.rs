//! Help, completions and manual pages, as they are committed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

use std::process::{Command, Output};

use drover_api::ErrorCode;

fn drover(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    // The width of no terminal, and nothing of the caller's.
    command
        .args(arguments)
        .env_clear()
        .env("COLUMNS", "100")
        .env("NO_COLOR", "1");
    command.output().unwrap()
}

fn help(arguments: &[&str]) -> String {
    let output = drover(arguments);
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_help_is_as_committed_and_begins_with_examples() {
    let commands: [&[&str]; 54] = [
        &[],
        &["vm"],
        &["vm", "list"],
        &["vm", "show"],
        &["vm", "start"],
        &["vm", "suspend"],
        &["vm", "stop"],
        &["migrate"],
        &["storage"],
        &["storage", "move"],
        &["storage", "status"],
        &["storage", "cancel"],
        &["status"],
        &["inventory"],
        &["top"],
        &["history"],
        &["limit"],
        &["cancel"],
        &["resolve"],
        &["host"],
        &["checkpoints"],
        &["doctor"],
        &["doctor", "capture"],
        &["doctor", "plan"],
        &["doctor", "apply"],
        &["doctor", "undo"],
        &["doctor", "forget"],
        &["doctor", "changes"],
        &["doctor", "rules"],
        &["nic"],
        &["nic", "list"],
        &["nic", "show"],
        &["nic", "set"],
        &["cordon"],
        &["uncordon"],
        &["drain"],
        &["resume"],
        &["maintenance"],
        &["rebalance"],
        &["run"],
        &["plan"],
        &["plan", "drain"],
        &["cluster"],
        &["cluster", "token"],
        &["cluster", "join"],
        &["cluster", "leave"],
        &["cluster", "coordinator"],
        &["cluster", "remove"],
        &["cluster", "operator"],
        &["recent"],
        &["recent", "name"],
        &["recent", "prune"],
        &["completions"],
        &["lab"],
    ];
    for command in commands {
        let arguments: Vec<_> = command.iter().copied().chain(["--help"]).collect();
        let text = help(&arguments);
        let name = [&["drover"], command].concat().join("_");
        assert_eq!(text.lines().nth(2), Some("Examples:"), "{name}:\n{text}");
        insta::assert_snapshot!(name, text);
    }
    // Their options are still growing: only the beginning is held.
    for command in [
        "up", "down", "migrate", "verify", "demo", "harm", "heal", "compare", "faults", "soak",
        "drain", "rounds",
    ] {
        let text = help(&["lab", command, "--help"]);
        assert_eq!(text.lines().nth(2), Some("Examples:"), "{text}");
    }
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = help(&["completions", shell]);
        assert!(script.contains("downtime-limit"), "{shell}");
    }
}

#[test]
fn a_manual_page_is_written_for_every_command() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("man1");
    help(&["man", path.to_str().unwrap()]);
    for page in [
        "drover.1",
        "drover-vm-stop.1",
        "drover-migrate.1",
        "drover-lab-compare.1",
    ] {
        let text = std::fs::read_to_string(path.join(page)).unwrap();
        assert!(text.contains("Examples:"), "{page}:\n{text}");
    }
}

#[test]
fn wrong_usage_is_exit_code_2_and_tells_how() {
    for arguments in [
        &["migrate", "web"][..],
        &["vm", "start", "../etc"],
        &["vm", "stop"],
        &["no"],
    ] {
        let output = drover(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("--help"), "{stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_screen_without_a_terminal_is_refused_before_any_agent_is_asked() {
    for arguments in [&["top"][..], &["top", "--json"]] {
        let output = drover(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("drover top needs a terminal"), "{said}");
        assert!(said.contains("`drover status --json`"), "{said}");
    }
}

#[test]
fn the_documented_codes_are_those_of_the_agent() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/CLI.md");
    let page = std::fs::read_to_string(path).unwrap();
    let list = page.split_once("<!-- codes: begin -->\n").unwrap().1;
    let list = list.split_once("<!-- codes: end -->").unwrap().0;
    let mut expected = String::new();
    let exit_of = |code: &ErrorCode| match code {
        ErrorCode::OutcomeUnknown => 7,
        code if code.is_preflight() => 4,
        _ => 1,
    };
    for exit in [4, 1, 7] {
        let codes = ErrorCode::ALL.iter().filter(|code| exit_of(code) == exit);
        let codes: Vec<_> = codes.map(|code| format!("`{code}`")).collect();
        expected += &format!("- {exit}: {}\n", codes.join(", "));
    }
    assert_eq!(list, expected, "write this list into docs/CLI.md");
}
