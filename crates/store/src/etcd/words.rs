//! What is said to etcd's JSON gateway and what it answers: the few fields that are used.
//!
//! Source: `api/etcdserverpb/rpc.proto` and `api/mvccpb/kv.proto` of etcd 3.4. Keys and values are
//! base64, 64-bit numbers are text, and what is zero, false or empty is left out.

use std::fmt;

use data_encoding::BASE64;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Text as base64.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Text(pub String);

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(self.0.as_bytes()))
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let encoded = String::deserialize(deserializer)?;
        let bytes = BASE64.decode(encoded.as_bytes()).map_err(Error::custom)?;
        String::from_utf8(bytes).map(Self).map_err(Error::custom)
    }
}

/// A number, written as text and read as either.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Number(pub i64);

impl Number {
    /// Of ours; the last bit is never reached.
    pub fn of(number: u64) -> Self {
        Self(i64::try_from(number).unwrap_or(i64::MAX))
    }

    /// Of etcd's; it has no negative revision.
    pub fn unsigned(self) -> u64 {
        u64::try_from(self.0).unwrap_or_default()
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor).map(Self)
    }
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or one as text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<i64, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
        Ok(number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<i64, E> {
        i64::try_from(number).map_err(E::custom)
    }
}

fn is_false(it: &bool) -> bool {
    !it
}

/// `RangeRequest`. A key alone, or all from `key` to before `range_end`.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Range {
    pub key: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range_end: Option<Text>,
    pub limit: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort_order: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort_target: Option<&'static str>,
    #[serde(skip_serializing_if = "is_false")]
    pub keys_only: bool,
}

impl Range {
    pub fn key(key: String) -> Self {
        Self {
            key: Text(key),
            ..Self::default()
        }
    }
}

/// `ResponseHeader`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Header {
    #[serde(default)]
    pub revision: Number,
}

/// `KeyValue`.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct KeyValue {
    pub key: Text,
    #[serde(default)]
    pub value: Text,
    #[serde(default)]
    pub mod_revision: Number,
    #[serde(default)]
    pub lease: Number,
}

/// `RangeResponse`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Found {
    #[serde(default)]
    pub header: Header,
    #[serde(default)]
    pub kvs: Vec<KeyValue>,
    #[serde(default)]
    pub more: bool,
}

/// `Compare` of a key's `mod_revision`, which is 0 when it is not there.
#[derive(Debug, Serialize)]
pub(super) struct Compare {
    pub key: Text,
    target: &'static str,
    result: &'static str,
    mod_revision: Number,
}

impl Compare {
    pub fn is(key: String, revision: i64) -> Self {
        Self::new(key, "EQUAL", revision)
    }

    pub fn is_there(key: String) -> Self {
        Self::new(key, "GREATER", 0)
    }

    fn new(key: String, result: &'static str, revision: i64) -> Self {
        Self {
            key: Text(key),
            target: "MOD",
            result,
            mod_revision: Number(revision),
        }
    }
}

/// `RequestOp`.
#[derive(Debug, Serialize)]
pub(super) enum Operation {
    #[serde(rename = "request_range")]
    Range(Range),
    #[serde(rename = "request_put")]
    Put {
        key: Text,
        value: Text,
        lease: Number,
    },
    #[serde(rename = "request_delete_range")]
    Delete { key: Text },
}

/// `TxnRequest`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Txn {
    pub compare: Vec<Compare>,
    pub success: Vec<Operation>,
    pub failure: Vec<Operation>,
}

/// `TxnResponse`.
#[derive(Debug, Deserialize)]
pub(super) struct Done {
    pub header: Header,
    #[serde(default)]
    pub succeeded: bool,
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Debug, Deserialize)]
struct Response {
    #[serde(default)]
    response_range: Found,
}

impl Done {
    /// What each range of the branch that was taken found: at most one key.
    pub fn found(&self) -> impl Iterator<Item = Option<&KeyValue>> {
        self.responses
            .iter()
            .map(|response| response.response_range.kvs.first())
    }
}

/// `LeaseGrantRequest`; seconds.
#[derive(Debug, Serialize)]
pub(super) struct Grant {
    #[serde(rename = "TTL")]
    pub ttl: Number,
}

/// `LeaseKeepAliveRequest` and `LeaseTimeToLiveRequest`.
#[derive(Debug, Serialize)]
pub(super) struct LeaseId {
    #[serde(rename = "ID")]
    pub id: Number,
}

/// What all of etcd's answers about leases have. A lease that is not there has no time to live.
#[derive(Debug, Deserialize)]
pub(super) struct Lease {
    #[serde(rename = "ID", default)]
    pub id: Number,
    #[serde(rename = "TTL", default)]
    pub ttl: Number,
}

/// One message of a stream: a result, or the error that ends it.
#[derive(Debug, Deserialize)]
pub(super) struct Message<T> {
    pub result: Option<T>,
    pub error: Option<serde_json::Value>,
}

/// `WatchRequest`.
#[derive(Debug, Serialize)]
pub(super) struct Watch {
    pub create_request: WatchCreate,
}

/// `WatchCreateRequest`.
#[derive(Debug, Serialize)]
pub(super) struct WatchCreate {
    pub key: Text,
    pub range_end: Text,
    pub start_revision: Number,
    /// Messages that would be too large come in parts.
    pub fragment: bool,
}

/// `WatchResponse`.
#[derive(Debug, Deserialize)]
pub(super) struct Watched {
    #[serde(default)]
    pub canceled: bool,
    #[serde(default)]
    pub compact_revision: Number,
    #[serde(default)]
    pub cancel_reason: String,
    /// More of the same follows.
    #[serde(default)]
    pub fragment: bool,
    #[serde(default)]
    pub events: Vec<Event>,
}

/// `Event`.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    #[serde(default, rename = "type")]
    pub kind: EventKind,
    pub kv: KeyValue,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) enum EventKind {
    #[default]
    #[serde(rename = "PUT")]
    Put,
    #[serde(rename = "DELETE")]
    Delete,
}

/// What the gateway says instead of an answer.
#[derive(Debug, Deserialize)]
pub(super) struct Refusal {
    pub code: i64,
    #[serde(default)]
    pub message: String,
}
