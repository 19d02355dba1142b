//! A host that takes no guests.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits::CORDON_REASON_CHARS;

/// Asks a host to take no guests from now on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CordonRequest {
    /// Why, for those who wonder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl CordonRequest {
    /// What cannot be used of it.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let reason = self.reason.as_ref()?;
        let count = reason.chars().count();
        if count > CORDON_REASON_CHARS {
            let most = CORDON_REASON_CHARS;
            return Some(format!("a reason of {count} characters: {most} at most"));
        }
        let control = reason.chars().any(char::is_control);
        control.then(|| "a reason is one line, without control characters".to_owned())
    }
}

/// That a host takes no guests, neither arriving ones nor started ones. Those that it has stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CordonView {
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_of_bounded_length() {
        let problem = |reason: &str| {
            let reason = Some(reason.to_owned());
            CordonRequest { reason }.problem()
        };
        assert_eq!(CordonRequest::default().problem(), None);
        assert_eq!(problem("new memory \u{2014} until Friday"), None);
        assert!(problem("two\nlines").unwrap().contains("one line"));
        let long = "x".repeat(CORDON_REASON_CHARS + 1);
        assert!(problem(&long).unwrap().contains("at most"));
    }
}
