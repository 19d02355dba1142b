//! What would be changed, and what would make it last.

use drover_api::{ChangeLeftOut, ChangePlanRequest, ChangePlanView, Refusal};
use drover_change::{LeftOut, Plan};
use jiff::Timestamp;

use super::lasting::Found;
use super::{Changes, boot, internal};
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
        let (mut plan, left_out) = Plan::of(&report, of, Timestamp::now(), request.bounce);
        let steps = plan.steps().count();
        let lasting = match request.lasting {
            true => Some(Found::of(&plan).await),
            false => None,
        };
        plan.lasting = lasting.as_ref().map(Found::files);
        let text = (steps > 0).then(|| drover_change::write(&plan));
        let (lasting, not_kept) = lasting.map(Found::shown).unwrap_or_default();
        Ok(ChangePlanView {
            plan: text.transpose().map_err(|error| internal(&error))?,
            changes: plan.changes.len(),
            steps,
            left_out: left_out.into_iter().map(left).collect(),
            lasting,
            not_kept,
        })
    }
}

fn left(left: LeftOut) -> ChangeLeftOut {
    ChangeLeftOut {
        rule: left.rule,
        nic: left.nic,
        why: left.why,
    }
}
