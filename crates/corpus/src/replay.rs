//! One decoder against one folder of documents.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::limits::{CHANGES, GROWN_BYTES, KEPT, MEMORY_BYTES, READING, REFUSAL_BYTES};

/// Fewest documents: with fewer, changes do not lead far.
const FEWEST: usize = 4;

/// A document and its name, which begins with `ok-` or `bad-`.
pub type Document = (String, Vec<u8>);

/// How a document is changed, by another one.
type Change = fn(&mut Dice, &[u8], &[u8]) -> Vec<u8>;

/// Reads every document of `folder`, and changes of them, by `read`: whether it took it, or in what
/// words it was refused.
///
/// # Panics
/// When a document whose name begins with `ok-` is refused or one with `bad-` is taken, and when
/// `read` panics, takes long, uses much memory, or refuses without a word that can be read.
pub fn replay(folder: impl AsRef<Path>, read: impl Fn(&[u8]) -> Result<(), String>) {
    let documents = documents(folder);
    replayed(documents, (CHANGES, crate::change::change), read);
}

/// The same of documents that are no text, and so many changes of each.
///
/// # Panics
/// As [`replay`].
pub fn replay_binary(
    documents: Vec<Document>,
    changes: u32,
    read: impl Fn(&[u8]) -> Result<(), String>,
) {
    replayed(documents, (changes, crate::binary::change), read);
}

fn replayed(
    documents: Vec<Document>,
    (changes, change): (u32, Change),
    read: impl Fn(&[u8]) -> Result<(), String>,
) {
    let count = documents.len();
    assert!(count >= FEWEST, "{count} documents");
    let longest = documents.iter().map(|(_, bytes)| bytes.len()).max();
    let grown_most = GROWN_BYTES.max(longest.unwrap_or(0));
    let memory = resident();
    let mut heard = HashSet::new();
    for (name, document) in &documents {
        let taken = watched(name, document, &read);
        let wanted = name.starts_with("ok-");
        assert!(taken.is_ok() == wanted, "{name}: {taken:?}");
        heard.extend(taken.err().map(|words| kind(&words)));
    }
    let mut pool: Vec<Vec<u8>> = documents.into_iter().map(|(_, bytes)| bytes).collect();
    let own = pool.len();
    let longer = seconds().map(|seconds| (Instant::now() + seconds, fresh_seed()));
    let mut dice = Dice(longer.map_or(1, |(_, seed)| seed));
    let fixed = changes as usize * own;
    let mut number = 0;
    while number < fixed || longer.is_some_and(|(until, _)| Instant::now() < until) {
        let (from, other) = (dice.below(pool.len()), dice.below(pool.len()));
        let from = if number < fixed { number % own } else { from };
        let changed = change(&mut dice, &pool[from], &pool[other]);
        let name = format!(
            "change {number} of seed {:#x}",
            longer.map_or(1, |(_, s)| s)
        );
        let refused = watched(&name, &changed, &read).err();
        let new = refused.is_some_and(|words| heard.insert(kind(&words)));
        if new && changed.len() <= grown_most && pool.len() < KEPT + own {
            pool.push(changed);
        }
        number += 1;
    }
    let grown = resident().saturating_sub(memory);
    assert!(grown <= MEMORY_BYTES, "memory grew by {grown} bytes");
    println!(
        "{number} changed documents, {} kinds of refusal",
        heard.len()
    );
}

/// Those of a folder, by their names.
///
/// # Panics
/// It cannot be read, or has too few.
pub fn documents(folder: impl AsRef<Path>) -> Vec<Document> {
    let folder = folder.as_ref();
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut documents: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("the folder can be read");
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).expect("it is a file"))
        })
        .collect();
    documents.sort();
    let count = documents.len();
    assert!(count >= FEWEST, "{count} documents in {}", folder.display());
    documents
}

fn watched(
    name: &str,
    document: &[u8],
    read: &impl Fn(&[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let begun = Instant::now();
    let taken = catch_unwind(AssertUnwindSafe(|| read(document)));
    let took = begun.elapsed();
    let Ok(taken) = taken else {
        panic!("{name} made the decoder panic: {}", shown(document));
    };
    assert!(took < READING, "{name} took {took:?}: {}", shown(document));
    if let Err(words) = &taken {
        let clear = !words.trim().is_empty() && words.len() <= REFUSAL_BYTES;
        assert!(clear, "{name} is refused by {words:?}: {}", shown(document));
    }
    taken
}

/// As it can be put into a file of the corpus by `printf %b`.
fn shown(document: &[u8]) -> String {
    let mut text = format!("{} bytes: ", document.len());
    for byte in document.iter().take(GROWN_BYTES) {
        match byte {
            b'\\' | b'%' => drop(write!(text, "\\x{byte:02x}")),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => drop(write!(text, "\\x{byte:02x}")),
        }
    }
    text
}

/// The words of a refusal without what stands in the document itself.
fn kind(words: &str) -> String {
    let quoted = words.split(['"', '`']).step_by(2);
    let letters = quoted.flat_map(str::chars).filter(|c| !c.is_ascii_digit());
    letters.collect()
}

fn seconds() -> Option<Duration> {
    let text = std::env::var("DROVER_FUZZ_SECONDS").ok()?;
    let seconds = text.parse().map(Duration::from_secs);
    Some(seconds.unwrap_or_else(|_| panic!("DROVER_FUZZ_SECONDS={text:?} is no number")))
}

fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| now.as_nanos() as u64)
}

/// Memory of this process in RAM at the most so far.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(documents: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in documents {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    const ALL: &[(&str, &str)] = &[
        ("ok-1", "1"),
        ("ok-22", "22"),
        ("bad-x", "x"),
        ("bad-y", "y"),
    ];

    fn number(bytes: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
        text.parse::<u64>().map(drop).map_err(|e| e.to_string())
    }

    fn fails(documents: &[(&str, &str)], read: impl Fn(&[u8]) -> Result<(), String>) -> bool {
        let folder = folder(documents);
        catch_unwind(AssertUnwindSafe(|| replay(folder.path(), read))).is_err()
    }

    #[test]
    fn a_decoder_that_takes_what_is_right_and_refuses_the_rest_passes() {
        assert!(!fails(ALL, number));
    }

    #[test]
    fn a_document_that_is_not_read_as_its_name_says_fails() {
        let wrong = [ALL, &[("ok-letters", "letters")]].concat();
        assert!(fails(&wrong, number));
    }

    #[test]
    fn a_folder_of_few_documents_fails() {
        assert!(fails(&ALL[..FEWEST - 1], number));
    }

    #[test]
    fn a_panic_that_only_a_change_leads_to_is_found() {
        assert!(fails(ALL, |bytes| {
            assert!(bytes.len() < 100, "long");
            number(bytes)
        }));
    }

    #[test]
    fn a_refusal_without_words_fails() {
        assert!(fails(ALL, |bytes| number(bytes).map_err(|_| String::new())));
    }
}
