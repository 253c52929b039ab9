//! Benchmarks of `sluicegate`, beside its peers.
