//! Facts of libvirt's domains.

use serde::{Deserialize, Serialize};

use super::Fact;

/// What libvirt says of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// By which libvirt's own command reaches it; none where it does by itself.
    pub uri: Option<String>,
    /// It has a definition, with which it is started next. One without is gone when it ends.
    pub persistent: bool,
    /// How it is made when it is started next, as far as rules ask about it.
    pub next: Fact<Element>,
    /// How it is made now, while it runs, the same way.
    pub now: Fact<Element>,
}

/// A part of libvirt's XML.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Element {
    /// Its name.
    pub name: String,
    /// Its attributes, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<(String, String)>,
    /// Its text; none of one with parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Its parts, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Element>,
}
