//! What has to work afterwards as it did before, and whether it does.

use drover_types::in_short;
use tokio::time::{Instant, sleep};

use super::Runner;
use crate::hands::{Hands, Measured, Paths};
use crate::limits::{PATHS, PROVE, PROVE_AGAIN, SETTLE, SETTLE_BOUNCED, SIZES};
use crate::record::{Outcome, Record};
use crate::sizes::unproved;

impl<H: Hands, P: Paths> Runner<'_, H, P> {
    /// How large packets cross before the first step.
    ///
    /// # Errors
    /// The plan has an interface take larger ones, and nothing would prove that these cross.
    pub(super) async fn measured(&self) -> Result<Measured, String> {
        let mut measured = self.paths.measure(SIZES).await;
        let more = measured.paths.len().saturating_sub(PATHS);
        if more > 0 {
            measured.paths.truncate(PATHS);
            let most = format!("{more} paths are beyond the {PATHS} that are proved");
            measured.untold.push(most);
        }
        measured.untold = measured.untold.into_iter().map(in_short).collect();
        let plan = &self.journal.account().order.plan;
        let Some(why) = unproved(plan, &measured.paths) else {
            return Ok(measured);
        };
        let untold = measured.untold.iter().map(|why| format!("; {why}"));
        Err(in_short(why + &untold.collect::<String>()))
    }

    /// Every path that worked works again and carries packets as large as before, and every link carries again that did, or all is taken
    /// back.
    pub(super) async fn prove(&mut self) {
        let proven = self.journal.standing().paths.len();
        let bounces = self.journal.account().order.plan.bounces();
        sleep(if bounces { SETTLE_BOUNCED } else { SETTLE }).await;
        let deadline = Instant::now() + PROVE;
        loop {
            let lost = self.lost().await;
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
    async fn lost(&self) -> Vec<String> {
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
        if lost.is_empty() {
            lost = self.smaller().await;
        }
        lost
    }

    /// Paths that do not carry packets as large as they have to, in words.
    async fn smaller(&self) -> Vec<String> {
        let account = self.journal.account();
        let (plan, before) = (&account.order.plan, &account.standing.sizes);
        if before.is_empty() {
            return Vec::new();
        }
        let now = self.paths.sizes(before, SIZES).await;
        // One that is not answered for carries nothing.
        let nothing = std::iter::repeat_with(|| Err("nothing was told of it".to_owned()));
        let both = before.iter().zip(now.into_iter().chain(nothing));
        both.filter_map(|(path, now)| path.lost(plan, now))
            .collect()
    }
}
