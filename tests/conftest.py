"""Hypothesis profiles: derandomised in continuous integration, random by hand; machines are too noisy for deadlines."""

import os

from hypothesis import Phase, settings

# A failing example is reported as it was found: shrinking may take longer than everything else.
settings.register_profile("ci", derandomize=True, deadline=None, phases=[Phase.explicit, Phase.generate])
settings.register_profile("random", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "random")
