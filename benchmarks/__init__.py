"""Benchmarks for asv; papers/ regenerates figures and tables."""
