//! What a domain needs of the host that it goes to, as far as it can be looked for before libvirt is asked.

use std::path::Path;
use std::sync::Arc;

use drover_api::{DomainNeed, ErrorCode, Refusal};
use drover_types::HostName;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::limits;
use crate::facts;
use crate::libvirt::preflight::Need;

/// What another host can look for. All else libvirt finds out itself.
pub fn told(needs: &[Need]) -> Vec<DomainNeed> {
    let needs = needs.iter().filter_map(|need| match need {
        Need::Emulator(path) | Need::Storage(path) => Some(DomainNeed::Path { path: path.clone() }),
        Need::Bridge(name) | Need::Interface(name) => {
            let name = name.clone();
            Some(DomainNeed::Interface { name })
        }
        Need::Machine(_) | Need::Network(_) | Need::Volume { .. } | Need::Protocol(_) => None,
    });
    needs.take(limits::DOMAIN_NEEDS).collect()
}

/// Looks that are taken for what domains need on this host. One at a file system of a machine that is gone keeps its thread for ever,
/// and the agent has threads for other things.
#[derive(Debug, Clone)]
pub struct Looks(Arc<Semaphore>);

impl Default for Looks {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(limits::LOOKS)))
    }
}

impl Looks {
    /// Whether this host has all of it. Whoever asks is a member of the cluster, and learns of any path whether it is there.
    ///
    /// # Errors
    /// It has not, or is asked for more than is looked for, or looks that were taken before hang.
    pub async fn look(
        &self,
        host: &HostName,
        vm: &str,
        needs: &[DomainNeed],
    ) -> Result<(), Refusal> {
        if needs.len() > limits::DOMAIN_NEEDS {
            let (count, most) = (needs.len(), limits::DOMAIN_NEEDS);
            let message =
                format!("a domain that needs {count} things, at most {most} are looked for");
            return Err(Refusal::new(ErrorCode::BadRequest, message));
        }
        let interfaces = facts::interfaces().await.map_err(|error| {
            let message = format!("cannot read the facts of {host}: {error}");
            Refusal::new(ErrorCode::Internal, message)
        })?;
        let names: Vec<String> = interfaces.into_iter().map(|nic| nic.name).collect();
        let needs = needs.to_vec();
        let looked = self.one(move || missing(&needs, &names, Path::exists));
        let missing = looked.await.map_err(|hang| hang.refusal(host, vm))?;
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(", ");
        let message = format!("{host} lacks what domain {vm:?} needs: {missing}");
        let next = format!("have the same there on {host}, or take it out of the domain");
        Err(Refusal::new(ErrorCode::OfLibvirt, message).next(next))
    }

    /// One look, in a thread of its own.
    async fn one<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Hang> {
        let turn = timeout(limits::LOOK_FOR_FILES, Arc::clone(&self.0).acquire_owned()).await;
        // It is never closed.
        let turn = turn.ok().and_then(Result::ok).ok_or(Hang::Before)?;
        let looked = tokio::task::spawn_blocking(move || {
            let found = look();
            drop(turn);
            found
        });
        let looked = timeout(limits::LOOK_FOR_FILES, looked).await;
        looked.ok().and_then(Result::ok).ok_or(Hang::This)
    }
}

/// What does not end within its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hang {
    /// This look.
    This,
    /// As many looks before as there may be.
    Before,
}

impl Hang {
    fn refusal(self, host: &HostName, vm: &str) -> Refusal {
        let seconds = limits::LOOK_FOR_FILES.as_secs();
        let what = match self {
            Self::This => format!("they cannot be looked at within {seconds} s"),
            Self::Before => format!("{} looks at files before have not ended", limits::LOOKS),
        };
        let message =
            format!("whether {host} has the files that domain {vm:?} needs is not known: {what}");
        Refusal::new(ErrorCode::OfLibvirt, message).next(format!(
            "see whether a file system of another machine hangs on {host}: `df` there does, too"
        ))
    }
}

fn missing(
    needs: &[DomainNeed],
    interfaces: &[String],
    exists: impl Fn(&Path) -> bool,
) -> Vec<String> {
    let missing = needs.iter().filter_map(|need| match need {
        DomainNeed::Path { path } => (!exists(path)).then(|| path.display().to_string()),
        DomainNeed::Interface { name } => {
            (!interfaces.contains(name)).then(|| format!("interface {name}"))
        }
        // Of a newer agent: libvirt finds out.
        DomainNeed::Unknown => None,
    });
    missing.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_and_what_nobody_can_look_for_is_left_to_libvirt() {
        let needs = [
            Need::Machine("pc-q35-10.0".to_owned()),
            Need::Emulator("/usr/bin/qemu".into()),
            Need::Bridge("br0".to_owned()),
            Need::Interface("eth0".to_owned()),
            Need::Storage("/shared/web.qcow2".into()),
            Need::Network("default".to_owned()),
        ];
        let told = told(&needs);
        assert_eq!(told.len(), 4);
        let has = |path: &Path| path == Path::new("/usr/bin/qemu");
        let lacks = missing(&told, &["eth0".to_owned()], has);
        assert_eq!(lacks, ["interface br0", "/shared/web.qcow2"]);
        assert_eq!(
            missing(&told, &["eth0".to_owned(), "br0".to_owned()], |_| true),
            [""; 0]
        );
    }

    #[tokio::test]
    async fn looks_that_hang_are_bounded_and_the_next_waits_for_one_that_ends() {
        let looks = Looks::default();
        let mut hanging = Vec::new();
        for _ in 0..limits::LOOKS {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            hanging.push(end);
            let mut looked = Box::pin(looks.one(move || ended.recv().is_err()));
            assert!(futures_util::poll!(looked.as_mut()).is_pending());
            // Whoever wanted it waits no longer from here on, and its thread goes on.
        }
        assert_eq!(looks.0.available_permits(), 0);
        let mut next = std::pin::pin!(looks.one(|| 7));
        assert!(futures_util::poll!(next.as_mut()).is_pending());
        drop(hanging);
        assert_eq!(next.await, Ok(7));
    }

    #[test]
    fn a_look_that_hangs_is_no_missing_file() {
        let told = |hang: Hang| hang.refusal(&"b".parse().unwrap(), "web").message;
        let why = "whether b has the files that domain \"web\" needs is not known: ";
        assert!(told(Hang::This).starts_with(why));
        assert!(told(Hang::Before).ends_with("4 looks at files before have not ended"));
    }
}
