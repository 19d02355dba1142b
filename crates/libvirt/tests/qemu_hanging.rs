//! A libvirtd that takes connections and then says nothing. Alone in its program, since attempts that hang count for all of a process.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::host::Host;
use common::protocol::{Between, CONNECT_GET_VERSION};
use common::watched::host_is_up;
use common::{library, until};
use drover_libvirt::{ConnectError, Connection, limits, uri_of_socket};

#[tokio::test(flavor = "multi_thread")]
async fn attempts_whose_first_calls_hang_are_counted_until_these_are_answered() {
    let Some(libvirt) = common::unpacked("9.0") else {
        return;
    };
    let host = Host::new(&libvirt);
    host_is_up(&host).await;
    let between = Between::new(&host.socket());
    let uri = uri_of_socket(&between.socket());
    between.hold(CONNECT_GET_VERSION);
    let open = || {
        let uri = uri.clone();
        async move { Connection::open(library(), &uri).await }
    };
    let attempts = std::iter::repeat_with(|| tokio::spawn(open()));
    for attempt in attempts.take(limits::CONNECTING).collect::<Vec<_>>() {
        let hangs = attempt.await.unwrap().unwrap_err();
        assert!(matches!(hangs, ConnectError::NoAnswer { .. }), "{hangs:?}");
    }
    assert_eq!(between.held(), limits::CONNECTING);
    let refused = open().await.unwrap_err();
    assert!(
        matches!(refused, ConnectError::Hanging { .. }),
        "{refused:?}"
    );
    between.release();
    until("they have ended and made room", async || {
        open().await.is_ok()
    })
    .await;
}
