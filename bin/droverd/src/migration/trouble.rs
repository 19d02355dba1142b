//! What a person should know of a wait and the state machine does not: each is shown as what to do next for as long as it is so, and
//! told once as an event.

use std::collections::BTreeMap;

/// What does not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// To end what is not to come. It may be somebody else's guest by now.
    Ending,
    /// To have a domain run that stays.
    Keeping,
    /// To look at the guest.
    Looking,
}

/// What does not succeed now, and what was told of that.
#[derive(Debug, Default)]
pub struct Troubles {
    now: BTreeMap<About, String>,
    told: BTreeMap<About, String>,
}

impl Troubles {
    /// It does not succeed, and why. Whether that is to be told.
    pub fn hear(&mut self, about: About, why: &str) -> bool {
        self.now.insert(about, why.to_owned());
        let before = self.told.insert(about, why.to_owned());
        before.is_none_or(|before| before != why)
    }

    /// It has succeeded, or is not tried any more.
    pub fn is_over(&mut self, about: About) {
        self.now.remove(&about);
    }

    /// The first of them.
    pub fn shown(&self) -> Option<String> {
        self.now.values().next().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_succeed_is_told_once_and_shown_until_it_does() {
        let mut troubles = Troubles::default();
        assert_eq!(troubles.shown(), None);
        assert!(troubles.hear(About::Looking, "libvirt refuses"));
        assert!(!troubles.hear(About::Looking, "libvirt refuses"));
        assert!(troubles.hear(About::Ending, "it runs"));
        assert_eq!(troubles.shown().as_deref(), Some("it runs"));
        troubles.is_over(About::Ending);
        assert_eq!(troubles.shown().as_deref(), Some("libvirt refuses"));
        troubles.is_over(About::Looking);
        assert_eq!(troubles.shown(), None);
        assert!(!troubles.hear(About::Looking, "libvirt refuses"));
        assert!(troubles.hear(About::Looking, "it is not known"));
    }
}
