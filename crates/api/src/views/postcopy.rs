//! Guests that go on at the destination before their pages do.

use drover_types::Bytes;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The pages of a guest that went on before they did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PostcopyView {
    /// Bytes that have followed it.
    #[schema(value_type = u64)]
    pub bytes: Bytes,
    /// How often it stood still for a page that was not there yet.
    pub requests: u64,
    /// How often their session broke, and another was opened. What is shown of paths, lanes and channels is of the last.
    pub reopened: u32,
}
