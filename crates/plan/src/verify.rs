//! Whether a plan that comes back from a file is the one that was made, and still the one to apply.

use drover_types::{Bytes, HostName};

use crate::digest::Digest;
use crate::inventory::Inventory;
use crate::model::Model;
use crate::plan::Plan;
use crate::policy::ClusterPolicy;
use crate::request::Request;
use crate::state::State;
use crate::words::Text;

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
    /// Others than guests use more of a host than when it was made.
    #[error(
        "host {host} has {lacking} less for guests than this plan needs there: others use more of it than when the plan was made; plan again{}",
        about(request)
    )]
    NoRoom {
        /// The host.
        host: HostName,
        /// What is missing.
        lacking: Bytes,
        /// What was asked for.
        request: Box<Request>,
    },
    /// Less is free for disks that come to a host than when it was made.
    #[error(
        "host {host} has {lacking} less in {folder} than this plan needs there for disks: it has filled up since the plan was made; plan again{}",
        about(request)
    )]
    NoDiskRoom {
        /// The host.
        host: HostName,
        /// The folder, or another one on its file system.
        folder: Text,
        /// What is missing.
        lacking: Bytes,
        /// What was asked for.
        request: Box<Request>,
    },
}

fn about(request: &Request) -> String {
    let names = |hosts: &mut dyn Iterator<Item = &HostName>| {
        let names: Vec<String> = hosts.map(ToString::to_string).collect();
        names.join(" ")
    };
    let about = match request {
        Request::Drain { hosts, .. } => format!(" to drain {}", names(&mut hosts.iter())),
        Request::Resume { host, .. } => format!(" to resume {host}"),
        Request::Rebalance { .. } => " to rebalance".to_owned(),
    };
    match request.with_disks() {
        true => about + " with local disks",
        false => about,
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

    /// Whether this plan is as it was made, the cluster is still as it was then, and there is room still.
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
        self.lacking(inventory, policy).map_or(Ok(()), Err)
    }

    /// A host that is too full by now at some moment of this plan, made from the same facts.
    fn lacking(&self, inventory: &Inventory, policy: &ClusterPolicy) -> Option<NotThisPlan> {
        let model = Model::new(inventory, policy, &self.request);
        let mut state = State::now(&model);
        let jobs = self.steps.iter().filter_map(|step| {
            let ends = [model.host(&step.from)?, model.host(&step.to)?];
            Some((step.wave, model.vm(&step.vm)?, ends))
        });
        let jobs: Vec<_> = jobs.collect();
        for wave in jobs.chunk_by(|one, other| one.0 == other.0) {
            for (_, vm, [_, to]) in wave {
                state.put(*vm, *to);
            }
            for (_, _, [_, to]) in wave {
                let (host, lacking) = (model.hosts[*to].name.clone(), Bytes(state.lacks(*to)));
                let request = Box::new(self.request.clone());
                if lacking.0 > 0 {
                    return Some(NotThisPlan::NoRoom {
                        host,
                        lacking,
                        request,
                    });
                }
                if let Some((folder, lacking)) = state.lacks_for_disks(*to) {
                    return Some(NotThisPlan::NoDiskRoom {
                        host,
                        folder: folder.clone(),
                        lacking: Bytes(lacking),
                        request,
                    });
                }
            }
            for (_, vm, [from, _]) in wave {
                state.lift(*vm, *from);
            }
        }
        None
    }
}
