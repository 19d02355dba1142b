//! Captured hosts of an emulated machine, as `README.md` here says: real drivers, no hardware.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "helpers of tests, not all used by each of them"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

/// Where they are, from this package's folder.
const FOLDER: &str = "tests/captured";

/// Writes those that were captured now in the place of those that are there.
const WRITE: &str = "DROVER_WRITE_CAPTURED";

/// Its name, and the rules that find something, but for [`COUNTED`].
pub struct Captured {
    pub name: &'static str,
    pub findings: &'static [&'static str],
    /// It is captured where there is a teamd.
    of_teamd: bool,
}

/// It finds links that came and went more than ten times: how often they did follows from the tests that were before on that host.
const COUNTED: &str = "link-flaps";

/// All of them.
pub const HOSTS: [Captured; 4] = [
    Captured {
        name: "several",
        findings: &["link-speed", "numa-balancing", "rdma-pieces"],
        of_teamd: false,
    },
    Captured {
        name: "bonded",
        findings: &["bond-members", "bond-mode", "numa-balancing"],
        of_teamd: false,
    },
    Captured {
        name: "by-hand",
        findings: &["link-speed", "nic-spread", "numa-balancing"],
        of_teamd: false,
    },
    Captured {
        name: "teamed",
        findings: &["bond-mode", "numa-balancing"],
        of_teamd: true,
    },
];

/// A host as `drover doctor capture` wrote it.
pub fn unpacked(below: &Path, name: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let text = fs::read_to_string(file.join(format!("{name}.json"))).unwrap();
    let captured: Value = serde_json::from_str(&text).unwrap();
    let folder = below.join(name);
    let write = |path: &str, text: &str| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for (path, text) in captured["files"].as_object().unwrap() {
        write(path, text.as_str().unwrap());
    }
    write("told.json", &captured["told"].to_string());
    folder
}

/// What the doctor says of hosts in these folders.
pub fn doctor(captured: &[&Path]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.args(["doctor", "--json"]);
    for folder in captured {
        command.arg("--captured").arg(folder);
    }
    let output = command.output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 2)), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The rules that it names below `what`, such as `findings`.
pub fn rules(document: &Value, what: &str) -> BTreeSet<String> {
    let all = document[what].as_array().unwrap().iter();
    all.map(|one| one["rule"].as_str().unwrap().to_owned())
        .collect()
}

/// The rules that find something in a captured host of these.
pub fn found(document: &Value) -> BTreeSet<String> {
    let mut found = rules(document, "findings");
    found.remove(COUNTED);
    found
}

pub fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The same is found of hosts that were captured just now as of those that are kept. They take their places where that is wanted.
pub fn compare(captured: &Path) {
    for Captured {
        name,
        findings,
        of_teamd,
    } in HOSTS
    {
        let folder = captured.join(name);
        if !folder.is_dir() {
            // The test that captures it has said that there is no teamd.
            assert!(of_teamd, "{name} was not captured anew");
            continue;
        }
        let document = doctor(&[&folder]);
        let found = found(&document);
        assert_eq!(found, names(findings), "{name}: {document:#}");
        if std::env::var_os(WRITE).is_some() {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
            let text = packed(&folder);
            fs::write(file.join(format!("{name}.json")), text).unwrap();
        }
    }
}

/// In one file.
fn packed(folder: &Path) -> String {
    let mut files = Map::new();
    pack(folder, "", &mut files);
    let told = fs::read_to_string(folder.join("told.json")).unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    let mut text = Vec::new();
    let format = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut to = serde_json::Serializer::with_formatter(&mut text, format);
    let all = json!({ "files": files, "told": told });
    serde::Serialize::serialize(&all, &mut to).unwrap();
    String::from_utf8(text).unwrap() + "\n"
}

fn pack(folder: &Path, at: &str, files: &mut Map<String, Value>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let place = format!("{at}{name}");
        if path.is_dir() {
            pack(&path, &format!("{place}/"), files);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        // Of the files that nobody read those count that are there for their names.
        let counts = !text.is_empty() || name.starts_with("lower_") || at.ends_with("msi_irqs/");
        if counts && place != "told.json" {
            files.insert(place, text.into());
        }
    }
}
