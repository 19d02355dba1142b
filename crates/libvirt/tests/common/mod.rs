//! Hosts with a real libvirtd each, and what carries sockets between them.

// Each test program uses a part of this.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

pub mod forward;
pub mod guest;
pub mod host;
pub mod protocol;
pub mod watched;

use std::path::PathBuf;
use std::time::Duration;

use drover_lab::libvirt::Libvirt;
use drover_libvirt::{Connection, Domain, Event, Events, Happening, Library, Notice};
use host::Host;

/// For what takes a second on an idle machine; test machines are shared and slow.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at what tells nothing by itself.
const POLL: Duration = Duration::from_millis(20);

/// Where this version of libvirt was unpacked, if tests can run with it. If not, says why.
pub fn unpacked(version: &str) -> Option<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped, because not root: a libvirtd is started in namespaces");
        return None;
    }
    let libvirt: Libvirt = version.parse().unwrap();
    if let Err(missing) = libvirt.check() {
        println!("skipped, because {missing}");
        return None;
    }
    libvirt.folder().map(Into::into)
}

/// The library of the older version: what an agent has is what its host has, or older.
pub fn library() -> Library {
    let libvirt = unpacked("9.0").unwrap();
    Library::load(&libvirt.join("usr/lib/x86_64-linux-gnu/libvirt.so.0")).unwrap()
}

/// Runs a test, an `async fn(PathBuf)`, on each libvirt as a test of its own.
#[macro_export]
macro_rules! on_each_libvirt {
    ($($name:ident)*) => {$(
        mod $name {
            #[tokio::test(flavor = "multi_thread")]
            async fn on_libvirt_9_0() {
                if let Some(libvirt) = $crate::common::unpacked("9.0") {
                    super::$name(libvirt).await;
                }
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn on_libvirt_11_3() {
                if let Some(libvirt) = $crate::common::unpacked("11.3") {
                    super::$name(libvirt).await;
                }
            }
        }
    )*};
}

/// Connects to a host's libvirtd, which may have been started a moment ago.
pub async fn connect(host: &Host) -> Connection {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match Connection::open(library(), &host.uri()).await {
            Ok(connection) => return connection,
            Err(error) if tokio::time::Instant::now() > deadline => panic!("{error:?}"),
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

/// The domain of this name.
pub async fn domain(connection: &Connection, name: &str) -> Option<Domain> {
    let domains = connection.domains().await.unwrap();
    domains.told.into_iter().find(|domain| domain.name == name)
}

/// Waits for something to happen, and gives all that happened until then.
pub async fn happened(events: &mut Events, wanted: Happening) -> Vec<Happening> {
    let mut seen = Vec::new();
    let waiting = async {
        loop {
            match events.next().await {
                Notice::Event(Event { happening, .. }) => seen.push(happening),
                other => panic!("{other:?} after {seen:?}"),
            }
            if seen.last() == Some(&wanted) {
                return;
            }
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "{wanted:?} not seen, but {seen:?}");
    seen
}

/// Waits until something is so.
pub async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !look().await {
            tokio::time::sleep(POLL).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "not so: {what}");
}
