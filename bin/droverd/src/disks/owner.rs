use drover_types::VmName;
use uuid::Uuid;

/// Whose disks they are: what it left on a host it may find replaced there, and nobody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// A domain of libvirt's, by its id.
    Domain(Uuid),
    /// A guest of the agent's own.
    Guest(VmName),
}

impl Owner {
    /// Nobody, for what is to replace nothing: no guest has the id of something that is done.
    pub fn nobody(done: Uuid) -> Self {
        Self::Domain(done)
    }

    /// The name of its file among those of all of them: no domain's id begins as a guest's does.
    pub fn file(&self) -> String {
        match self {
            Self::Domain(id) => format!("{id}.json"),
            Self::Guest(name) => format!("guest-{name}.json"),
        }
    }
}
