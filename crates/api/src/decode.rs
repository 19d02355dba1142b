//! Reading of what the other end sent.

use drover_types::in_short;
use serde::de::DeserializeOwned;

/// Reads the body of a request or of an answer.
///
/// # Errors
/// What is wrong with it and where, in words of sensible length.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(in_short)
}
