//! `scripts/backports-source` against the forms that package sources come in.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder like `/etc/apt`, gone at the end.
struct EtcApt(PathBuf);

impl EtcApt {
    fn with(name: &str, file: &str, text: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("drover-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("sources.list.d")).unwrap();
        fs::write(folder.join(file), text).unwrap();
        Self(folder)
    }

    /// What the script prints; `None` where it finds no entry.
    fn derived(&self) -> Option<String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/backports-source");
        let output = Command::new(script)
            .arg("bookworm")
            .arg(&self.0)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        match output.status.code() {
            Some(0) => Some(text),
            Some(3) if text.is_empty() => None,
            other => panic!(
                "exit {other:?}: {text}{}",
                String::from_utf8_lossy(&output.stderr)
            ),
        }
    }
}

impl Drop for EtcApt {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_paragraph_keeps_its_server_key_and_options() {
    let text = "\
# a comment
Types: deb deb-src
URIs: http://a.example/debian
Suites: bookworm-security
Components: main

Types: deb deb-src
URIs: http://b.example/debian http://c.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Check-Valid-Until: no
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
";
    let derived = EtcApt::with("deb822", "sources.list.d/debian.sources", text).derived();
    let expected = "\
format: deb822
Types: deb
Suites: bookworm-backports
Components: main
URIs: http://b.example/debian http://c.example/debian
Check-Valid-Until: no
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
";
    assert_eq!(derived.as_deref(), Some(expected));
}

#[test]
fn a_line_keeps_its_server_and_options() {
    let text = "\
deb-src http://a.example/debian bookworm main
deb http://a.example/debian bookworm-updates main
deb [arch=amd64 signed-by=/k.gpg] http://b.example/debian/ bookworm contrib main # comment
";
    let derived = EtcApt::with("list", "sources.list", text).derived();
    let expected = "format: list\ndeb [arch=amd64 signed-by=/k.gpg] http://b.example/debian/ bookworm-backports main\n";
    assert_eq!(derived.as_deref(), Some(expected));
}

#[test]
fn a_mirror_list_is_a_server_like_any_other() {
    let text = "Types: deb\nURIs: mirror+file:///etc/apt/mirrors/debian.list\nSuites: bookworm\nComponents: main\n";
    let derived = EtcApt::with("mirror", "sources.list.d/debian.sources", text).derived();
    assert!(
        derived
            .unwrap()
            .contains("URIs: mirror+file:///etc/apt/mirrors/debian.list\n")
    );
}

#[test]
fn nothing_is_derived_from_entries_of_another_release_or_disabled_ones() {
    let text = "\
Types: deb
URIs: http://a.example/debian
Suites: trixie
Components: main

Enabled: no
Types: deb
URIs: http://a.example/debian
Suites: bookworm
Components: main
";
    assert_eq!(
        EtcApt::with("other", "sources.list.d/debian.sources", text).derived(),
        None
    );
}
