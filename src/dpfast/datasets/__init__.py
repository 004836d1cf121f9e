"""Data for examples, tests and benchmarks: the papers' generators, and true answers to hold estimates against."""
