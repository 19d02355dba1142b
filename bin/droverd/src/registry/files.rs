//! Files that are whole or not there: written beside, then renamed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use drover_types::in_short;
use serde::de::DeserializeOwned;

use crate::limits;

/// Writes a file whole and durably; readable by root only, as it may hold secrets in arguments.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(beside, path)?;
    sync_directory_of(path)
}

/// Removes a file durably; one that is not there is fine.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_directory_of(path),
    }
}

/// Removes a directory with all in it; one that is not there is fine.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The JSON document of a file, `None` when there is no such file.
///
/// # Errors
/// It cannot be [`read`], or is no such document.
pub fn read_document<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let parsed = read(path)?.map(|text| serde_json::from_str(&text));
    parsed
        .transpose()
        .map_err(|error| io::Error::other(in_short(error)))
}

/// A regular file's text, `None` when there is no such file.
///
/// # Errors
/// It cannot be read, is no UTF-8, no regular file, or larger than [`limits::FILE_BYTES`].
pub fn read(path: &Path) -> io::Result<Option<String>> {
    read_within(path, limits::FILE_BYTES)
}

/// The same of a file of so many bytes at most.
///
/// # Errors
/// As for [`read`].
pub fn read_within(path: &Path, most: u64) -> io::Result<Option<String>> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // Opening a pipe would wait for its other end.
    if !metadata.is_file() {
        return Err(io::Error::other("no regular file"));
    }
    let mut text = String::new();
    File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::other(format!("larger than {most} bytes")));
    }
    Ok(Some(text))
}

/// Has what was done in a directory outlive a loss of power.
pub fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_whole_and_only_for_root() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write_whole(&path, b"one").unwrap();
        write_whole(&path, b"two").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_text_file_of_sensible_size_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(
            read(dir.path())
                .unwrap_err()
                .to_string()
                .contains("no regular file")
        );
        let path = dir.path().join("f");
        assert_eq!(read(&path).unwrap(), None);
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(read(&path).is_err());
        let huge = usize::try_from(limits::FILE_BYTES).unwrap() + 1;
        fs::write(&path, "x".repeat(huge)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("larger"));
    }

    #[test]
    fn removing_what_is_not_there_is_fine() {
        let dir = tempfile::tempdir().unwrap();
        remove(&dir.path().join("f")).unwrap();
        remove_tree(&dir.path().join("d")).unwrap();
    }
}
