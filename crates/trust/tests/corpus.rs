//! Tokens, certificates and files of a cluster that is gone, and changes of them.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use drover_trust::{Armed, Facts, JoinToken, Ledger, Membership, OperatorFile, system_clock};
use rustls::pki_types::CertificateDer;

fn replay(name: &str, read: impl Fn(&[u8]) -> Result<(), String>) {
    let folder = format!("{}/tests/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    drover_corpus::replay(folder, read);
}

#[test]
fn join_tokens_and_changes_of_them_are_read_alike_or_refused() {
    replay("token", |text| {
        let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
        let token: JoinToken = text
            .parse()
            .map_err(|e: drover_trust::TrustError| e.to_string())?;
        assert_eq!(token.to_string().parse::<JoinToken>().unwrap(), token);
        Ok(())
    });
}

#[test]
fn certificates_and_changes_of_them_are_read_or_refused() {
    replay("certificate", |der| {
        let facts = Facts::of(&CertificateDer::from(der)).map_err(|error| error.to_string())?;
        let _ = facts.renew_at();
        assert!(facts.identity.same_name(&facts.identity));
        Ok(())
    });
}

#[test]
fn member_lists_and_changes_of_them_are_read_alike_or_refused() {
    replay("membership", |text| {
        let read: Membership = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        let again = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<Membership>(&again).unwrap(), read);
        read.check().map_err(|error| error.to_string())
    });
}

#[test]
fn ledgers_and_changes_of_them_are_read_or_refused() {
    replay("ledger", |text| {
        let read: Ledger = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        serde_json::to_string(&read).unwrap();
        Ok(())
    });
}

#[test]
fn identity_files_of_operators_and_changes_of_them_are_read_or_refused() {
    replay("operator", |text| {
        let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
        let file = OperatorFile::from_text(text).map_err(|error| error.to_string())?;
        let hosts = file.hosts.clone();
        let again = OperatorFile::from_text(text).map_err(|error| error.to_string())?;
        assert_eq!(hosts, again.hosts);
        // Parts that do not fit each other are refused in words, too.
        let credentials = file.credentials().map_err(|error| error.to_string())?;
        let armed = Armed::operator(&credentials, &system_clock());
        armed.map(drop).map_err(|error| error.to_string())
    });
}
