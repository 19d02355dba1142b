//! Sets and reads what steps say, on this host.

use std::path::Path;

use drover_change::{Hands, Performed};
use drover_host::change::{ChangeError, carries, current, perform};
use drover_host::network_manager;
use drover_tune::lasting::{End, NETWORK_MANAGER, Place, Rewrite};
use drover_tune::{Step, quoted};
use drover_types::with_sources;

/// This host's own files and kernel.
#[derive(Debug)]
pub struct ThisHost<'a> {
    /// Where its files are.
    pub root: &'a Path,
}

impl Hands for ThisHost<'_> {
    async fn current(&self, step: &Step) -> Result<String, String> {
        let read = current(self.root, step).await;
        read.map_err(|error| with_sources(&error))
    }

    async fn perform(&self, step: &Step, to: End) -> Result<Performed, String> {
        match perform(self.root, step, to).await {
            Ok(()) => Ok(Performed::Done),
            Err(error @ ChangeError::Managed { .. }) => {
                Ok(Performed::PassedBy(with_sources(&error)))
            }
            Err(error) => Err(with_sources(&error)),
        }
    }

    async fn carries(&self, nic: &str) -> Result<bool, String> {
        carries(nic).await
    }

    async fn place(&self, path: &str) -> Result<Place, String> {
        let found = drover_host::place(self.root, path);
        found.map_err(|error| with_sources(&error))
    }

    async fn put(&self, file: &Rewrite, to: End) -> Result<(), String> {
        let done = drover_host::put(self.root, file, to);
        done.map_err(|error| with_sources(&error))
    }

    async fn goes_by(&self, file: &Rewrite) -> Result<(), String> {
        let over = match file.by == NETWORK_MANAGER {
            true => drover_host::shadow(self.root, &file.after),
            false => None,
        };
        over.map_or(Ok(()), |over| {
            Err(format!(
                "NetworkManager goes by {over}: somebody has changed the profile in its memory alone"
            ))
        })
    }

    async fn reread(&self, files: &[&Rewrite]) -> Result<(), String> {
        // By a file that is gone NetworkManager takes a link down; no change makes one, so that none is removed either.
        let its = |file: &&&Rewrite| file.by == NETWORK_MANAGER && file.before.is_some();
        let paths = files.iter().filter(its).map(|file| file.path.as_str());
        let paths: Vec<&str> = paths.collect();
        if paths.is_empty() {
            return Ok(());
        }
        let loaded = network_manager::load(&paths).await;
        loaded.map_err(|error| {
            let paths: Vec<String> = paths.iter().map(|path| quoted(path)).collect();
            let (paths, error) = (paths.join(" "), with_sources(&error));
            format!("{error}; `nmcli connection load {paths}` has it read what is there")
        })
    }

    async fn tidy(&self, path: &str) -> Result<(), String> {
        drover_host::tidy(self.root, path).map_err(|error| with_sources(&error))
    }
}
