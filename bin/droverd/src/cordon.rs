//! Whether this host takes guests. What a person said of that outlives the agent.
//!
//! # Invariant
//! What is told is on disk. Where a disk fails in the middle of a change, the next start may find either.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use drover_api::{CordonRequest, CordonView, ErrorCode, Refusal};
use drover_types::{HostName, RunId};
use jiff::Timestamp;

use crate::registry::files;

/// The word of this host.
#[derive(Debug)]
pub struct Cordon {
    host: HostName,
    file: PathBuf,
    now: Mutex<Option<CordonView>>,
}

impl Cordon {
    /// As it was left below the agent's state directory.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn open(host: HostName, state: &Path) -> io::Result<Self> {
        let file = state.join("cordon.json");
        let now = files::read_document(&file)?;
        Ok(Self {
            host,
            file,
            now: Mutex::new(now),
        })
    }

    /// Since when it takes none; none when it does.
    pub fn view(&self) -> Option<CordonView> {
        let now = self.now.lock();
        now.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes no guests from now on. Asked again it keeps its beginning, and takes a person's reason; without one that of
    /// a run goes, for the run would lift what a person wants to stay. A run changes nothing of a cordon that is there.
    ///
    /// # Errors
    /// The reason cannot be used, or the word not be kept; then nothing has changed.
    pub fn set(&self, request: CordonRequest) -> Result<(), Refusal> {
        if let Some(problem) = request.problem() {
            return Err(Refusal::new(ErrorCode::BadRequest, problem));
        }
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let before = now.clone();
        if before.is_some() && request.reason.as_deref().is_some_and(is_of_run) {
            return Ok(());
        }
        let since = before
            .as_ref()
            .map_or_else(Timestamp::now, |view| view.since);
        let reason = before.and_then(|view| view.reason);
        let reason = reason.filter(|reason| !is_of_run(reason));
        let reason = request.reason.or(reason);
        let view = CordonView { since, reason };
        let text = serde_json::to_vec_pretty(&view).map_err(io::Error::other);
        let kept = text.and_then(|text| files::write_whole(&self.file, &text));
        kept.map_err(|error| self.not_kept(&error))?;
        tracing::info!(reason = view.reason, "cordoned: no guests are taken");
        *now = Some(view);
        Ok(())
    }

    /// Takes guests again.
    ///
    /// # Errors
    /// The word cannot be kept; then nothing has changed.
    pub fn lift(&self) -> Result<(), Refusal> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        files::remove(&self.file).map_err(|error| self.not_kept(&error))?;
        if now.take().is_some() {
            tracing::info!("uncordoned: guests are taken again");
        }
        Ok(())
    }

    /// Refuses a guest, if none are taken.
    ///
    /// # Errors
    /// None are.
    pub fn check(&self) -> Result<(), Refusal> {
        let Some(CordonView { since, reason }) = self.view() else {
            return Ok(());
        };
        let host = &self.host;
        let why = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        let message = format!("{host} is cordoned since {since:.0}{why}: it takes no guests");
        Err(Refusal::new(ErrorCode::HostCordoned, message).next(format!(
            "choose another host, or run `drover uncordon` on {host}"
        )))
    }

    fn not_kept(&self, error: &io::Error) -> Refusal {
        let message = format!("{} cannot be changed: {error}", self.file.display());
        Refusal::new(ErrorCode::Internal, message)
    }
}

/// The reason that a run gives, by which it knows its own cordon again.
pub fn reason_of(run: RunId) -> String {
    format!("run {run}")
}

fn is_of_run(reason: &str) -> bool {
    let run = reason.strip_prefix("run ");
    run.is_some_and(|id| id.parse::<RunId>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(state: &Path) -> Cordon {
        Cordon::open("a".parse().unwrap(), state).unwrap()
    }

    fn because(reason: &str) -> CordonRequest {
        let reason = Some(reason.to_owned());
        CordonRequest { reason }
    }

    #[test]
    fn a_cordon_outlives_the_agent_and_keeps_its_beginning() {
        let state = tempfile::tempdir().unwrap();
        let cordon = open(state.path());
        cordon.check().unwrap();
        cordon.lift().unwrap();
        cordon.set(because("new memory")).unwrap();
        let first = cordon.view().unwrap();
        cordon.set(CordonRequest::default()).unwrap();
        assert_eq!(cordon.view().unwrap(), first);
        let again = open(state.path());
        assert_eq!(again.view().unwrap(), first);
        let refused = again.check().unwrap_err();
        assert_eq!(refused.code, ErrorCode::HostCordoned);
        assert!(refused.message.contains("new memory"), "{refused}");
        again.lift().unwrap();
        assert_eq!(open(state.path()).view(), None);
    }

    #[test]
    fn a_persons_cordon_is_no_longer_a_runs_to_lift() {
        let state = tempfile::tempdir().unwrap();
        let cordon = open(state.path());
        let run = "01a2089d-2a9a-704b-aa0d-ffdf218a0689".parse().unwrap();
        cordon.set(because(&reason_of(run))).unwrap();
        cordon.set(CordonRequest::default()).unwrap();
        assert_eq!(cordon.view().unwrap().reason, None);
        cordon.set(because("run the new cable")).unwrap();
        cordon.set(CordonRequest::default()).unwrap();
        let kept = cordon.view().unwrap().reason;
        assert_eq!(kept.as_deref(), Some("run the new cable"));
    }

    #[test]
    fn a_run_takes_over_no_cordon_that_is_there() {
        let state = tempfile::tempdir().unwrap();
        let cordon = open(state.path());
        cordon.set(CordonRequest::default()).unwrap();
        let person = cordon.view().unwrap();
        let run = "01a2089d-2a9a-704b-aa0d-ffdf218a0689".parse().unwrap();
        cordon.set(because(&reason_of(run))).unwrap();
        assert_eq!(cordon.view().unwrap(), person);
    }

    #[test]
    fn what_cannot_be_kept_is_not_said() {
        let state = tempfile::tempdir().unwrap();
        let cordon = open(state.path());
        std::fs::create_dir(state.path().join("cordon.json.new")).unwrap();
        let refused = cordon.set(CordonRequest::default()).unwrap_err();
        assert!(refused.message.contains("cordon.json"), "{refused}");
        assert_eq!(cordon.view(), None);
        std::fs::write(state.path().join("cordon.json"), "{").unwrap();
        assert!(Cordon::open("a".parse().unwrap(), state.path()).is_err());
    }
}
