//! What would be changed, and what would make it last.

use std::path::Path;

use drover_api::{
    ChangeLastingHow, ChangeLastingView, ChangeLeftOut, ChangeNotKept, ChangePlanRequest,
    ChangePlanView, Refusal,
};
use drover_change::{LeftOut, Plan};
use drover_tune::Step;
use drover_tune::lasting::{How, Lasting, NotKept, lasting};
use jiff::Timestamp;

use super::{Changes, ROOT, boot, internal};
use crate::doctor;

impl Changes {
    /// What would be changed, by what is found now.
    ///
    /// # Errors
    /// The host's facts cannot be read.
    pub async fn plan(&self, request: ChangePlanRequest) -> Result<ChangePlanView, Refusal> {
        let read = doctor::host(&self.context).await?;
        let report = drover_tune::examine(&[read], &[]);
        let boot = boot()?;
        let of = (self.host(), boot.as_str());
        let (plan, left_out) = Plan::of(&report, of, Timestamp::now(), request.bounce);
        let steps = plan.steps().count();
        let text = (steps > 0).then(|| drover_change::write(&plan));
        let (lasting, not_kept) = if request.lasting {
            tokio::task::block_in_place(|| what_lasts(&plan))
        } else {
            Default::default()
        };
        Ok(ChangePlanView {
            plan: text.transpose().map_err(|error| internal(&error))?,
            changes: plan.changes.len(),
            steps,
            left_out: left_out.into_iter().map(left).collect(),
            lasting: lasting.into_iter().map(lasts).collect(),
            not_kept: not_kept.into_iter().map(does_not).collect(),
        })
    }
}

fn what_lasts(plan: &Plan) -> (Vec<Lasting>, Vec<NotKept>) {
    let mut nics: Vec<&str> = plan.steps().filter_map(nic).collect();
    nics.sort_unstable();
    nics.dedup();
    let owners = drover_host::owners(Path::new(ROOT), &nics);
    lasting(plan.steps(), &owners)
}

fn nic(step: &Step) -> Option<&str> {
    match step {
        Step::Nic { nic, .. } => Some(nic),
        Step::File { .. } => None,
    }
}

fn left(left: LeftOut) -> ChangeLeftOut {
    ChangeLeftOut {
        rule: left.rule,
        nic: left.nic,
        why: left.why,
    }
}

fn lasts(lasting: Lasting) -> ChangeLastingView {
    let (how, file, part, lines) = match lasting.how {
        How::File { path, lines } => (ChangeLastingHow::File, Some(path), None, lines),
        How::Lines { path, part, lines } => (ChangeLastingHow::Lines, Some(path), part, lines),
        How::Commands(lines) => (ChangeLastingHow::Commands, None, None, lines),
    };
    ChangeLastingView {
        by: lasting.by.to_owned(),
        how,
        file,
        part,
        lines,
    }
}

fn does_not(not_kept: NotKept) -> ChangeNotKept {
    ChangeNotKept {
        step: not_kept.step,
        why: not_kept.why,
    }
}
