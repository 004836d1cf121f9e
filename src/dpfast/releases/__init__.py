"""Sums of people's records to releases: what each may leave with, how much noise it gets, and its record."""
