//! Guests of the agent's and domains of libvirt's that may be the same guest.

use std::collections::BTreeMap;

use drover_api::{VmDefinition, VmView};
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

/// Guests of the agent's, by their names.
pub(super) type Owns = BTreeMap<String, Own>;

/// Says at both of two guests that may be one that there is another. Of a guest that is not among `owns` no more than its name is
/// known.
pub(super) fn tell(guests: &mut [VmView], domains: &mut [VmView], owns: &Owns) {
    for guest in guests {
        let own = owns.get(&guest.name).cloned();
        let own = own.unwrap_or_else(|| Own {
            name: guest.name.clone(),
            id: None,
        });
        for domain in domains.iter_mut() {
            if let Some(said) = said(&own, domain) {
                add_problem(guest, &said.of_guest);
                add_problem(domain, &said.of_domain);
            }
        }
    }
}

/// The same at a domain alone.
pub(super) fn tell_domain(domain: &mut VmView, owns: &Owns) {
    let said = owns.values().filter_map(|own| said(own, domain));
    let said: Vec<_> = said.collect();
    for said in said {
        add_problem(domain, &said.of_domain);
    }
}

/// What is to be known of two that may be one.
struct Said {
    of_guest: String,
    of_domain: String,
}

/// None where they are two guests.
fn said(own: &Own, domain: &VmView) -> Option<Said> {
    let id = domain.uuid.as_ref()?.parse().ok()?;
    let likeness = own.likeness(&domain.name, id)?;
    let (guest, domain) = (own.name(), &domain.name);
    let (of_guest, of_domain) = match likeness {
        Likeness::Name => (
            "libvirt has a domain of this name, too".to_owned(),
            "the agent has a guest of this name, too, which orders by the name are for".to_owned(),
        ),
        Likeness::Id => (
            format!("libvirt's domain {domain:?} has the same id"),
            format!("the agent's guest {guest} has the same id"),
        ),
    };
    let same = "if it is the same one, see that it is started by one of them only";
    Some(Said {
        of_guest: format!("{of_guest}: {same}"),
        of_domain: format!("{of_domain}: {same}"),
    })
}

fn add_problem(view: &mut VmView, more: &str) {
    let words = match view.problem.take() {
        Some(problem) => format!("{problem}; {more}"),
        None => more.to_owned(),
    };
    view.problem = Some(words);
}

/// QEMU's `-uuid`.
fn id_of(args: &[String]) -> Option<Uuid> {
    let mut args = args.iter();
    args.find(|arg| matches!(arg.as_str(), "-uuid" | "--uuid"))?;
    args.next()?.parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

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

    fn view(name: &str, id: Option<u128>) -> VmView {
        let uuid = id.map(|id| Uuid::from_u128(id).to_string());
        let view = json!({"name": name, "state": "stopped", "uuid": uuid});
        serde_json::from_value(view).unwrap()
    }

    fn problem(view: &VmView) -> String {
        view.problem.clone().unwrap_or_default()
    }

    #[test]
    fn two_guests_of_one_name_or_id_are_both_said_to_be_there() {
        let mut domains = [view("web", Some(0xabc)), view("other", Some(0xdef))];
        let mut guests = ["db", "web", "free"].map(|name| view(name, None));
        let owns: Owns = [("db".to_owned(), own("db", Some(0xdef)))].into();
        tell(&mut guests, &mut domains, &owns);
        assert!(problem(&guests[0]).contains("\"other\" has the same id"));
        assert!(problem(&guests[1]).contains("a domain of this name"));
        assert_eq!(guests[2].problem, None);
        assert!(problem(&domains[0]).contains("a guest of this name"));
        assert!(problem(&domains[1]).contains("guest db has the same id"));

        let mut alone = view("other", Some(0xdef));
        tell_domain(&mut alone, &owns);
        assert_eq!(alone.problem, domains[1].problem);
        let mut free = view("free", Some(1));
        tell_domain(&mut free, &owns);
        assert_eq!(free.problem, None);
    }
}
