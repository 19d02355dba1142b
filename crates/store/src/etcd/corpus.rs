//! What etcd says, kept in files, and changes of it: read or refused, never worse.

use super::members::{Members, decode};
use super::words::{Done, Found, Message, Watched};
use super::{Etcd, Follower, why};
use crate::clock::HostClock;
use crate::error::StoreError;
use crate::key::{Key, Kind, Name, Scope};
use crate::leadership::Generation;
use crate::transaction::{Expect, Fence, Revision, Transaction};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn etcd() -> Etcd {
    let members = Members::new(&["localhost:1".to_owned()], None).unwrap();
    Etcd::new(members, &name("c"), HostClock::new().unwrap())
}

#[test]
fn answers_of_etcd_with_documents_and_changes_of_them_are_read_or_refused() {
    let etcd = etcd();
    drover_corpus::replay(format!("{FOLDER}/found"), |answer| {
        let read = |answer| -> Result<(), StoreError> {
            let found: Found = decode(answer)?;
            for stored in found.kvs {
                etcd.document(stored)?;
            }
            Ok(())
        };
        read(answer).map_err(|error| error.to_string())
    });
}

#[test]
fn answers_of_etcd_to_transactions_and_changes_of_them_are_read_or_refused() {
    let mut wanted = Transaction::new().require(Key::new(Kind::Host, name("a")), Expect::Absent);
    wanted.fence = Some(Fence {
        name: name("drain"),
        generation: Generation(7),
    });
    drover_corpus::replay(format!("{FOLDER}/done"), |answer| {
        let done: Done = decode(answer).map_err(|refused| StoreError::from(refused).to_string())?;
        if done.succeeded {
            return Ok(());
        }
        match why(&wanted, &done) {
            Ok(StoreError::Fenced { .. } | StoreError::Conflict { .. }) => Ok(()),
            Ok(other) => panic!("{other}"),
            Err(error) => Err(error.to_string()),
        }
    });
}

#[test]
fn messages_of_etcds_watches_and_changes_of_them_are_read_or_refused() {
    let etcd = etcd();
    drover_corpus::replay(format!("{FOLDER}/watched"), |line| {
        let read = |line| -> Result<(), StoreError> {
            let message: Message<Watched> = decode(line)?;
            let mut follower = Follower::new(etcd.clone(), Scope::kind(Kind::Host), Revision(1));
            if let Some(watched) = message.result {
                let changes = follower.take(watched)?;
                assert!(changes.iter().all(|changes| !changes.changes.is_empty()));
            }
            Ok(())
        };
        read(line).map_err(|error| error.to_string())
    });
}
