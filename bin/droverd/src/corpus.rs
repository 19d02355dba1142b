//! Files of real hosts, and changes of them, against everything that reads files.

use std::fs;
use std::path::Path;

use crate::config::Config;
use crate::interrupts::ledger::Ledger;
use crate::migration::journal::Journal;
use crate::registry::{definitions, files, record::Record};
use crate::sharing::changes;

/// Replays a folder, each document in a file of this name in a directory.
fn replay(folder: &str, name: &str, read: impl Fn(&Path) -> Result<(), String>) {
    let folder = format!("{}/tests/corpus/{folder}", env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    drover_corpus::replay(folder, |document| {
        fs::write(&file, document).unwrap();
        read(directory.path())
    });
}

#[test]
fn configurations_and_changes_of_them_are_read_or_refused() {
    replay("config", "droverd.toml", |directory| {
        let config = Config::load(&directory.join("droverd.toml"));
        config.map(drop).map_err(|error| error.to_string())
    });
}

#[test]
fn definitions_and_changes_of_them_are_read_alike_or_refused() {
    let name = "guest".parse().unwrap();
    replay("definition", "guest.toml", |directory| {
        let definition = definitions::get(directory, &name).unwrap()?;
        let rendered = definitions::render(&definition, "read").unwrap();
        let again = tempfile::tempdir().unwrap();
        fs::write(definitions::path_of(again.path(), &name), rendered).unwrap();
        assert_eq!(definitions::get(again.path(), &name), Some(Ok(definition)));
        Ok(())
    });
}

#[test]
fn records_of_guests_and_changes_of_them_are_read_alike_or_refused() {
    replay("record", "record.json", |directory| {
        let record = Record::load(directory).map_err(|error| error.to_string())?;
        let record = record.ok_or("no record")?;
        let again = tempfile::tempdir().unwrap();
        record.save(again.path()).unwrap();
        assert_eq!(Record::load(again.path()).unwrap(), Some(record));
        Ok(())
    });
}

#[test]
fn journals_and_changes_of_them_are_read_or_refused() {
    replay("journal", "migrations/x.json", |state| {
        let journal = Journal::open(state).map_err(|error| error.to_string())?;
        let entries = journal.load().map_err(|error| error.to_string())?;
        assert_eq!(entries.len(), 1);
        Ok(())
    });
}

#[test]
fn changed_limits_and_changes_of_their_file_are_read_alike_or_refused() {
    replay("limits", "limits.json", |state| {
        let file = changes::File::below(state);
        let read = file.read().map_err(|error| error.to_string())?;
        file.write(&read).unwrap();
        assert_eq!(file.read().unwrap(), read);
        Ok(())
    });
}

#[test]
fn what_is_kept_of_interrupts_and_changes_of_it_are_read_alike_or_refused() {
    replay("interrupts", "interrupts.json", |state| {
        let file = state.join("interrupts.json");
        let read = files::read_document::<Ledger>(&file).map_err(|error| error.to_string())?;
        let text = serde_json::to_vec(&read).unwrap();
        fs::write(&file, text).unwrap();
        assert_eq!(files::read_document(&file).unwrap(), read);
        Ok(())
    });
}
