//! What could not be looked at as a whole.

use drover_api::MemberLeftOut;
use drover_types::HostName;

/// A member that did not answer, or two of which one could not ask the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Who, as a person is told.
    pub whom: String,
    /// What was to be done, after "not".
    pub to_do: &'static str,
    /// The same as the name of a test.
    pub test: &'static str,
    /// Why it was not.
    pub why: String,
}

impl Missing {
    /// Two hosts, the first of which was to ask the other.
    pub fn pair(near: &HostName, far: &HostName, why: &str) -> Self {
        Self {
            whom: format!("{near} to {far}"),
            to_do: "asked",
            test: "asks",
            why: why.to_owned(),
        }
    }
}

impl From<&MemberLeftOut> for Missing {
    fn from(left: &MemberLeftOut) -> Self {
        Self {
            whom: left.host.to_string(),
            to_do: "looked at",
            test: "answers",
            why: left.why.clone(),
        }
    }
}
