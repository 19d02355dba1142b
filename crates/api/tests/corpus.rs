//! What one agent tells another: documents of `corpus`, and changes of them. A document of `others` says
//! by its only key what it is.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use drover_api::{
    AbandonRequest, AdmissionRequest, DomainNeedsRequest, DomainNeedsView, ErrorBody,
    HostCertificate, HostView, IncomingNetworks, IncomingOffer, IncomingPaths, IncomingReopen,
    IncomingRequest, IncomingStart, IncomingView, InventoryView, LoadOrder, LoadTakeRequest,
    LoadTakenView, LoadedView, MigrationView, OpenRequest, OpenedView, PathLimits, RenewalRequest,
    SyncRequest, VerdictView,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Other {
    Start(IncomingStart),
    Paths(IncomingPaths),
    Reopen(IncomingReopen),
    Networks(IncomingNetworks),
    Abandon(AbandonRequest),
    View(IncomingView),
    Verdict(VerdictView),
    PathLimits(PathLimits),
    Sync(SyncRequest),
    Renewal(RenewalRequest),
    Admission(AdmissionRequest),
    Certificate(HostCertificate),
    LoadTake(LoadTakeRequest),
    LoadTaken(LoadTakenView),
    LoadOrder(LoadOrder),
    Loaded(LoadedView),
    Open(OpenRequest),
    Opened(OpenedView),
    Needs(DomainNeedsRequest),
    Lacks(DomainNeedsView),
    Error(ErrorBody),
}

/// Reads a document; what was read and is written again is read as the same.
fn read<T: DeserializeOwned + Serialize>(document: &[u8]) -> Result<T, String> {
    let body: T = drover_api::decode(document)?;
    let written = serde_json::to_string(&body).unwrap();
    let again: T = serde_json::from_str(&written).unwrap();
    assert_eq!(serde_json::to_string(&again).unwrap(), written);
    Ok(body)
}

fn replay<T: DeserializeOwned + Serialize>(name: &str, use_it: impl Fn(&T)) {
    let folder = format!("{}/tests/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    drover_corpus::replay(folder, |document| {
        read(document).map(|body: T| use_it(&body))
    });
}

#[test]
fn requests_to_prepare_and_changes_of_them_are_read_alike_or_refused() {
    replay("incoming", |request: &IncomingRequest| {
        // Whatever was read can be judged.
        let _ = request.definition.check();
        let _ = request.protocol.newest_common(request.protocol);
    });
}

#[test]
fn offers_and_changes_of_them_are_read_alike_or_refused() {
    replay("offer", |_: &IncomingOffer| {});
}

#[test]
fn hosts_and_changes_of_them_are_read_alike_or_refused() {
    replay("host", |_: &HostView| {});
}

#[test]
fn inventories_and_changes_of_them_are_read_alike_or_refused() {
    replay("inventory", |_: &InventoryView| {});
}

#[test]
fn migrations_and_changes_of_them_are_read_alike_or_refused() {
    replay("migrations", |_: &Vec<MigrationView>| {});
}

#[test]
fn all_other_words_between_agents_and_changes_of_them_are_read_alike_or_refused() {
    replay("others", |other: &Other| {
        if let Other::Certificate(certificate) = other {
            let _ = certificate.membership.check();
        }
    });
}
