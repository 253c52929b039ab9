//! Benchmarks of `sluicegate`, beside its peers; see `README.md`.
