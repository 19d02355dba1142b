use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;

fn host() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("etc")).unwrap();
    root
}

/// A rewrite of what is there.
fn rewrite(root: &Path, path: &str, after: &str) -> Rewrite {
    let there = place(root, path).unwrap();
    Rewrite {
        by: "somebody".into(),
        path: path.into(),
        mode: there.mode,
        uid: there.uid,
        gid: there.gid,
        folders: there.folders,
        before: there.text,
        after: after.into(),
    }
}

/// All files and folders below a folder.
fn all(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        found.push(path.display().to_string());
        if path.is_dir() {
            found.extend(all(&path));
        }
    }
    found.sort();
    found
}

#[test]
fn a_file_is_replaced_and_put_back_with_its_bytes_mode_owner_and_attributes() {
    let host = host();
    let (root, path) = (host.path(), "/etc/a.conf");
    let there = root.join("etc/a.conf");
    fs::write(&there, "x = 0\n").unwrap();
    fs::set_permissions(&there, fs::Permissions::from_mode(0o640)).unwrap();
    let is_root = geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(&there, Some(7), Some(8)).unwrap();
    }
    let noted = File::open(&there).unwrap();
    let has_notes = unix::fsetxattr(&noted, "user.note", b"n", XattrFlags::empty()).is_ok();
    let before = place(root, path).unwrap();
    let file = rewrite(root, path, "x = 1\n");
    for (to, text) in [(End::After, "x = 1\n"), (End::Before, "x = 0\n")] {
        put(root, &file, to).unwrap();
        assert_eq!(fs::read_to_string(&there).unwrap(), text);
        let about = fs::metadata(&there).unwrap();
        assert_eq!(about.mode() & 0o7777, 0o640);
        assert!(!is_root || (about.uid(), about.gid()) == (7, 8));
        let mut note = [0_u8; 4];
        let read = unix::fgetxattr(File::open(&there).unwrap(), "user.note", &mut note[..]);
        assert_eq!(read.is_ok(), has_notes);
        assert_eq!(all(root).len(), 2, "nothing is beside it");
    }
    assert_eq!(place(root, path).unwrap(), before);
    // What is as before is not replaced by a copy.
    let inode = fs::metadata(&there).unwrap().ino();
    put(root, &file, End::Before).unwrap();
    assert_eq!(fs::metadata(&there).unwrap().ino(), inode);
}

#[test]
fn a_file_that_is_new_goes_with_the_folders_that_were_made_for_it_and_with_no_others() {
    let host = host();
    let (root, path) = (host.path(), "/etc/n/m/a.conf");
    let file = rewrite(root, path, "x\n");
    assert_eq!(file.folders, ["/etc/n", "/etc/n/m"]);
    // As one leaves it that dies before the file has its name.
    fs::create_dir(root.join("etc/n")).unwrap();
    put(root, &file, End::Before).unwrap();
    assert_eq!(all(root).len(), 1);
    put(root, &file, End::After).unwrap();
    assert!(file.is_after(&place(root, path).unwrap()));
    let mode = |path: &str| fs::metadata(root.join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("etc/n/m"), mode("etc/n/m/a.conf")), (0o755, 0o644));
    let theirs = root.join("etc/n/theirs");
    fs::write(&theirs, "y").unwrap();
    put(root, &file, End::Before).unwrap();
    assert_eq!(all(root).len(), 3, "{:?}", all(root));
    fs::remove_file(theirs).unwrap();
    put(root, &file, End::Before).unwrap();
    assert_eq!(all(root).len(), 1);
}

#[test]
fn what_a_process_left_beside_a_file_does_not_stay() {
    let host = host();
    let (root, path) = (host.path(), "/etc/a.conf");
    let left = root.join("etc/.a.conf.drover");
    let file = rewrite(root, path, "x\n");
    for to in [Some(End::After), Some(End::Before), None] {
        fs::write(&left, "half").unwrap();
        match to {
            Some(to) => put(root, &file, to).unwrap(),
            None => tidy(root, path).unwrap(),
        }
        assert!(!left.exists(), "{to:?}");
    }
    fs::create_dir(&left).unwrap();
    let error = put(root, &file, End::After).unwrap_err();
    assert_eq!(error.to_string(), "cannot remove /etc/a.conf");
    assert!(!root.join("etc/a.conf").exists());
}

#[test]
fn links_folders_second_names_pipes_and_what_is_no_text_are_refused() {
    let host = host();
    let root = host.path();
    let etc = |name: &str| root.join("etc").join(name);
    fs::write(etc("a"), "x").unwrap();
    symlink("a", etc("link")).unwrap();
    fs::create_dir(etc("folder")).unwrap();
    symlink("folder", etc("by")).unwrap();
    fs::write(etc("one"), "x").unwrap();
    fs::hard_link(etc("one"), etc("two")).unwrap();
    fs::write(etc("bytes"), b"\xff").unwrap();
    fs::write(etc("long"), "x".repeat(64 * 1024 + 1)).unwrap();
    unix::mkfifoat(unix::CWD, etc("pipe"), Mode::RWXU).unwrap();
    for (path, says) in [
        ("/etc/link", "is a link"),
        ("/etc/by/a", "is a link"),
        ("/etc/a/b", "is a link"),
        ("/etc/folder", "is no file"),
        ("/etc/one", "is no file of one name"),
        ("/etc/pipe", "is no file"),
        ("/etc/bytes", "is no text"),
        ("/etc/long", "is no text"),
        ("/etc/../a", "is no path"),
        ("/etc//a", "is no path"),
        ("etc/a", "is no path"),
        ("/", "is no path"),
    ] {
        let error = place(root, path).unwrap_err().to_string();
        assert!(error.contains(says), "{path}: {error}");
    }
    // What is written first has more in its name.
    let named = |length: usize| place(root, &format!("/etc/{}", "n".repeat(length)));
    assert_eq!(named(247).unwrap().text, None);
    let error = named(248).unwrap_err().to_string();
    assert!(error.contains("has too long a name"), "{error}");
    // Nor is one written.
    let target = rewrite(root, "/etc/a", "y");
    let path = "/etc/link".to_owned();
    let link = Rewrite { path, ..target };
    assert!(put(root, &link, End::After).is_err());
    assert_eq!(fs::read_to_string(etc("a")).unwrap(), "x");
}
