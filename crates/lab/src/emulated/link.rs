//! What a program in the machine asks of whoever runs that: to have a link cut, as by somebody who pulls a cable. It says so by a line
//! of its own on its output.
//!
//! ```text
//! emulated: link near0 off
//! emulated: link near0 on
//! ```

/// What such a line begins with.
const BEGINS: &str = "emulated: ";

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    /// The adapter.
    pub(super) name: String,
    /// Whether it has a link from now on.
    pub(super) on: bool,
}

/// What a line asks for, if it does.
pub(super) fn read(line: &str) -> Option<Link> {
    let words = line.strip_prefix(BEGINS)?.split(' ').collect::<Vec<_>>();
    let (name, on) = match words[..] {
        ["link", name, "on"] => (name, true),
        ["link", name, "off"] => (name, false),
        _ => return None,
    };
    let name = name.to_owned();
    Some(Link { name, on })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_asks_for_a_link_and_others_are_said_to_people() {
        let cut = Link {
            name: "near0".into(),
            on: false,
        };
        assert_eq!(read("emulated: link near0 off"), Some(cut));
        for other in ["link near0 off", "emulated: link near0", "emulated: halt"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
