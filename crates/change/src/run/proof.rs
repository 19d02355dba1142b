//! What has to work afterwards as it did before, and whether it does.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_types::in_short;
use tokio::time::{Instant, sleep};

use super::Runner;
use crate::hands::{Hands, Paths, Unknown, Untold};
use crate::limits::{
    NIC_BYTES, OPENED, PATHS, PROVE, PROVE_AGAIN, SETTLE, SETTLE_BOUNCED, SIZES, UNTOLD,
};
use crate::order::PathTo;
use crate::raised::Raised;
use crate::record::{Outcome, Record};
use crate::sizes::PathSizes;

impl<H: Hands, P: Paths> Runner<'_, H, P> {
    /// By which of these the other host's agent opens a connection to this one, before the first step, and of which it does not or that is not
    /// known, in words.
    pub(super) async fn opened(&self, works: &[PathTo]) -> (Vec<PathTo>, Vec<String>) {
        let mut opened = Vec::new();
        // Of a host that does not tell it is said once.
        let mut unopened = BTreeSet::new();
        for (path, told) in self.told_twice(works).await {
            match told {
                Ok(true) => opened.push(path.clone()),
                Ok(false) => {
                    unopened.insert(format!("{}: none was opened before, either", inward(path)));
                }
                Err(why) => {
                    unopened.insert(why);
                }
            }
        }
        (opened, in_words(unopened.iter().map(String::as_str)))
    }

    /// Asks once more for those of which none is opened: one packet that is lost leaves a path unproved otherwise.
    async fn told_twice<'p>(&self, paths: &'p [PathTo]) -> Vec<(&'p PathTo, Result<bool, String>)> {
        let end = Instant::now() + OPENED;
        let mut told = self.told(paths, OPENED).await;
        let shut = |(_, told): &&(&PathTo, Result<bool, String>)| *told == Ok(false);
        let shut: Vec<PathTo> = told
            .iter()
            .filter(shut)
            .map(|(path, _)| (*path).clone())
            .collect();
        let left = end.saturating_duration_since(Instant::now());
        let again = self.told(&shut, left).await;
        let first = told.iter_mut().filter(|(_, told)| *told == Ok(false));
        for ((_, told), (_, again)) in first.zip(again) {
            // Whoever does not tell any more has told that it opened none.
            *told = Ok(again == Ok(true));
        }
        told
    }

    async fn told<'p>(
        &self,
        paths: &'p [PathTo],
        within: Duration,
    ) -> Vec<(&'p PathTo, Result<bool, String>)> {
        if paths.is_empty() {
            return Vec::new();
        }
        let told = self.paths.opened(paths, within).await;
        // One that is not answered for is not known.
        let nothing = std::iter::repeat_with(|| Err("nothing was told of it".to_owned()));
        paths.iter().zip(told.into_iter().chain(nothing)).collect()
    }

    /// How large packets cross before the first step, and of what that is not known, in words. These paths work.
    ///
    /// # Errors
    /// The plan has an interface take larger ones, and nothing would prove that these cross.
    pub(super) async fn measured(
        &self,
        works: &[PathTo],
    ) -> Result<(Vec<PathSizes>, Vec<String>), String> {
        let mut measured = self.paths.measure(SIZES).await;
        let plan = &self.journal.account().order.plan;
        let layers = std::mem::take(&mut measured.layers);
        let raised = Raised {
            plan,
            layers: &layers,
        };
        for path in &mut measured.paths {
            path.over = raised.over(&path.nic);
        }
        // What is to be proved most comes first.
        measured
            .paths
            .sort_by_key(|path| raised.larger(&path.nic).is_none());
        let untold = left_out(&mut measured.paths);
        measured.untold.extend(untold);
        let untold = in_words(measured.untold.iter().map(|untold| untold.why.as_str()));
        match raised.unproved(works, &measured) {
            None => Ok((measured.paths, untold)),
            Some(why) => {
                let untold = untold.iter().map(|why| format!("; {why}"));
                Err(in_short(why + &untold.collect::<String>()))
            }
        }
    }

    /// Every path that worked works again, both ways where it did, and carries packets as large as before, and every link carries again that
    /// did, or all is taken back.
    pub(super) async fn prove(&mut self) {
        let proven = self.journal.standing().paths.len();
        let bounces = self.journal.account().order.plan.bounces();
        sleep(if bounces { SETTLE_BOUNCED } else { SETTLE }).await;
        let deadline = Instant::now() + PROVE;
        // Of those in which large packets were asked for.
        let mut attempt = 0;
        loop {
            let lost = self.lost(&mut attempt).await;
            if lost.is_empty() {
                if self.journal.account().order.files().is_empty() {
                    self.succeed(proven);
                } else if !self.note(Record::Proved) {
                    self.roll_back("its journal cannot be written".to_owned());
                }
                return;
            }
            if Instant::now() + PROVE_AGAIN >= deadline {
                let seconds = PROVE.as_secs();
                let lost = lost.join("; ");
                self.roll_back(format!("what has to work did not for {seconds} s: {lost}"));
                return;
            }
            sleep(PROVE_AGAIN).await;
        }
    }

    pub(super) fn succeed(&mut self, proven: usize) {
        if !self.end(Outcome::Applied { proven }) {
            // The next process would go back: it is not to be heard of as done now.
            let why = "its journal cannot be written".to_owned();
            self.note(Record::RollBack { why });
        }
    }

    /// What has to work and does not now, in words.
    async fn lost(&self, attempt: &mut u32) -> Vec<String> {
        let standing = self.journal.standing();
        let work = self.paths.work(&standing.paths).await;
        // One that is not answered for does not work.
        let work = work.into_iter().chain(std::iter::repeat(false));
        let both = standing.paths.iter().zip(work);
        let mut lost: Vec<String> = both
            .filter(|(_, works)| !works)
            .map(|(path, _)| path.to_string())
            .collect();
        for nic in &standing.carriers {
            match self.carries(nic).await {
                Ok(true) => {}
                Ok(false) => lost.push(format!("the carrier of {nic}")),
                Err(why) => lost.push(why),
            }
        }
        let end = Instant::now() + SIZES;
        if lost.is_empty() {
            lost = self.shut(SIZES).await;
        }
        if lost.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            lost = self.smaller(*attempt, left).await;
            *attempt += 1;
        }
        lost
    }

    /// Paths by which the other host's agent opens no connection to this one any more, in words: one that does not tell opens none.
    async fn shut(&self, within: Duration) -> Vec<String> {
        let told = self.told(&self.journal.standing().opened, within).await;
        let why = |(path, told): (&PathTo, Result<bool, String>)| match told {
            Ok(true) => None,
            Ok(false) => Some(inward(path)),
            Err(why) => Some(format!("{}: {why}", inward(path))),
        };
        told.into_iter().filter_map(why).collect()
    }

    /// Paths that do not carry packets as large as they have to, in words.
    async fn smaller(&self, attempt: u32, within: Duration) -> Vec<String> {
        let account = self.journal.account();
        let (plan, before) = (&account.order.plan, &account.standing.sizes);
        if before.is_empty() {
            return Vec::new();
        }
        let now = self.paths.sizes(before, attempt, within).await;
        // One that is not answered for carries nothing.
        let nothing = std::iter::repeat_with(|| Err("nothing was told of it".to_owned()));
        let both = before.iter().zip(now.into_iter().chain(nothing));
        both.filter_map(|(path, now)| path.lost(plan, now))
            .collect()
    }
}

/// What the other host's agent opens by a path.
fn inward(path: &PathTo) -> String {
    let (host, from, to, nic) = (&path.host, path.to.ip(), path.from, &path.nic);
    format!("a connection that {host} opens from {from} to {to} of {nic}")
}

/// Takes those out that the journal has no room for.
fn left_out(paths: &mut Vec<PathSizes>) -> Vec<Untold> {
    let untold = |path: PathSizes, why: String| Untold {
        why: format!("{} to {}: {why}", path.nic, path.host),
        of: Unknown::Path {
            host: path.host,
            nic: path.nic,
        },
    };
    let strange = paths.extract_if(.., |path| path.far_nic.len() > NIC_BYTES);
    let strange = strange.map(|path| {
        let bytes = path.far_nic.len();
        let why = format!(
            "the name of its interface there has {bytes} bytes, and a kernel has {NIC_BYTES} at most"
        );
        untold(path, why)
    });
    let mut all: Vec<Untold> = strange.collect();
    let beyond = paths.split_off(PATHS.min(paths.len())).into_iter();
    all.extend(beyond.map(|path| {
        let why = format!("it is beyond the {PATHS} paths that are proved");
        untold(path, why)
    }));
    all
}

fn in_words<'w>(why: impl ExactSizeIterator<Item = &'w str>) -> Vec<String> {
    let more = why.len().saturating_sub(UNTOLD);
    let mut words: Vec<String> = why.take(UNTOLD).map(in_short).collect();
    if more > 0 {
        words.push(format!("and {more} more paths or hosts"));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::Sizes;

    #[test]
    fn what_the_journal_has_no_room_for_is_left_out_and_said() {
        let path = |far_nic: &str| PathSizes {
            host: "b".parse().unwrap(),
            nic: "nic0".into(),
            from: "10.0.0.1".parse().unwrap(),
            far_nic: far_nic.into(),
            to: "10.0.0.2".parse().unwrap(),
            mtu: 1500,
            over: Default::default(),
            sizes: Sizes {
                there: 1500,
                back: 1500,
            },
        };
        let mut paths = vec![path("a-name-of-16-by"), path("a-name-of-16-byt")];
        let untold = left_out(&mut paths);
        assert_eq!(paths, [path("a-name-of-16-by")]);
        let words = in_words(untold.iter().map(|untold| untold.why.as_str()));
        assert!(
            words[0].starts_with("nic0 to b: the name of its interface"),
            "{words:?}"
        );
        let mut paths = vec![path("nic0"); PATHS + UNTOLD + 7];
        let untold = left_out(&mut paths);
        assert_eq!((paths.len(), untold.len()), (PATHS, UNTOLD + 7));
        let words = in_words(untold.iter().map(|untold| untold.why.as_str()));
        assert_eq!(words.len(), UNTOLD + 1);
        assert_eq!(words.last().unwrap(), "and 7 more paths or hosts");
    }
}
