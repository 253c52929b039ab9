//! A snapshot as text.

use super::snapshot::Snapshot;

impl Snapshot {
    /// The snapshot as JSON on one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Keys of its maps are texts, and nothing in it fails to serialize.
        serde_json::to_string(self).expect("a snapshot is plain values")
    }

    /// Reads what [`to_json`](Self::to_json) wrote, in this process or another, of this version or another.
    ///
    /// # Errors
    /// If it is no JSON, or a field holds what it cannot.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}
