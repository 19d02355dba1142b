//! The libraries that are in the programs, and the texts that their licences ask to be given along.
//!
//! Reads what cargo has fetched; asks nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{steps, tree};

/// What is shipped.
const PROGRAMS: [&str; 3] = ["drover", "droverd", "drover-probe"];

/// How files with licences and notices begin, in capitals.
const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];

/// A library of somebody else.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Library {
    /// Its name and version.
    title: String,
    licence: String,
    /// Where its sources are.
    folder: PathBuf,
}

/// Writes the list and the texts to a file.
///
/// # Errors
/// cargo does not tell, or a file cannot be read or written.
pub fn write(to: &Path) -> Result<()> {
    let libraries = libraries(&metadata()?);
    if libraries.is_empty() {
        bail!("cargo metadata names no library of {}", PROGRAMS.join(", "));
    }
    let text = document(&libraries)?;
    fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))
}

fn metadata() -> Result<Value> {
    let output = Command::new(steps::cargo())
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(tree::root())
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("cargo metadata failed: {}", said.trim());
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")
}

/// Of others, and reached from the programs by dependencies that are neither for tests nor for builds.
fn libraries(metadata: &Value) -> BTreeSet<Library> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<_, _> = list(&metadata["packages"])
        .into_iter()
        .map(|package| (text(&package["id"]), package))
        .collect();
    let nodes: BTreeMap<_, _> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| (text(&node["id"]), list(&node["deps"])))
        .collect();
    let is_program = |package: &Value| PROGRAMS.contains(&text(&package["name"]).as_str());
    let programs = packages.iter().filter(|(_, package)| is_program(package));
    let mut ahead: Vec<String> = programs.map(|(id, _)| id.clone()).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = ahead.pop() {
        let needed = nodes.get(&id).into_iter().flatten();
        let linked = needed.filter(|needed| {
            let kinds = list(&needed["dep_kinds"]);
            kinds.iter().any(|kind| kind["kind"].is_null())
        });
        let linked: Vec<_> = linked.map(|needed| text(&needed["pkg"])).collect();
        if seen.insert(id) {
            ahead.extend(linked);
        }
    }
    let others = packages
        .iter()
        .filter(|(id, package)| seen.contains(*id) && package["source"].is_string());
    let library = |package: &Value| Library {
        title: format!("{} {}", text(&package["name"]), text(&package["version"])),
        licence: text(&package["license"]),
        folder: Path::new(&text(&package["manifest_path"]))
            .parent()
            .map(Path::to_path_buf)
            .unwrap_or_default(),
    };
    others.map(|(_, package)| library(package)).collect()
}

fn document(libraries: &BTreeSet<Library>) -> Result<String> {
    let mut texts: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let mut document = "Libraries in the programs of Drover, beside the standard library of Rust \
        (MIT OR Apache-2.0), with their licences. The texts follow.\n\n"
        .to_owned();
    for library in libraries {
        let mut files = Vec::new();
        find(&library.folder, &mut files)?;
        let none = if files.is_empty() {
            ", whose sources have no text of it"
        } else {
            ""
        };
        writeln!(document, "{}: {}{none}", library.title, library.licence)?;
        for file in files {
            let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
            let text = String::from_utf8_lossy(&bytes).trim().replace('\r', "");
            texts.entry(text).or_default().insert(&library.title);
        }
    }
    // In the order of the libraries, whatever the texts begin with.
    let mut texts: Vec<_> = texts.iter().map(|(text, of)| (of, text)).collect();
    texts.sort();
    for (of, text) in texts {
        let of: Vec<_> = of.iter().copied().collect();
        let of = of.join(",\n     ");
        write!(document, "\n==== {of}\n\n{text}\n")?;
    }
    Ok(document)
}

/// Files with licences and notices, also of what a library has of others.
fn find(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()));
    let mut entries = entries?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            find(&entry.path(), found)?;
        } else if kind.is_file() && is_notice(&entry.file_name().to_string_lossy()) {
            found.push(entry.path());
        }
    }
    Ok(())
}

fn is_notice(name: &str) -> bool {
    let capitals = name.to_uppercase();
    let is_source = [".rs", ".c", ".h", ".go", ".py"]
        .iter()
        .any(|end| name.ends_with(end));
    !is_source && NAMES.iter().any(|begin| capitals.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn libraries_are_those_of_others_that_programs_are_linked_with() {
        let package = |name: &str, source: Option<&str>| {
            json!({
                "id": name, "name": name, "version": "1.0.0", "license": "MIT", "source": source,
                "manifest_path": format!("/r/{name}/Cargo.toml"),
            })
        };
        let needs =
            |name: &str, kind: Option<&str>| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let others = Some("registry");
        let metadata = json!({
            "packages": [
                package("drover", None), package("drover-types", None), package("xtask", None),
                package("serde", others), package("itoa", others), package("insta", others),
                package("cc", others), package("tokio", others),
            ],
            "resolve": {"nodes": [
                {"id": "drover", "deps": [
                    needs("drover-types", None), needs("insta", Some("dev")), needs("cc", Some("build")),
                ]},
                {"id": "drover-types", "deps": [needs("serde", None)]},
                {"id": "serde", "deps": [needs("itoa", None)]},
                {"id": "xtask", "deps": [needs("tokio", None)]},
            ]},
        });
        let found = libraries(&metadata);
        let titles: Vec<_> = found.iter().map(|one| one.title.as_str()).collect();
        assert_eq!(titles, ["itoa 1.0.0", "serde 1.0.0"]);
    }

    #[test]
    fn a_text_stands_once_with_all_whose_it_is_and_one_that_is_missing_is_said_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for name in ["a", "b/inside", "c"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        fs::write(folder.join("a/LICENSE-MIT"), "the text\n").unwrap();
        fs::write(folder.join("b/inside/license.txt"), "the text").unwrap();
        fs::write(folder.join("c/license.rs"), "fn main() {}").unwrap();
        let library = |name: &str| Library {
            title: format!("{name} 1"),
            licence: "MIT".to_owned(),
            folder: folder.join(name),
        };
        let text = document(&BTreeSet::from(["a", "b", "c"].map(library))).unwrap();
        let (list, texts) = text
            .split_once("\n\n")
            .unwrap()
            .1
            .split_once("\n\n")
            .unwrap();
        assert_eq!(
            list,
            "a 1: MIT\nb 1: MIT\nc 1: MIT, whose sources have no text of it"
        );
        assert_eq!(texts, "==== a 1,\n     b 1\n\nthe text\n");
    }
}
