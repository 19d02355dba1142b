//! Whether a plan that comes back from a file is the one that was made, and still the one to apply.

use drover_types::HostName;

use crate::digest::Digest;
use crate::inventory::Inventory;
use crate::plan::Plan;
use crate::policy::ClusterPolicy;
use crate::request::Request;

/// Why a plan is not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotThisPlan {
    /// It was changed after it was made.
    #[error(
        "plan {} was changed after it was made: a plan is applied as it is or made anew, with another policy \
         or request",
        sealed.short()
    )]
    Edited {
        /// The seal that it carries.
        sealed: Digest,
        /// The seal that its content has.
        found: Digest,
    },
    /// What it was made from is no longer so.
    #[error(
        "the cluster is no longer as it was when this plan was made (then {}, now {}): hosts, VMs or \
         policies have changed; plan again{}",
        made_from.short(),
        now.short(),
        about(request)
    )]
    Outdated {
        /// The digest of what it was made from.
        made_from: Digest,
        /// The digest of what there is now.
        now: Digest,
        /// What was asked for.
        request: Box<Request>,
    },
}

fn about(request: &Request) -> String {
    let names = |hosts: &mut dyn Iterator<Item = &HostName>| {
        let names: Vec<String> = hosts.map(ToString::to_string).collect();
        names.join(" ")
    };
    match request {
        Request::Drain { hosts, .. } => format!(" to drain {}", names(&mut hosts.iter())),
        Request::Resume { host, .. } => format!(" to resume {host}"),
        Request::Rebalance { .. } => " to rebalance".to_owned(),
    }
}

impl Plan {
    /// Whether this plan is as it was made.
    ///
    /// # Errors
    /// [`NotThisPlan::Edited`].
    pub fn check_seal(&self) -> Result<(), NotThisPlan> {
        let found = Digest::of_plan(self);
        let sealed = self.seal;
        if found == sealed {
            Ok(())
        } else {
            Err(NotThisPlan::Edited { sealed, found })
        }
    }

    /// Whether this plan is as it was made and the cluster is still as it was then.
    ///
    /// # Errors
    /// What has changed: the plan or the cluster.
    pub fn verify(&self, inventory: &Inventory, policy: &ClusterPolicy) -> Result<(), NotThisPlan> {
        self.check_seal()?;
        let now = Digest::of_inputs(inventory, policy, &self.request);
        if now != self.inputs {
            return Err(NotThisPlan::Outdated {
                made_from: self.inputs,
                now,
                request: Box::new(self.request.clone()),
            });
        }
        Ok(())
    }
}
