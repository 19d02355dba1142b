use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use drover_libvirt::{CallError, Ready, Why};
use drover_types::with_sources;
use tokio::sync::watch;

use super::advice::advice;

/// What is known of a migration that libvirt was asked for, or was not yet. Whoever has a clone hears how it ends.
#[derive(Debug, Clone)]
pub struct Call {
    stands: watch::Sender<Stands>,
    beside: Arc<Beside>,
}

/// What counts where libvirt does not answer.
#[derive(Debug, Default)]
struct Beside {
    /// Nobody watched it for a while: an agent before this one had begun it.
    of_before: bool,
    session_ended: AtomicBool,
    in_doubt: AtomicBool,
}

/// How it stands, by the call's own answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stands {
    /// libvirt was not asked.
    NotBegun,
    /// libvirt carries it out.
    UnderWay,
    /// libvirt has let go of the domain here: the destination has all of it.
    HasLeft,
    /// libvirt says that it failed, and why.
    Failed(String),
    /// The answer did not come, and why: what libvirt shows of the domain has to tell.
    Unanswered(String),
}

impl Call {
    pub fn new(stands: Stands) -> Self {
        Self {
            stands: watch::Sender::new(stands),
            beside: Arc::default(),
        }
    }

    /// One that an agent before this one had begun.
    pub fn of_before() -> Self {
        let why = "the agent was started again while libvirt migrated it".to_owned();
        let beside = Beside {
            of_before: true,
            ..Beside::default()
        };
        Self {
            stands: watch::Sender::new(Stands::Unanswered(why)),
            beside: Arc::new(beside),
        }
    }

    pub fn stands(&self) -> Stands {
        self.stands.borrow().clone()
    }

    /// Follows it from now on.
    pub fn follow(&self) -> watch::Receiver<Stands> {
        self.stands.subscribe()
    }

    /// Asks libvirt, unless it was [decided](Self::never) meanwhile that nobody does.
    ///
    /// # Errors
    /// It was, and why.
    pub fn begin(&self, ready: Ready) -> Result<(), String> {
        let mut ready = Some(ready);
        let mut migrating = None;
        // Whoever decides that waits for its turn, or has had it.
        self.stands.send_if_modified(|now| {
            if *now != Stands::NotBegun {
                return false;
            }
            *now = Stands::UnderWay;
            migrating = ready.take().map(Ready::begin);
            true
        });
        let Some(migrating) = migrating else {
            return self.may_begin();
        };
        let teller = self.stands.clone();
        tokio::spawn(async move {
            let ended = migrating.ended().await;
            teller.send_replace(ended.into());
        });
        Ok(())
    }

    /// Whether libvirt may be asked.
    ///
    /// # Errors
    /// It may not any more, and why.
    pub fn may_begin(&self) -> Result<(), String> {
        match self.stands() {
            Stands::NotBegun => Ok(()),
            Stands::Failed(why) => Err(why),
            Stands::UnderWay | Stands::HasLeft | Stands::Unanswered(_) => {
                Err("it was asked for already".to_owned())
            }
        }
    }

    /// Libvirt is not asked any more, if it was not: whoever is about to finds that. Whether that is so.
    pub fn never(&self, why: &str) -> bool {
        self.stands.send_if_modified(|now| {
            let is_first = *now == Stands::NotBegun;
            if is_first {
                *now = Stands::Failed(why.to_owned());
            }
            is_first
        })
    }

    /// Something else tells how it ended than the answer.
    pub fn settle(&self, stands: Stands) {
        self.doubts(false);
        self.stands.send_if_modified(|now| {
            let is_new = *now != stands;
            *now = stands;
            is_new
        });
    }

    /// What libvirt's daemons tell each other can be lost from now on.
    pub fn session_ended(&self) {
        self.beside.session_ended.store(true, Ordering::Relaxed);
    }

    /// Whether that may have been lost.
    pub fn has_session_ended(&self) -> bool {
        self.beside.session_ended.load(Ordering::Relaxed)
    }

    /// Whether it may have run on here though all of it was at the destination, where libvirt shows it off for this reason. libvirt
    /// has it run on where its answer was lost. It says as well of one that ran on that its hypervisor ended by itself, also without
    /// having been started again: who has not watched it cannot tell.
    pub fn may_have_run_on(&self, off: Option<Why>) -> bool {
        let unseen = self.beside.of_before && off == Some(Why::Crashed);
        unseen || self.has_session_ended()
    }

    /// Whether nobody here can tell how it ended.
    pub fn doubts(&self, in_doubt: bool) {
        self.beside.in_doubt.store(in_doubt, Ordering::Relaxed);
    }

    /// The same, as it was told last.
    pub fn is_in_doubt(&self) -> bool {
        self.beside.in_doubt.load(Ordering::Relaxed)
    }
}

impl From<Result<(), CallError>> for Stands {
    fn from(ended: Result<(), CallError>) -> Self {
        match ended {
            Ok(()) => Self::HasLeft,
            Err(error @ (CallError::Lost { .. } | CallError::TimedOut { .. })) => {
                Self::Unanswered(with_sources(&error))
            }
            Err(error) => {
                let advice = match &error {
                    CallError::Refused { source, .. } => advice(source),
                    _ => None,
                };
                let advice = advice.map(|what| format!(". What to do: {what}"));
                Self::Failed(with_sources(&error) + &advice.unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_libvirt::{Closed, Refusal};

    #[test]
    fn what_is_given_up_before_libvirt_was_asked_is_never_asked_for() {
        let call = Call::new(Stands::NotBegun);
        assert_eq!(call.may_begin(), Ok(()));
        assert!(call.never("it was cancelled"));
        assert_eq!(call.may_begin(), Err("it was cancelled".to_owned()));
        assert!(!call.never("its migration ended"));
        let begun = Call::new(Stands::UnderWay);
        assert!(!begun.never("it was cancelled"));
        assert_eq!(begun.stands(), Stands::UnderWay);
        assert!(begun.may_begin().is_err());
    }

    #[test]
    fn a_domain_may_have_run_on_where_a_word_was_lost_or_its_end_was_not_watched() {
        let watched = Call::new(Stands::UnderWay);
        let taken_up = Call::of_before();
        assert!(matches!(taken_up.stands(), Stands::Unanswered(_)));
        for off in [None, Some(Why::Unfollowed), Some(Why::Other(0))] {
            assert!(!watched.may_have_run_on(off), "{off:?}");
            assert!(!taken_up.may_have_run_on(off), "{off:?}");
        }
        assert!(!watched.may_have_run_on(Some(Why::Crashed)));
        assert!(taken_up.may_have_run_on(Some(Why::Crashed)));
        watched.session_ended();
        assert!(watched.may_have_run_on(None));
    }

    #[test]
    fn only_libvirts_own_word_is_an_end() {
        let what = "migrate a domain";
        assert_eq!(Stands::from(Ok(())), Stands::HasLeft);
        let source = Refusal {
            words: "unsupported CPU".to_owned(),
            domain: 10,
            code: 91,
        };
        let Stands::Failed(words) = Stands::from(Err(CallError::Refused { what, source })) else {
            panic!();
        };
        assert!(words.contains("unsupported CPU"), "{words}");
        assert!(words.contains("What to do: give"), "{words}");
        let source = Closed::ByLibvirtd;
        let lost = Stands::from(Err(CallError::Lost { what, source }));
        assert!(matches!(lost, Stands::Unanswered(_)), "{lost:?}");
    }
}
