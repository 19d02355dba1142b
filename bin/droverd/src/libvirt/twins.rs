//! Guests of the agent's and domains of libvirt's that may be the same guest.

use drover_api::VmDefinition;
use drover_types::VmName;
use uuid::Uuid;

/// A guest of the agent's, by what a domain that is the same has of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    name: String,
    id: Option<Uuid>,
}

/// What a guest and a domain have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Likeness {
    /// Their name.
    Name,
    /// Their id.
    Id,
}

impl Likeness {
    /// In words.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Id => "id",
        }
    }
}

impl From<&VmDefinition> for Own {
    fn from(definition: &VmDefinition) -> Self {
        Self {
            name: definition.name.to_string(),
            id: id_of(&definition.args),
        }
    }
}

impl Own {
    /// One of which no more is known.
    pub fn named(name: &VmName) -> Self {
        Self {
            name: name.to_string(),
            id: None,
        }
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What it has in common with a domain; none where they are two guests.
    pub(super) fn likeness(&self, name: &str, uuid: Uuid) -> Option<Likeness> {
        if self.name == name {
            return Some(Likeness::Name);
        }
        (self.id == Some(uuid)).then_some(Likeness::Id)
    }
}

/// QEMU's `-uuid`.
pub(super) fn id_of(args: &[String]) -> Option<Uuid> {
    let mut args = args.iter();
    args.find(|arg| matches!(arg.as_str(), "-uuid" | "--uuid"))?;
    args.next()?.parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One of this name, with this number as its id.
    pub fn own(name: &str, id: Option<u128>) -> Own {
        Own {
            id: id.map(Uuid::from_u128),
            ..Own::named(&name.parse().unwrap())
        }
    }

    #[test]
    fn the_id_of_a_guest_of_ours_is_what_its_arguments_say() {
        let id = |args: &[&str]| id_of(&args.iter().map(ToString::to_string).collect::<Vec<_>>());
        let uuid = Uuid::from_u128(0xabc);
        let text = uuid.to_string();
        assert_eq!(id(&["-m", "1", "-uuid", &text]), Some(uuid));
        assert_eq!(id(&["--uuid", &text.to_uppercase()]), Some(uuid));
        assert_eq!((id(&[]), id(&["-uuid"])), (None, None));
        assert_eq!(id(&["-uuid", "none"]), None);
    }

    #[test]
    fn a_guest_is_like_a_domain_of_its_name_or_id() {
        let web = own("web", Some(7));
        let likeness = |name, id| web.likeness(name, Uuid::from_u128(id));
        assert_eq!(likeness("web", 8), Some(Likeness::Name));
        assert_eq!(likeness("other", 7), Some(Likeness::Id));
        assert_eq!(likeness("Web", 8), None);
        assert_eq!(own("db", None).likeness("web", Uuid::nil()), None);
    }
}
