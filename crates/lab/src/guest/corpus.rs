//! Real file contents for the guest's memory: pieces of this machine's programs, libraries and
//! documentation. Nothing from places where secrets are kept.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::contents::list;
use crate::limits;

/// Where it comes from, with the share of each in percent.
const PLACES: [(&str, usize); 4] = [
    ("/usr/bin", 35),
    ("/usr/lib/x86_64-linux-gnu", 35),
    ("/usr/share/doc", 15),
    ("/usr/lib/python3", 15),
];

/// Folders below a place that are looked into.
const DEPTH: usize = 3;

/// Files of one place that are considered.
const FILES: usize = 4000;

/// Collects up to [`limits::CORPUS`] bytes; the same on the same machine. May be empty.
#[must_use]
pub fn collect() -> Vec<u8> {
    let mut corpus = Vec::with_capacity(limits::CORPUS);
    for (place, percent) in PLACES {
        take_from(
            Path::new(place),
            limits::CORPUS / 100 * percent,
            &mut corpus,
        );
    }
    corpus
}

/// Takes the beginnings of files that are spread evenly over all of a place's.
fn take_from(place: &Path, budget: usize, corpus: &mut Vec<u8>) {
    let mut files = Vec::new();
    list(place, DEPTH, FILES, &mut files);
    files.sort();
    let wanted = (budget / limits::CORPUS_FILE).max(1);
    let step = (files.len() / wanted / 2).max(1);
    let end = corpus.len() + budget;
    for file in files.iter().step_by(step) {
        let room = end.saturating_sub(corpus.len()).min(limits::CORPUS_FILE);
        if room == 0 {
            return;
        }
        if let Ok(file) = File::open(file) {
            // What cannot be read is left out; there are others.
            let _ = file.take(room as u64).read_to_end(corpus);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_stays_within_its_bound_and_is_the_same_again() {
        let corpus = collect();
        assert!(corpus.len() <= limits::CORPUS);
        assert_eq!(corpus, collect());
    }

    #[test]
    fn a_place_that_is_not_there_gives_nothing() {
        let mut corpus = Vec::new();
        take_from(Path::new("/no/such/place"), 1000, &mut corpus);
        assert!(corpus.is_empty());
    }
}
