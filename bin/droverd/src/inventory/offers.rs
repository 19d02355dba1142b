//! What the QEMU binaries of this host offer, asked again only when a file has changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use drover_hypervisor::{Hypervisor, Processors};
use drover_types::with_sources;
use tokio::sync::Mutex;

/// By which a binary that was replaced is noticed.
type Stamp = (SystemTime, u64);

/// Asks, and remembers.
#[derive(Debug)]
pub struct Offers {
    hypervisor: Arc<dyn Hypervisor>,
    /// Held while a binary is asked, so that it is asked once however many want to know.
    heard: Mutex<BTreeMap<PathBuf, (Stamp, Processors)>>,
}

impl Offers {
    /// With nothing heard yet.
    pub fn new(hypervisor: Arc<dyn Hypervisor>) -> Self {
        Self {
            hypervisor,
            heard: Mutex::default(),
        }
    }

    /// What each of these offers, as far as they answer, and which do not.
    pub async fn of(&self, binaries: &[PathBuf]) -> (Vec<Processors>, Vec<String>) {
        let mut heard = self.heard.lock().await;
        heard.retain(|binary, _| binaries.contains(binary));
        let (mut offers, mut notes) = (Vec::new(), Vec::new());
        for binary in binaries {
            let now = stamp(binary);
            let kept = heard.get(binary).filter(|(then, _)| Some(*then) == now);
            if let Some((_, offer)) = kept {
                offers.push(offer.clone());
                continue;
            }
            match self.hypervisor.processors(binary).await {
                Ok(offer) => {
                    if let Some(now) = now {
                        heard.insert(binary.clone(), (now, offer.clone()));
                    }
                    offers.push(offer);
                }
                Err(error) => notes.push(with_sources(&error)),
            }
        }
        (offers, notes)
    }
}

fn stamp(binary: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(binary).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    use drover_hypervisor::qmp::Version;
    use drover_hypervisor::{
        AdoptError, Boxed, Guest, InspectError, Machine, MachineType, ProcessId, Start, StartError,
    };

    /// Counts how often it is asked for processors, which is its version; of binaries that are there.
    #[derive(Debug, Default)]
    struct Counting(AtomicU32);

    impl Hypervisor for Counting {
        fn start<'a>(
            &'a self,
            _: &'a Guest,
            _: &'a Path,
            _: Start,
        ) -> Boxed<'a, Result<Arc<dyn Machine>, StartError>> {
            Box::pin(async { Err(StartError::AlreadyRunning { pid: 0 }) })
        }

        fn find(&self, _: &Path) -> Option<ProcessId> {
            None
        }

        fn last_words(&self, _: &Path) -> Vec<String> {
            Vec::new()
        }

        fn adopt<'a>(
            &'a self,
            process: ProcessId,
            _: &'a Path,
        ) -> Boxed<'a, Result<Arc<dyn Machine>, AdoptError>> {
            let (pid, stderr) = (process.pid, Vec::new());
            Box::pin(async move { Err(AdoptError::Gone { pid, stderr }) })
        }

        fn machine_types<'a>(
            &'a self,
            _: &'a Path,
        ) -> Boxed<'a, Result<Vec<MachineType>, InspectError>> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn processors<'a>(
            &'a self,
            binary: &'a Path,
        ) -> Boxed<'a, Result<Processors, InspectError>> {
            Box::pin(async move {
                if !binary.exists() {
                    let (binary, source) = (binary.to_owned(), std::io::ErrorKind::NotFound.into());
                    return Err(InspectError::Binary { binary, source });
                }
                let version = Version {
                    major: self.0.fetch_add(1, Ordering::Relaxed),
                    minor: 0,
                    micro: 0,
                };
                Ok(Processors {
                    version,
                    hardware: None,
                    emulated: None,
                })
            })
        }
    }

    #[tokio::test]
    async fn a_binary_is_asked_once_until_it_is_replaced_and_one_that_fails_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("qemu"), "1").unwrap();
        let binaries = [path("qemu"), path("gone")];
        let offers = Offers::new(Arc::new(Counting::default()));
        for _ in 0..3 {
            let (heard, notes) = offers.of(&binaries).await;
            assert_eq!((heard.len(), heard[0].version.major), (1, 0));
            assert_eq!(notes.len(), 1);
            assert!(notes[0].contains("gone"), "{notes:?}");
        }
        std::fs::write(path("qemu"), "12").unwrap();
        let (heard, _) = offers.of(&binaries).await;
        assert_eq!(heard[0].version.major, 1);
    }
}
