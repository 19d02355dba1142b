//! Lines of a real migration, and changes of them.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::lines;
use crate::protocol::{Asked, Said};
use crate::record::Place;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");

/// Reads a line; what was read and is written again is read as the same.
fn read<T: DeserializeOwned + Serialize>(line: &[u8]) -> Result<(), String> {
    let said: T = lines::decode(line).map_err(|error| error.to_string())?;
    let written = serde_json::to_string(&said).unwrap();
    let again: T = serde_json::from_str(&written).unwrap();
    assert_eq!(serde_json::to_string(&again).unwrap(), written);
    Ok(())
}

#[test]
fn requests_of_the_corpus_and_changes_of_them_are_read_alike_or_refused() {
    drover_corpus::replay(format!("{FOLDER}/asked"), read::<Asked>);
}

#[test]
fn words_of_a_process_in_the_corpus_and_changes_of_them_are_read_alike_or_refused() {
    drover_corpus::replay(format!("{FOLDER}/said"), read::<Said>);
}

#[test]
fn records_of_processes_and_changes_of_them_are_read_alike_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let place = Place::at(directory.path().to_owned());
    drover_corpus::replay(format!("{FOLDER}/record"), |record| {
        std::fs::write(directory.path().join("process.json"), record).unwrap();
        let read = place.record().map_err(|error| error.to_string())?;
        place.write(&read.unwrap()).unwrap();
        assert_eq!(place.record().unwrap(), read);
        Ok(())
    });
}
