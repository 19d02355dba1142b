//! What the package's scripts know of this host: they go by names and arguments of processes.

use std::process::Command;

/// What a function of theirs prints, as words.
pub fn told_by(function: &str) -> Vec<String> {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/debian/guests.sh"
    );
    let output = Command::new("sh")
        .arg("-c")
        .arg(format!(". {file}; {function}"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}
