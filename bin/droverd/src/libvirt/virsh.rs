//! libvirt's own command for what was ordered of a domain: by the order, and by what the domain does.

use drover_libvirt::{Domain, DomainState, SYSTEM_URI};
use drover_tune::domain::virsh;
use drover_types::HostName;

use super::domains::{name, words};

/// What was ordered of a guest that is a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// To run.
    Start,
    /// To be shut down.
    Stop,
    /// To end at once.
    End,
    /// To be suspended.
    Suspend,
    /// To go to another host.
    Migrate,
}

/// Where commands are given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// The host.
    pub host: &'a HostName,
    /// Its libvirt, where that is known.
    pub uri: Option<&'a str>,
}

impl Place<'_> {
    /// What to do in an order's stead. `called` is the domain's name, `domain` what libvirt told of it last; none where it does not.
    pub(super) fn instead(self, order: Order, called: &str, domain: Option<&Domain>) -> String {
        let host = self.host;
        let Some(domain) = domain.filter(|known| !matches!(known.state, DomainState::Other(_)))
        else {
            let command = self.command("domstate --reason {}", called);
            return format!("on {host}, {command} tells what it does");
        };
        let commands = commands(order, domain).iter();
        let commands: Vec<_> = commands.map(|text| self.command(text, called)).collect();
        if commands.is_empty() {
            return format!("libvirt says that it is {}", words(domain.state));
        }
        let commands = commands.join(", then ");
        format!("libvirt's own command does, on {host}: {commands}")
    }

    /// One command, with the domain's name, or whatever it is about, where `{}` stands.
    pub(super) fn command(self, text: &str, called: &str) -> String {
        format!("`{}`", self.line(text, called))
    }

    /// The same, as it is typed.
    pub(super) fn line(self, text: &str, called: &str) -> String {
        let other = self.uri.filter(|uri| *uri != SYSTEM_URI);
        virsh(other, text, &name(called))
    }
}

/// What does it, one after the other; nothing where nothing is to be done.
fn commands(order: Order, domain: &Domain) -> &'static [&'static str] {
    use DomainState as State;
    match (order, domain.state) {
        (Order::Start, State::ShutOff) => &["start {}"],
        (Order::Start, State::Paused) => &["resume {}"],
        (Order::Start, State::Asleep) => &["dompmwakeup {}"],
        (Order::Start, State::Crashed) => &["destroy {}", "start {}"],
        (Order::Migrate, State::ShutOff) => &["migrate --offline --persistent {} DESTINATION-URI"],
        (Order::Start, _) | (_, State::ShutOff) => &[],
        (Order::Migrate, _) => &["migrate --live {} DESTINATION-URI"],
        (Order::End, _) | (Order::Stop, State::Crashed) => &["destroy {}"],
        (Order::Stop, State::Paused) => &["resume {}", "shutdown {}"],
        (Order::Stop, State::Asleep) => &["dompmwakeup {}", "shutdown {}"],
        (Order::Stop, _) => &["shutdown {}"],
        (Order::Suspend, _) if domain.persistent => &["managedsave {}"],
        (Order::Suspend, _) => &["save {} FILE"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libvirt::seen::tests::domain;

    fn instead(order: Order, domain: &Domain) -> String {
        let host = "a".parse().unwrap();
        let place = Place {
            host: &host,
            uri: Some(SYSTEM_URI),
        };
        place.instead(order, &domain.name, Some(domain))
    }

    #[test]
    fn only_what_fits_the_order_and_the_state_is_told() {
        use DomainState as State;
        let cases = [
            (Order::Start, State::ShutOff, "`virsh start web`"),
            (Order::Start, State::Paused, "`virsh resume web`"),
            (Order::Stop, State::Running, "`virsh shutdown web`"),
            (
                Order::Stop,
                State::Paused,
                "`virsh resume web`, then `virsh shutdown web`",
            ),
            (Order::End, State::Running, "`virsh destroy web`"),
            (Order::Suspend, State::Running, "`virsh managedsave web`"),
            (
                Order::Migrate,
                State::Running,
                "`virsh migrate --live web DESTINATION-URI`",
            ),
        ];
        for (order, state, expected) in cases {
            let said = instead(order, &domain("web", state));
            let expected = format!("libvirt's own command does, on a: {expected}");
            assert_eq!(said, expected, "{order:?} {state:?}");
        }
        let transient = Domain {
            persistent: false,
            ..domain("web", State::Running)
        };
        let said = instead(Order::Suspend, &transient);
        assert!(said.ends_with("`virsh save web FILE`"), "{said}");
    }

    #[test]
    fn nothing_is_to_be_done_where_it_is_so_already() {
        let runs = instead(Order::Start, &domain("web", DomainState::Running));
        assert_eq!(runs, "libvirt says that it is running");
        for order in [Order::Stop, Order::End, Order::Suspend] {
            let off = instead(order, &domain("web", DomainState::ShutOff));
            assert_eq!(off, "libvirt says that it is shut off");
        }
    }

    #[test]
    fn a_domain_of_which_nothing_is_known_is_to_be_looked_at_in_its_own_libvirt() {
        let host = "a".parse().unwrap();
        let place = Place {
            host: &host,
            uri: Some("qemu:///session"),
        };
        let said = place.instead(Order::Start, "it's 1", None);
        let expected =
            r"on a, `virsh -c qemu:///session domstate --reason 'it'\''s 1'` tells what it does";
        assert_eq!(said, expected);
        let odd = domain("odd", DomainState::Other(9));
        let said = place.instead(Order::Stop, "odd", Some(&odd));
        assert!(said.contains("domstate --reason odd"), "{said}");
    }
}
