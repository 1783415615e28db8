"""Benchmarks. `make bench` runs them all and writes RESULTS.md and results.json; no test asserts a time."""
