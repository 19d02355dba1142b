//! Domains of a real libvirtd: listed, watched, found again.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::path::PathBuf;
use std::time::Instant;

use common::host::Host;
use common::protocol::{Between, DOMAIN_ABORT_JOB, Treatment};
use common::watched::{host_is_up, stands, states, watched_between};
use common::{connect, domain, guest, happened, library, until};
use drover_libvirt::{
    CallError, Closed, Connection, DomainState, Domains, Events, Happening, NotEnded, Notice,
    Standing, Untold, Watch, Xml, abort_job, limits, uri_of_socket,
};
use drover_types::Bytes;
use uuid::Uuid;

on_each_libvirt! {
    domains_are_listed_with_their_state_definition_and_size
    what_happens_to_a_domain_is_told_in_order
    a_libvirtd_that_dies_and_comes_back_is_found_again_with_its_domains
    a_libvirtd_that_stands_still_is_an_error_within_the_bound_and_used_again_when_it_goes_on
    a_domain_that_hangs_costs_no_connection_and_what_was_known_stays
    a_domain_that_libvirt_does_not_tell_of_leaves_the_others_told
    a_job_is_ended_though_a_call_before_it_hangs
    more_jobs_are_ended_at_once_than_may_connect_and_one_that_is_not_answered_is_told_so
    what_answers_no_keepalive_is_not_connected_to
}

async fn domains_are_listed_with_their_state_definition_and_size(libvirt: PathBuf) {
    let host = Host::new(&libvirt);
    let connection = connect(&host).await;
    assert_eq!(connection.domains().await.unwrap(), Domains::default());
    host.define(&guest::idle("Käfer 1"));
    host.define(&guest::idle("off"));
    host.create(&guest::idle("transient"));
    host.virsh(&["autostart", "Käfer 1"]);
    host.virsh(&["start", "Käfer 1"]);
    host.virsh(&["suspend", "transient"]);

    let Domains {
        told: domains,
        untold,
    } = connection.domains().await.unwrap();
    assert_eq!(untold, []);
    let seen: Vec<_> = domains
        .iter()
        .map(|d| (d.name.as_str(), d.state, d.persistent, d.autostart))
        .collect();
    let expected = [
        ("Käfer 1", DomainState::Running, true, true),
        ("off", DomainState::ShutOff, true, false),
        ("transient", DomainState::Paused, false, false),
    ];
    assert_eq!(seen, expected);
    assert!(
        domains
            .iter()
            .all(|d| d.memory == Bytes(64 << 20) && d.vcpus == 1)
    );
    for domain in &domains {
        let uuid = host.virsh(&["domuuid", &domain.name]);
        assert_eq!(uuid.trim(), domain.uuid.to_string());
    }

    let xml = connection.xml(domains[0].uuid, Xml::Current).await.unwrap();
    assert!(xml.contains("<name>Käfer 1</name>"), "{xml}");
    assert!(xml.contains("<domain type='qemu' id="), "{xml}");
    let definition = connection
        .xml(domains[0].uuid, Xml::Definition)
        .await
        .unwrap();
    assert!(definition.contains("<domain type='qemu'>"), "{definition}");

    let missing = connection.xml(Uuid::from_u128(7), Xml::Current).await;
    let CallError::Refused { source, .. } = missing.unwrap_err() else {
        panic!("not refused");
    };
    assert!(source.is_no_domain(), "{source}");
    assert!(
        source.words.contains("no domain with matching uuid"),
        "{source}"
    );
    println!(
        "library {}, libvirtd {}, QEMU {}",
        library().version(),
        connection.daemon(),
        connection.hypervisor()
    );
}

async fn what_happens_to_a_domain_is_told_in_order(libvirt: PathBuf) {
    let host = Host::new(&libvirt);
    let connection = connect(&host).await;
    let mut events = connection.events();
    host.define(&guest::idle("web"));
    host.virsh(&["start", "web"]);
    host.virsh(&["suspend", "web"]);
    let web = domain(&connection, "web").await.unwrap();
    connection.resume(web.uuid).await.unwrap();
    host.virsh(&["destroy", "web"]);
    host.virsh(&["undefine", "web"]);
    let seen = happened(&mut events, Happening::Undefined).await;
    let expected = [
        Happening::Defined,
        Happening::Started { arriving: false },
        Happening::Suspended { leaving: false },
        Happening::Resumed,
        Happening::Stopped { left: false },
        Happening::Undefined,
    ];
    let seen: Vec<_> = seen.into_iter().filter(|h| expected.contains(h)).collect();
    // libvirt tells of a start as a resumption, too.
    let twice: Vec<_> = seen.iter().filter(|h| **h == Happening::Resumed).collect();
    assert!(twice.len() <= 2, "{seen:?}");
    let mut wanted = expected.iter();
    let mut next = wanted.next();
    for happening in &seen {
        if Some(happening) == next {
            next = wanted.next();
        }
    }
    assert_eq!(next, None, "{seen:?}");
    drop(connection);
    assert_eq!(end(&mut events).await, Closed::ByUs);
}

async fn a_libvirtd_that_dies_and_comes_back_is_found_again_with_its_domains(libvirt: PathBuf) {
    let host = Host::new(&libvirt);
    host_is_up(&host).await;
    host.define(&guest::idle("web"));
    let mut watch = Watch::begin(library().path().to_owned(), host.uri());
    let known = |names: &'static [(&'static str, DomainState)]| {
        move |standing: &Standing| match standing {
            Standing::Reached { domains, .. } => {
                let told = domains.told.iter();
                let seen: Vec<_> = told.map(|d| (d.name.as_str(), d.state)).collect();
                seen == names
            }
            _ => false,
        }
    };
    stands(&mut watch, known(&[("web", DomainState::ShutOff)])).await;
    host.virsh(&["start", "web"]);
    let reached = stands(&mut watch, known(&[("web", DomainState::Running)])).await;
    let Standing::Reached { connection, .. } = reached else {
        unreachable!()
    };

    host.signal_libvirtd("KILL");
    let lost = |standing: &Standing| matches!(standing, Standing::Unreachable(_));
    stands(&mut watch, lost).await;
    let refused = connection.domains().await.unwrap_err();
    assert!(matches!(refused, CallError::Lost { .. }), "{refused:?}");
    assert!(connection.closed().is_some());
    // Its guest runs on, and is there when libvirtd is back.
    assert_eq!(host.qemus().len(), 1);
    host.start_libvirtd();
    stands(&mut watch, known(&[("web", DomainState::Running)])).await;
    host.virsh(&["destroy", "web"]);
    stands(&mut watch, known(&[("web", DomainState::ShutOff)])).await;
}

async fn a_libvirtd_that_stands_still_is_an_error_within_the_bound_and_used_again_when_it_goes_on(
    libvirt: PathBuf,
) {
    let host = Host::new(&libvirt);
    let connection = connect(&host).await;
    let mut events = connection.events();
    let mut watch = Watch::begin(library().path().to_owned(), host.uri());
    let reached = |standing: &Standing| matches!(standing, Standing::Reached { .. });
    stands(&mut watch, reached).await;
    host.signal_libvirtd("STOP");
    let begun = Instant::now();
    let refused = connection.domains().await.unwrap_err();
    assert!(matches!(refused, CallError::Lost { .. }), "{refused:?}");
    assert!(begun.elapsed() < limits::CALL, "{:?}", begun.elapsed());
    let _ = end(&mut events).await;
    let silent = |standing: &Standing| matches!(standing, Standing::Unreachable(_));
    stands(&mut watch, silent).await;
    let hangs = Connection::open(library(), &host.uri()).await.unwrap_err();
    assert!(
        hangs.to_string().contains("did not answer within"),
        "{hangs}"
    );
    host.signal_libvirtd("CONT");
    stands(&mut watch, reached).await;
}

async fn a_domain_that_hangs_costs_no_connection_and_what_was_known_stays(libvirt: PathBuf) {
    let (host, between, mut watch) = watched_between(&libvirt).await;
    between.treat("hangs", Treatment::Held);
    host.virsh(&["start", "web"]);
    let is_late = |standing: &Standing| matches!(standing, Standing::Reached { late: Some(_), .. });
    let standing = stands(&mut watch, is_late).await;
    let off = DomainState::ShutOff;
    let before = [("hangs".to_owned(), off), ("web".to_owned(), off)];
    assert_eq!(states(&standing), before);
    let Standing::Reached {
        late, connection, ..
    } = standing
    else {
        unreachable!()
    };
    let late = late.unwrap();
    assert!(late.contains("did not list the domains within"), "{late}");
    assert_eq!(connection.closed(), None);
    between.release();
    let now = [
        ("hangs".to_owned(), off),
        ("web".to_owned(), DomainState::Running),
    ];
    stands(&mut watch, |standing| states(standing) == now).await;
    assert_eq!(between.opened(), 1);
}

async fn a_domain_that_libvirt_does_not_tell_of_leaves_the_others_told(libvirt: PathBuf) {
    /// `VIR_ERR_OPERATION_DENIED`.
    const DENIED: u8 = 29;
    let (host, between, mut watch) = watched_between(&libvirt).await;
    between.treat("hangs", Treatment::Refused(DENIED));
    host.virsh(&["start", "web"]);
    let now = [("web".to_owned(), DomainState::Running)];
    let standing = stands(&mut watch, |standing| states(standing) == now).await;
    let Standing::Reached { domains, late, .. } = standing else {
        unreachable!()
    };
    assert_eq!(late, None);
    let [Untold { name, why, .. }] = &domains.untold[..] else {
        panic!("{domains:?}");
    };
    assert_eq!((name.as_str(), why.words.as_str()), ("hangs", "not this"));
    assert_eq!(between.opened(), 1);
}

async fn a_job_is_ended_though_a_call_before_it_hangs(libvirt: PathBuf) {
    let (host, between, watch) = watched_between(&libvirt).await;
    between.treat("hangs", Treatment::Held);
    host.virsh(&["start", "web"]);
    until("the listing hangs", async || between.held() == 1).await;
    let Standing::Reached { domains, .. } = watch.standing() else {
        panic!("{:?}", watch.standing());
    };
    let web = domains.told.iter().find(|domain| domain.name == "web");
    let uri = uri_of_socket(&between.socket());
    let begun = Instant::now();
    // It has no job; what counts is that libvirt has said so.
    let refused = abort_job(library(), &uri, web.unwrap().uuid).await;
    let NotEnded::Call(CallError::Refused { source, .. }) = refused.unwrap_err() else {
        panic!("not refused by libvirt");
    };
    assert!(source.words.contains("no job"), "{source}");
    assert!(begun.elapsed() < limits::CALL, "{:?}", begun.elapsed());
    assert_eq!((between.held(), between.opened()), (1, 2));
    between.release();
}

async fn more_jobs_are_ended_at_once_than_may_connect_and_one_that_is_not_answered_is_told_so(
    libvirt: PathBuf,
) {
    let (host, between, _watch) = watched_between(&libvirt).await;
    let web = host.virsh(&["domuuid", "web"]);
    let web: Uuid = web.trim().parse().unwrap();
    let uri = uri_of_socket(&between.socket());
    between.hold(DOMAIN_ABORT_JOB);
    let abort = || {
        let uri = uri.clone();
        tokio::spawn(async move { abort_job(library(), &uri, web).await })
    };
    let aborts: Vec<_> = std::iter::repeat_with(abort)
        .take(limits::CONNECTING + 1)
        .collect();
    until("all of them wait for their answers", async || {
        between.held() == limits::CONNECTING + 1
    })
    .await;
    // Nor do they keep anybody else from connecting.
    Connection::open(library(), &uri).await.unwrap();
    for abort in aborts {
        let error = abort.await.unwrap().unwrap_err();
        let is_late = matches!(error, NotEnded::Call(CallError::TimedOut { .. }));
        assert!(is_late, "{error:?}");
    }
    between.release();
}

async fn what_answers_no_keepalive_is_not_connected_to(libvirt: PathBuf) {
    let host = Host::new(&libvirt);
    host_is_up(&host).await;
    let between = Between::new(&host.socket());
    between.deny_keepalive();
    let uri = uri_of_socket(&between.socket());
    let refused = Connection::open(library(), &uri).await.unwrap_err();
    assert!(
        refused.to_string().contains("answers no keepalive"),
        "{refused:?}"
    );
}

/// Names the file into which a process of this test writes its host's process, and then waits to be killed.
const HOLD: &str = "DROVER_TEST_HOLDS_HOST";

#[tokio::test(flavor = "multi_thread")]
async fn a_host_ends_with_the_test_that_is_killed() {
    let Some(libvirt) = common::unpacked("9.0") else {
        return;
    };
    if let Some(told) = std::env::var_os(HOLD) {
        let host = Host::new(&libvirt);
        std::fs::write(told, host.init().to_string()).unwrap();
        std::future::pending::<()>().await;
    }
    let folder = tempfile::TempDir::new().unwrap();
    let told = folder.path().join("init");
    let mut holding = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_host_ends_with_the_test_that_is_killed"])
        .env(HOLD, &told)
        .env("TMPDIR", folder.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut init = String::new();
    until("the host is there", async || {
        init = std::fs::read_to_string(&told).unwrap_or_default();
        !init.is_empty()
    })
    .await;
    let process = PathBuf::from(format!("/proc/{init}"));
    assert!(process.exists());
    holding.kill().unwrap();
    holding.wait().unwrap();
    until("the host is gone", async || !process.exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_listens_or_no_library_is_the_reason_is_told() {
    if common::unpacked("9.0").is_none() {
        return;
    }
    let refused = Connection::open(library(), "qemu+unix:///system?socket=/no/such/socket").await;
    let refused = format!("{:?}", refused.unwrap_err());
    assert!(refused.contains("/no/such/socket"), "{refused}");
    let mut watch = Watch::begin(
        "libvirt-of-nowhere.so.0".into(),
        "qemu:///system".to_owned(),
    );
    let standing = stands(&mut watch, |s| !matches!(s, Standing::Unknown)).await;
    let Standing::NotThere(words) = standing else {
        panic!("{standing:?}");
    };
    assert!(words.contains("libvirt-of-nowhere"), "{words}");
}

async fn end(events: &mut Events) -> Closed {
    loop {
        if let Notice::Closed(closed) = events.next().await {
            return closed;
        }
    }
}
