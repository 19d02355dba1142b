//! Text that people wrote, for documents to quote from: this machine's documentation.

use std::path::Path;

use super::files::candidates;
use crate::limits;

/// Collects up to [`limits::PROSE`] bytes; the same on the same machine. May be empty.
#[must_use]
pub fn collect() -> Vec<u8> {
    let is_text = |path: &Path| {
        let kind = path.extension().and_then(|kind| kind.to_str());
        kind.is_none_or(|kind| matches!(kind, "txt" | "md" | "rst" | "Debian"))
    };
    let mut prose = Vec::new();
    for file in candidates(&["/usr/share/doc"], &mut Default::default(), is_text) {
        let text = std::fs::read_to_string(&file.path).unwrap_or_default();
        let room = limits::PROSE - prose.len();
        if room == 0 {
            break;
        }
        let taken = text.len().min(room).min(limits::PROSE_FILE);
        prose.extend_from_slice(&text.as_bytes()[..taken]);
    }
    prose
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_stays_within_its_bound_and_is_the_same_again() {
        let prose = collect();
        assert!(prose.len() <= limits::PROSE);
        assert_eq!(prose, collect());
    }
}
