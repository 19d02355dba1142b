//! Since which start of the host it runs.

use std::path::Path;

use crate::error::HostError;
use crate::files;

/// The file that has it, by its path from the root.
pub const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";

/// Another one after each start of the host. Source: `Documentation/admin-guide/sysctl/kernel.rst`, `random`.
///
/// # Errors
/// [`HostError::Read`]
pub fn boot_id(root: &Path) -> Result<String, HostError> {
    let text = files::read(root, BOOT_ID)?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_until_the_next_start_and_one_word() {
        let read = || boot_id(Path::new("/")).unwrap();
        assert_eq!(read(), read());
        assert_eq!(read().split_whitespace().count(), 1);
        let error = boot_id(Path::new("/nonexistent")).unwrap_err();
        assert!(error.to_string().contains("boot_id"), "{error}");
    }
}
