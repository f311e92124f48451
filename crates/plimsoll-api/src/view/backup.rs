//! What backups are encrypted with.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// The key that backups are encrypted with.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct BackupKey {
    /// What tells it from others; a backup says which one it takes. None until the cell had its first leader.
    pub id: Option<String>,
    /// The key itself, as `plimsoll restore --key-file` takes it.
    pub key: Option<String>,
    pub created_at: Option<Time>,
}

/// The key stays out of every log.
impl fmt::Debug for BackupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackupKey").field("id", &self.id).finish_non_exhaustive()
    }
}
