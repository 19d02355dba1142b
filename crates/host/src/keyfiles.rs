//! Files of NetworkManager's profiles, as they are there.

use std::path::Path;

use drover_tune::lasting::keyfile::{self, Found};

use crate::files;

/// All that has a profile, or may have one.
pub(crate) fn all(root: &Path) -> Vec<Found> {
    let below = keyfile::FOLDERS.into_iter().flat_map(|folder| {
        let all = files::entries(&root.join(&folder[1..])).into_iter();
        all.filter_map(move |path| Some((folder, path.file_name()?.to_str()?.to_owned())))
    });
    let is_one = |(folder, name): &(&str, String)| keyfile::is_keyfile(folder, name);
    let read = |(folder, name)| {
        let path = format!("{folder}/{name}");
        let text = files::read(root, &path[1..]).ok()?;
        Some(Found { path, text })
    };
    below.filter(is_one).filter_map(read).collect()
}

/// The file that NetworkManager goes by in place of a profile's with this text below `/etc`, if there is one: what somebody has changed in
/// its memory alone.
#[must_use]
pub fn shadow(root: &Path, text: &str) -> Option<String> {
    keyfile::shadow(text, &all(root)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_profile_in_run_lies_over_the_one_of_the_same_uuid_in_etc() {
        let root = tempfile::tempdir().unwrap();
        let text = "[connection]\nid=lan\nuuid=0f2c\n";
        let [run, etc, _] = keyfile::FOLDERS;
        for folder in [run, etc] {
            fs::create_dir_all(root.path().join(&folder[1..])).unwrap();
        }
        let write = |path: &str| fs::write(root.path().join(&path[1..]), text).unwrap();
        write(&format!("{etc}/lan.nmconnection"));
        assert_eq!(shadow(root.path(), text), None);
        let over = format!("{run}/lan.nmconnection");
        write(&over);
        assert_eq!(shadow(root.path(), text), Some(over));
    }
}
