use std::path::Path;
use std::time::Duration;

use drover_libvirt::{DomainState, Standing, Watch, uri_of_socket};

use super::host::Host;
use super::protocol::Between;
use super::{PATIENCE, connect, guest, library, until};

/// A watch of a host's libvirt is told of a libvirtd that hangs after 12 s, and looks again after 15 s at most.
const LONGER: Duration = Duration::from_secs(20);

/// Two domains, watched over a socket on which single answers can be treated.
pub async fn watched_between(libvirt: &Path) -> (Host, Between, Watch) {
    let host = Host::new(libvirt);
    host_is_up(&host).await;
    host.define(&guest::idle("hangs"));
    host.define(&guest::idle("web"));
    let between = Between::new(&host.socket());
    let uri = uri_of_socket(&between.socket());
    let mut watch = Watch::begin(library().path().to_owned(), uri);
    stands(&mut watch, |standing| states(standing).len() == 2).await;
    (host, between, watch)
}

/// The domains that are told of, with their states.
pub fn states(standing: &Standing) -> Vec<(String, DomainState)> {
    let Standing::Reached { domains, .. } = standing else {
        return Vec::new();
    };
    let told = domains.told.iter();
    told.map(|domain| (domain.name.clone(), domain.state))
        .collect()
}

/// Waits until what is known of a host's libvirt is as wanted.
pub async fn stands(watch: &mut Watch, wanted: impl Fn(&Standing) -> bool) -> Standing {
    let mut seen = watch.standing();
    let waiting = async {
        while !wanted(&seen) {
            seen = watch.changed().await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE + LONGER, waiting).await;
    assert!(waited.is_ok(), "{seen:?}");
    seen
}

/// Waits until a host's libvirtd answers.
pub async fn host_is_up(host: &Host) {
    drop(connect(host).await);
    until("libvirtd's socket is there", async || {
        host.socket().exists()
    })
    .await;
}
