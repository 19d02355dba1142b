//! The directory of definitions, read anew each time: an operator may change it at any moment.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use drover_api::VmDefinition;
use drover_types::{VmName, in_short};

use super::files;
use crate::config;
use crate::limits;

/// A definition file, or why it cannot be used.
pub type Entry = Result<VmDefinition, String>;

/// Where a guest's definition is.
pub fn path_of(directory: &Path, name: &VmName) -> PathBuf {
    directory.join(format!("{name}.toml"))
}

/// Every definition by its file's name without `.toml`, the unusable ones with their error.
///
/// # Errors
/// The directory cannot be read.
pub fn list(directory: &Path) -> io::Result<BTreeMap<String, Entry>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let stem = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if found.len() >= limits::DEFINITIONS {
            return Err(io::Error::other(format!(
                "{} has more than {} definitions",
                directory.display(),
                limits::DEFINITIONS
            )));
        }
        // A file that vanished since is no longer defined.
        if let Some(entry) = load(&path, &stem) {
            found.insert(stem, entry);
        }
    }
    Ok(found)
}

/// One definition; `None` when there is no file.
pub fn get(directory: &Path, name: &VmName) -> Option<Entry> {
    load(&path_of(directory, name), name.as_str())
}

/// A running guest's definition with what is wished for it now: its file's word, or what it was started with where
/// that cannot be read.
pub fn as_wished(directory: &Path, started_from: VmDefinition) -> VmDefinition {
    match get(directory, &started_from.name) {
        Some(Ok(file)) => started_from.with_wishes_of(&file),
        _ => started_from,
    }
}

fn load(path: &Path, stem: &str) -> Option<Entry> {
    let entry = match files::read(path) {
        Ok(None) => return None,
        Ok(Some(text)) => parse(&text, stem),
        Err(error) => Err(error.to_string()),
    };
    Some(entry.map_err(|problem| format!("{}: {problem}", path.display())))
}

fn parse(text: &str, stem: &str) -> Entry {
    let _: VmName = stem
        .parse()
        .map_err(|error| format!("the file's {error}"))?;
    let definition: VmDefinition = toml::from_str(text).map_err(|error| {
        let place = error.span().map(|span| config::locate(text, span.start));
        let message = in_short(error.message().replace('\n', " "));
        match place {
            Some((line, Some(key))) => format!("line {line}, key `{key}`: {message}"),
            Some((line, None)) => format!("line {line}: {message}"),
            None => message,
        }
    })?;
    if definition.name.as_str() != stem {
        return Err(format!(
            "key `name`: {:?} is not the file's name: write name = {stem:?}, or rename the file \
             to {}.toml",
            definition.name.as_str(),
            definition.name
        ));
    }
    definition.check().map_err(|error| error.to_string())?;
    Ok(definition)
}

/// A definition as the text of its file.
///
/// # Errors
/// Never for a definition that passed its check.
pub fn render(definition: &VmDefinition, remark: &str) -> Result<String, toml::ser::Error> {
    Ok(format!("# {remark}\n{}", toml::to_string(definition)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    #[test]
    fn the_shipped_example_is_usable_and_names_every_key() {
        let example = include_str!("../../../../packaging/vm.toml");
        let directory = directory(&[("vm.toml", example)]);
        let found = list(directory.path()).unwrap();
        let definition = found["vm"].clone().unwrap();
        for key in ["name", "memory", "vcpus", "qemu", "machine", "args"] {
            assert!(example.contains(&format!("\n{key} = ")), "{key}");
        }
        let policy = serde_json::to_value(&definition.policy).unwrap();
        for key in policy.as_object().unwrap().keys() {
            assert!(example.contains(&format!("\n{key} = ")), "policy.{key}");
        }
        assert!(example.contains("\nstop_within_seconds = "));
        assert_eq!(definition.policy, drover_plan::policy::VmPolicy::default());
        assert_eq!(definition.qemu.to_str(), Some(drover_api::DEFAULT_QEMU));
    }

    #[test]
    fn a_bad_file_is_shown_with_its_error_and_the_others_work() {
        let directory = directory(&[
            ("good.toml", "name = \"good\"\nmemory = \"1GiB\""),
            ("bad.toml", "name = \"bad\"\nmemory = \"1GiB\"\n\ncpus = 2"),
            ("copy.toml", "name = \"good\"\nmemory = \"1GiB\""),
            ("zero.toml", "name = \"zero\"\nmemory = 0"),
            (
                "keep.toml",
                "name = \"keep\"\nmemory = \"1GiB\"\n[policy]\npinned.hots = [\"a\"]",
            ),
            ("not a name.toml", "name = \"x\"\nmemory = \"1GiB\""),
            ("README", "hello"),
        ]);
        std::fs::create_dir(directory.path().join("dir.toml")).unwrap();
        let found = list(directory.path()).unwrap();
        assert!(found["good"].is_ok());
        let problem = |name: &str| found[name].clone().unwrap_err();
        assert!(problem("bad").contains("bad.toml: line 4, key `cpus`: unknown field"));
        assert!(problem("copy").contains("write name = \"copy\", or rename the file to good.toml"));
        assert!(problem("zero").contains("key `memory`"));
        assert!(
            problem("keep").contains("line 4, key `policy.pinned.hots`: unknown field `hots`"),
            "{}",
            problem("keep")
        );
        assert!(problem("not a name").contains("not usable"));
        assert!(problem("dir").contains("no regular file"));
        assert_eq!(found.len(), 7);
    }

    #[test]
    fn a_rendered_definition_is_read_back_the_same() {
        let text = "name = \"a\"\nmemory = \"1GiB\"\nmachine = \"pc-q35-10.0\"\nargs = [\"-x\"]\n\
                    [policy]\npinned.hosts = [\"a\"]\napart = [{ group = \"dns\" }]";
        let definition = parse(text, "a").unwrap();
        let rendered = render(&definition, "arrived").unwrap();
        assert_eq!(parse(&rendered, "a"), Ok(definition));
    }
}
