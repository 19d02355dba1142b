//! Looks at libvirt for as long as the agent runs.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use drover_libvirt::{SYSTEM, SYSTEM_URI, Standing, Watch};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::seen::{Contact, Seen, Told, told};
use crate::config::LibvirtAt;
use crate::limits;

/// Where libvirt's own clients find the system's: the daemon of QEMU alone, or the one of all hypervisors.
const SOCKETS: [&str; 2] = ["/run/libvirt/virtqemud-sock", "/run/libvirt/libvirt-sock"];

/// Where libvirt is looked for.
#[derive(Debug, Clone)]
pub struct Whereabouts {
    /// The library.
    pub library: PathBuf,
    /// The daemon.
    pub uri: String,
    /// Without one of these there is none; it has to be there where there are none of these.
    sockets: Vec<PathBuf>,
}

impl Whereabouts {
    /// None where it is not wanted.
    pub fn of(at: &LibvirtAt) -> Option<Self> {
        let (uri, sockets) = match at {
            LibvirtAt::Off => return None,
            LibvirtAt::Auto => (SYSTEM_URI, SOCKETS.map(PathBuf::from).to_vec()),
            LibvirtAt::Uri(uri) => (uri.as_str(), Vec::new()),
        };
        Some(Self {
            library: SYSTEM.into(),
            uri: uri.to_owned(),
            sockets,
        })
    }

    /// Where its daemon listens; none where its URI names no socket and is not the system's.
    pub fn socket(&self) -> Option<PathBuf> {
        let found = || self.sockets.iter().find(|socket| socket.exists()).cloned();
        named_socket(&self.uri).or_else(found).or_else(|| {
            let is_systems = self.uri == SYSTEM_URI;
            let of_system = SOCKETS.map(PathBuf::from);
            of_system
                .into_iter()
                .find(|socket| is_systems && socket.exists())
        })
    }

    /// A host without one is as good.
    fn is_optional(&self) -> bool {
        !self.sockets.is_empty()
    }

    /// Why there is none on this host; none where it is there, or has to be.
    pub fn absence(&self) -> Option<String> {
        if !self.is_optional() || self.sockets.iter().any(|socket| socket.exists()) {
            return None;
        }
        let names = self.sockets.iter().map(|socket| socket.display());
        let names: Vec<_> = names.map(|name| name.to_string()).collect();
        Some(format!("there is no {}", names.join(", nor ")))
    }
}

/// Why no domain moves from or to the libvirt of this URI; none where they may. A user's own would speak with the system's of the other host
/// for one, and has QEMUs and sockets of that user.
pub fn no_systems(uri: &str) -> Option<String> {
    let (path, _) = uri.split_once('?').unwrap_or((uri, ""));
    path.ends_with("/session").then(|| {
        format!("its libvirt is a user's own ({uri}), and only domains of the system's (qemu:///system) are moved")
    })
}

/// The socket that a URI names, as `drover_libvirt::uri_of_socket` writes it.
fn named_socket(uri: &str) -> Option<PathBuf> {
    let (_, query) = uri.split_once('?')?;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, path) = pairs.find(|(key, _)| *key == "socket")?;
    let mut bytes = Vec::new();
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        };
        bytes.push(byte);
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

/// Tells what is so, for ever.
pub async fn keep(at: Whereabouts, teller: watch::Sender<Seen>) {
    loop {
        match at.absence() {
            Some(why) => {
                tell(&teller, Contact::Absent(why).into());
                sleep(limits::LIBVIRT_LOOK).await;
            }
            None => {
                teller.send_modify(Seen::look_again);
                follow(&at, &teller).await;
            }
        }
    }
}

/// Until there is none on this host any more.
async fn follow(at: &Whereabouts, teller: &watch::Sender<Seen>) {
    let mut watch = Watch::begin(at.library.clone(), at.uri.clone());
    let mut is_reached = false;
    loop {
        // One that stays away for the same reason tells nothing more.
        if let Ok(standing) = timeout(limits::LIBVIRT_LOOK, watch.changed()).await {
            is_reached = matches!(standing, Standing::Reached { .. });
            tell(teller, told(standing));
        }
        if !is_reached && at.absence().is_some() {
            return;
        }
    }
}

fn tell(teller: &watch::Sender<Seen>, told: Told) {
    teller.send_modify(|seen| {
        let before = seen.contact.clone();
        seen.hear(told);
        if seen.contact != before {
            log(seen, &before);
        }
    });
}

/// Once for each change; a host without libvirt is no fault.
fn log(seen: &Seen, before: &Contact) {
    let uri = seen.uri.as_deref();
    match (&seen.contact, before) {
        (Contact::Off | Contact::Looking, _) => {}
        (Contact::Absent(why), _) => tracing::info!(why, "libvirt is not used"),
        (Contact::Lost(why), _) => {
            let domains = seen.count();
            tracing::warn!(uri, why, domains, "libvirt is not reached: trying again");
        }
        (
            Contact::Connected {
                late: Some(why), ..
            },
            _,
        ) => {
            tracing::warn!(uri, why, "what is known of libvirt's domains is old");
        }
        (Contact::Connected { .. }, Contact::Connected { .. }) => {
            tracing::info!(uri, "libvirt tells of its domains again");
        }
        (Contact::Connected { daemon, .. }, _) => {
            let domains = seen.count();
            tracing::info!(uri, libvirtd = daemon, domains, "libvirt is reached");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libvirt::Libvirt;
    use std::path::Path;

    /// A host's libvirt below a folder, whose library is not there.
    fn optional(folder: &Path) -> Whereabouts {
        Whereabouts {
            library: folder.join("libvirt-of-nowhere.so.0"),
            uri: SYSTEM_URI.to_owned(),
            sockets: vec![folder.join("one-sock"), folder.join("other-sock")],
        }
    }

    async fn contact(seen: &mut watch::Receiver<Seen>, wanted: impl Fn(&Contact) -> bool) -> Seen {
        let waited = seen.wait_for(|seen| wanted(&seen.contact));
        let waited = tokio::time::timeout(std::time::Duration::from_secs(30), waited).await;
        waited.unwrap().unwrap().clone()
    }

    #[test]
    fn a_users_own_libvirt_is_told_from_the_systems() {
        for uri in [
            "qemu:///session",
            "qemu+unix:///session?socket=/run/user/7/libvirt-sock",
        ] {
            let why = no_systems(uri).unwrap();
            assert!(why.contains("a user's own"), "{why}");
        }
        let of_system = "qemu+unix:///system?socket=/run/session";
        assert_eq!(
            (no_systems(SYSTEM_URI), no_systems(of_system)),
            (None, None)
        );
    }

    #[test]
    fn the_socket_that_a_uri_names_is_found_whatever_its_name() {
        let path = Path::new("/run/ä b&c=#?100%+.sock");
        let uri = drover_libvirt::uri_of_socket(path);
        assert_eq!(named_socket(&uri).as_deref(), Some(path));
        for none in ["qemu:///system", "qemu:///system?x=1", "q?socket=%4"] {
            assert_eq!(named_socket(none), None, "{none}");
        }
    }

    #[test]
    fn a_libvirt_that_is_named_has_to_be_there_and_one_that_is_not_wanted_is_not_looked_for() {
        assert!(Whereabouts::of(&LibvirtAt::Off).is_none());
        let named = LibvirtAt::Uri("qemu:///session".to_owned());
        let named = Whereabouts::of(&named).unwrap();
        assert!(!named.is_optional() && named.absence().is_none());
        let auto = Whereabouts::of(&LibvirtAt::Auto).unwrap();
        assert_eq!((auto.uri.as_str(), auto.is_optional()), (SYSTEM_URI, true));
    }

    #[tokio::test]
    async fn a_host_without_a_socket_has_no_libvirt_and_one_with_has_it_whatever_its_library_is() {
        let folder = tempfile::TempDir::new().unwrap();
        let at = optional(folder.path());
        let (teller, mut seen) = watch::channel(Seen::looking(&at.uri));
        let task = tokio::spawn(keep(at, teller));
        let is_absent = |contact: &Contact| matches!(contact, Contact::Absent(_));
        let absent = contact(&mut seen, is_absent).await;
        let why = absent.problem().unwrap();
        assert!(why.contains("one-sock, nor "), "{why}");

        std::fs::write(folder.path().join("other-sock"), "").unwrap();
        let no_library =
            |contact: &Contact| matches!(contact, Contact::Lost(why) if why.contains("library"));
        let unusable = contact(&mut seen, no_library).await;
        assert!(unusable.domains.is_none(), "{unusable:?}");
        std::fs::remove_file(folder.path().join("other-sock")).unwrap();
        contact(&mut seen, is_absent).await;
        task.abort();
    }

    #[tokio::test]
    async fn a_libvirt_that_is_looked_for_or_was_lost_is_waited_for() {
        let (teller, seen) = watch::channel(Seen::looking(SYSTEM_URI));
        let mut libvirt = Libvirt::at_rest(Seen::off());
        libvirt.looked_at().await;
        libvirt.seen = seen;
        let mut waiting = std::pin::pin!(libvirt.looked_at());
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        teller.send_modify(|seen| seen.hear(Contact::Lost("no answer".to_owned()).into()));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        teller.send_modify(|seen| seen.hear(Contact::Absent("no socket".to_owned()).into()));
        assert!(futures_util::poll!(waiting).is_ready());
    }

    #[test]
    fn whether_a_libvirt_is_there_is_seen_at_once() {
        let folder = tempfile::TempDir::new().unwrap();
        let seen_where = |contact: Contact| {
            let mut libvirt = Libvirt::at_rest(Seen {
                contact,
                ..Seen::looking(SYSTEM_URI)
            });
            libvirt.at = Some(optional(folder.path()));
            libvirt.seen().contact
        };
        let absent = || Contact::Absent("no socket".to_owned());
        assert_eq!(seen_where(absent()), absent());
        let begun = seen_where(Contact::Looking);
        assert!(matches!(begun, Contact::Absent(_)), "{begun:?}");
        std::fs::write(folder.path().join("one-sock"), "").unwrap();
        assert_eq!(seen_where(absent()), Contact::Looking);
        assert_eq!(seen_where(Contact::Looking), Contact::Looking);
    }
}
