//! What somebody told libvirt that hosts share (`shared_filesystems`, which newer versions know), whatever file systems that is on. Pure,
//! but for reading that file.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use super::super::limits;

/// Where that is told.
pub const QEMU_CONF: &str = "/etc/libvirt/qemu.conf";

/// Its name there.
pub const SHARED: &str = "shared_filesystems";

/// The folders that somebody named. None where there is no such file. What is no whole path (an empty string, a name, one with `..`)
/// names none: it would stand for all, or for what it is not compared as.
pub fn folders(conf: &Path) -> Vec<PathBuf> {
    let mut text = String::new();
    let file = File::open(conf).map(|file| file.take(limits::CONF_BYTES));
    match file.and_then(|mut file| file.read_to_string(&mut text)) {
        Ok(_) => named(&text),
        Err(_) => Vec::new(),
    }
}

/// As libvirt reads it: strings in quotes of either kind, between brackets, over several lines.
fn named(conf: &str) -> Vec<PathBuf> {
    let lines: Vec<_> = conf.lines().map(without_comment).collect();
    let is_it = |line: &&str| {
        let value = line.trim_start().strip_prefix(SHARED);
        value.is_some_and(|value| value.trim_start().starts_with('='))
    };
    let at = lines.iter().position(is_it);
    let from = at.map(|at| lines[at..].join("\n"));
    let value = from.as_ref().and_then(|from| from.split_once('='));
    let mut named = value.map(|(_, value)| strings(value)).unwrap_or_default();
    named.retain(|folder| is_whole(folder));
    named
}

fn is_whole(folder: &Path) -> bool {
    folder.is_absolute() && !folder.components().any(|part| part == Component::ParentDir)
}

/// What stands behind a `#` that is in no string is none of it.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let end = line.char_indices().find(|(_, char)| {
        match (quote, char) {
            (None, '#') => return true,
            (None, '"' | '\'') => quote = Some(*char),
            (Some(open), _) if open == *char => quote = None,
            _ => {}
        }
        false
    });
    end.map_or(line, |(at, _)| &line[..at])
}

/// Those up to the closing bracket.
fn strings(value: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut rest = value;
    while let Some(at) = rest.find(['"', '\'', ']']) {
        let (open, after) = rest[at..].split_at(1);
        let Some((string, after)) = after.split_once(open).filter(|_| open != "]") else {
            break;
        };
        found.push(PathBuf::from(string));
        rest = after;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(conf: &str) -> Vec<String> {
        let named = named(conf).into_iter();
        named.map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn what_hosts_share_is_read_as_libvirt_reads_it() {
        assert_eq!(of(""), [""; 0]);
        assert_eq!(of("#shared_filesystems = [\n#  \"/images\"\n#]\n"), [""; 0]);
        let one = "user = \"root\"\n shared_filesystems = [ \"/images\" ]\ngroup = \"kvm\"\n";
        assert_eq!(of(one), ["/images"]);
        let several = "shared_filesystems=[\n  \"/a#b\", # not \"/c\"\n  '/d'\n]\nuser = \"/e\"\n";
        assert_eq!(of(several), ["/a#b", "/d"]);
        assert_eq!(of("shared_filesystems_too = [ \"/a\" ]\n"), [""; 0]);
        for broken in [
            "shared_filesystems",
            "shared_filesystems = [ \"/a",
            "shared_filesystems = ]",
        ] {
            assert_eq!(of(broken), [""; 0], "{broken}");
        }
    }

    #[test]
    fn what_is_no_whole_path_names_no_folder() {
        let conf = "shared_filesystems = [ \"\", \"images\", \"./a\", \"/a/../b\", \"/c/./d/\" ]\n";
        assert_eq!(of(conf), ["/c/./d/"]);
    }

    #[test]
    fn a_file_that_is_not_there_names_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("qemu.conf");
        assert!(folders(&conf).is_empty());
        std::fs::write(&conf, "shared_filesystems = [\"/a\"]\n").unwrap();
        assert_eq!(folders(&conf), [PathBuf::from("/a")]);
    }
}
