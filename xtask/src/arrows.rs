//! Which crate may depend on which. A crate exists only to forbid a dependency, so this table is
//! the architecture; an arrow that it does not list fails the check.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::report::Report;

/// What a crate is, which decides what it may use from outside this repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No clock, no I/O, no global, no async: only [`PURE_MAY_USE`].
    Pure,
    /// Touches sockets, processes, files: anything.
    Io,
}

/// crate, kind, and the crates of this repository it may depend on.
pub const TABLE: &[(&str, Kind, &[&str])] = &[
    ("types", Kind::Pure, &[]),
    ("wire", Kind::Pure, &["types"]),
    ("qstream", Kind::Pure, &[]),
    ("reduce", Kind::Pure, &[]),
    ("pagestore", Kind::Io, &[]),
    ("session", Kind::Pure, &["types", "wire"]),
    ("migrate", Kind::Pure, &["types"]),
    ("plan", Kind::Pure, &["types", "migrate"]),
    ("execute", Kind::Pure, &["types", "plan"]),
    ("sim", Kind::Pure, &["types", "wire", "session", "migrate"]),
    ("lanes", Kind::Io, &["types"]),
    ("reach", Kind::Io, &["types", "wire", "lanes"]),
    // Its tests hold what `qstream` finds against real QEMUs.
    ("hypervisor", Kind::Io, &["types", "qstream"]),
    ("libvirt", Kind::Io, &["types"]),
    ("tune", Kind::Pure, &["types"]),
    ("host", Kind::Io, &["types", "tune"]),
    ("change", Kind::Io, &["types", "tune"]),
    ("trust", Kind::Io, &["types"]),
    ("store", Kind::Io, &["types"]),
    ("api", Kind::Io, &["types", "trust", "plan", "tune"]),
    (
        "relay",
        Kind::Io,
        &[
            "types",
            "wire",
            "qstream",
            "reduce",
            "pagestore",
            "session",
            "lanes",
        ],
    ),
    ("carrier", Kind::Io, &["types", "wire", "host", "relay"]),
    (
        "lab",
        Kind::Io,
        &[
            "types",
            "plan",
            "api",
            "hypervisor",
            "host",
            "relay",
            "carrier",
            "probe",
        ],
    ),
    (
        "drover",
        Kind::Io,
        &["types", "trust", "plan", "tune", "host", "api", "lab"],
    ),
    (
        "droverd",
        Kind::Io,
        &[
            "types",
            "wire",
            "migrate",
            "plan",
            "execute",
            "store",
            "pagestore",
            "relay",
            "carrier",
            "hypervisor",
            "libvirt",
            "tune",
            "host",
            "change",
            "reach",
            "api",
            "trust",
        ],
    ),
    ("probe", Kind::Io, &[]),
    ("corpus", Kind::Io, &[]),
    ("xtask", Kind::Io, &[]),
];

/// Values only: none of these reads a clock, opens a file or starts a thread by itself.
pub const PURE_MAY_USE: &[&str] = &[
    "crc-fast",
    "lz4_flex",
    "roxmltree",
    "serde",
    "sha2",
    "thiserror",
    "twox-hash",
    "uuid",
    "zstd-safe",
];

/// Crates made for tests: any crate's tests may use them, whatever the table says.
const FOR_TESTS: &[&str] = &["sim", "lab", "corpus"];

/// Compares `cargo metadata` with the table.
pub fn check(root: &Path, report: &mut Report) -> Result<()> {
    let metadata = metadata(root)?;
    for package in metadata["packages"].as_array().into_iter().flatten() {
        check_package(package, report);
    }
    Ok(())
}

fn metadata(root: &Path) -> Result<Value> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!(
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")
}

/// `drover-wire` is called `wire` here; the two binaries keep their names.
fn short(name: &str) -> &str {
    name.strip_prefix("drover-").unwrap_or(name)
}

fn check_package(package: &Value, report: &mut Report) {
    let name = short(package["name"].as_str().unwrap_or_default());
    let Some((_, kind, allowed)) = TABLE.iter().find(|(known, ..)| *known == name) else {
        report.error(format!(
            "crate {name} is not in the table of xtask/src/arrows.rs: add it with the crates it may use"
        ));
        return;
    };
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let target = dependency["name"].as_str().unwrap_or_default();
        let for_tests = dependency["kind"].as_str() == Some("dev");
        let ours = dependency["path"].is_string();
        if ours && !allowed.contains(&short(target)) {
            if !(for_tests && (FOR_TESTS.contains(&short(target)) || short(target) == name)) {
                report.error(format!(
                    "crate {name} may not depend on {}: allowed are {allowed:?} (xtask/src/arrows.rs)",
                    short(target)
                ));
            }
        } else if !ours && !for_tests && *kind == Kind::Pure && !PURE_MAY_USE.contains(&target) {
            report.error(format!(
                "pure crate {name} may not depend on {target}: allowed are {PURE_MAY_USE:?}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors_of(name: &str, dependencies: &Value) -> Vec<String> {
        let mut report = Report::default();
        check_package(
            &json!({"name": name, "dependencies": dependencies}),
            &mut report,
        );
        report.errors().to_vec()
    }

    #[test]
    fn an_arrow_that_the_table_does_not_list_is_an_error() {
        let arrow = json!([{"name": "drover-lanes", "path": "/x", "kind": null}]);
        assert_eq!(errors_of("drover-session", &arrow).len(), 1);
        assert_eq!(errors_of("drover-relay", &arrow), Vec::<String>::new());
    }

    #[test]
    fn a_pure_crate_cannot_use_an_async_runtime_but_its_tests_can_use_any_crate() {
        let normal = json!([{"name": "tokio", "kind": null}]);
        assert_eq!(errors_of("drover-session", &normal).len(), 1);
        let in_tests = json!([{"name": "proptest", "kind": "dev"}]);
        assert_eq!(errors_of("drover-session", &in_tests), Vec::<String>::new());
    }

    #[test]
    fn a_crate_that_is_not_in_the_table_is_an_error() {
        assert_eq!(errors_of("drover-surprise", &json!([])).len(), 1);
    }

    #[test]
    fn pure_crates_depend_on_pure_crates_only() {
        for (name, kind, allowed) in TABLE {
            for target in *allowed {
                let entry = TABLE.iter().find(|(known, ..)| known == target);
                let (_, target_kind, _) = entry.unwrap_or_else(|| panic!("{target} is not listed"));
                assert!(
                    *kind == Kind::Io || *target_kind == Kind::Pure,
                    "{name} -> {target}"
                );
            }
        }
    }
}
