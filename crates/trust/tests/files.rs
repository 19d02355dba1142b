//! What is kept on disk: whole, private, and refused when it is neither.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use drover_trust::{
    Authority, Identity, KeyAndRequest, Ledger, Member, Membership, OperatorFile, Store, Stored,
    Validity, limits,
};

fn stored() -> Stored {
    let now = SystemTime::now();
    let authority = Authority::create(Validity::from(now, limits::AUTHORITY_LIFETIME)).unwrap();
    let own = KeyAndRequest::generate().unwrap();
    let who = Identity::Host("a".parse().unwrap());
    let validity = Validity::from(now, limits::HOST_LIFETIME);
    let (certificate, _) = authority.issue(&own.request, &who, validity).unwrap();
    let mut ledger = Ledger::default();
    let addresses = vec!["10.0.0.1:7470".parse().unwrap()];
    let host = "a".parse().unwrap();
    ledger.add_member(Member { host, addresses });
    let membership = Membership {
        revision: 1,
        authority: "a".parse().unwrap(),
        members: ledger.members().to_vec(),
        coordinators: Vec::new(),
        removals: authority.sign_removals(1, &[], now).unwrap(),
    };
    Stored {
        key: own.key,
        certificate,
        authority: authority.certificate_pem().to_owned(),
        membership,
        office: Some((authority, ledger)),
    }
}

fn files(state: &Path) -> Vec<(String, u32)> {
    let entries = fs::read_dir(state.join("trust")).unwrap();
    let mut found: Vec<_> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            (entry.file_name().into_string().unwrap(), mode)
        })
        .collect();
    found.sort();
    found
}

#[test]
fn what_is_kept_comes_back_and_only_root_can_read_it() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::below(state.path());
    assert!(store.load().unwrap().is_none());
    let before = stored();
    store.save(&before).unwrap();
    let names = [
        "authority.key",
        "authority.pem",
        "cluster.json",
        "host.pem",
        "ledger.json",
    ];
    let expected: Vec<_> = names
        .iter()
        .map(|name| ((*name).to_owned(), 0o600))
        .collect();
    assert_eq!(files(state.path()), expected);
    let mode = fs::metadata(state.path().join("trust")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o700);

    let after = store.load().unwrap().unwrap();
    assert_eq!(after.membership, before.membership);
    let (authority, ledger) = after.office.as_ref().unwrap();
    assert_eq!(
        authority.fingerprint(),
        before.office.unwrap().0.fingerprint()
    );
    assert_eq!(ledger.members(), before.membership.members);
    let credentials = after.credentials().unwrap();
    assert_eq!(
        credentials.facts.identity,
        Identity::Host("a".parse().unwrap())
    );
    assert_eq!(credentials.authority(), authority.fingerprint());
}

#[test]
fn files_that_others_may_read_or_that_are_damaged_are_refused_and_named() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::below(state.path());
    store.save(&stored()).unwrap();
    let path = |name: &str| state.path().join("trust").join(name);
    fs::set_permissions(path("host.pem"), PermissionsExt::from_mode(0o644)).unwrap();
    let refused = store.load().unwrap_err().to_string();
    assert!(
        refused.contains("host.pem") && refused.contains("chmod 600"),
        "{refused}"
    );
    fs::set_permissions(path("host.pem"), PermissionsExt::from_mode(0o600)).unwrap();
    store.load().unwrap();
    fs::write(path("ledger.json"), "{").unwrap();
    let refused = store.load().unwrap_err().to_string();
    assert!(refused.contains("ledger.json"), "{refused}");
    fs::remove_file(path("ledger.json")).unwrap();
    let refused = store.load().unwrap_err().to_string();
    assert!(refused.contains("restore it from a backup"), "{refused}");
}

#[test]
fn a_host_that_joins_another_cluster_is_no_authority_any_more() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::below(state.path());
    store.save(&stored()).unwrap();
    let mut member = stored();
    member.office = None;
    store.save(&member).unwrap();
    assert!(store.load().unwrap().unwrap().office.is_none());
}

#[test]
fn an_operators_file_holds_all_that_is_needed_from_afar() {
    let mut host = stored();
    let (authority, _) = host.office.take().unwrap();
    let own = KeyAndRequest::generate().unwrap();
    let who = Identity::Operator("eve".parse().unwrap());
    let validity = Validity::from(SystemTime::now(), limits::OPERATOR_LIFETIME);
    let (certificate, _) = authority.issue(&own.request, &who, validity).unwrap();
    let file = OperatorFile {
        key: own.key.clone(),
        certificate,
        authority: host.authority.clone(),
        hosts: host.membership.members.clone(),
    };
    let text = file.to_text().unwrap();
    assert!(text.contains("# host a 10.0.0.1:7470\n"), "{text}");
    let back = OperatorFile::from_text(&text).unwrap();
    assert_eq!(back.hosts, host.membership.members);
    assert_eq!(back.credentials().unwrap().facts.identity, who);
    assert!(!format!("{back:?}").contains("PRIVATE"));
    // A host's key and certificate are no operator's.
    let hosts_own = format!("{}{}{}", host.key, host.certificate, host.authority);
    let refused = OperatorFile::from_text(&hosts_own).unwrap_err().to_string();
    assert!(refused.contains("host a, no operator"), "{refused}");
    for cut in [0, 10, text.len() / 2, text.len() - 700] {
        assert!(OperatorFile::from_text(&text[..cut]).is_err(), "{cut}");
    }
}
