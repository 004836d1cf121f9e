"""From sums of people's records to releases: the noise of each release, and its record."""
