//! What a drain came to.

/// What a [drain](super::Queue::drain) came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Jobs of the whole fleet that were acknowledged or dead-lettered while it lasted.
    pub settled: u64,
    /// Jobs still in the hands of consumers; they may yet settle.
    pub in_flight: u64,
    /// Jobs that were queued or delayed at the deadline. They are still on the server.
    pub left: u64,
}
