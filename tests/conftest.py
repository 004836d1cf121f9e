"""Hypothesis profiles: derandomised in continuous integration, random by hand; machines are too noisy for deadlines.

Continuous integration has a step of random examples besides, ``-m hypothesis --hypothesis-profile=random``: a failure
prints the example, and a ``@reproduce_failure`` line that brings it back.
"""

import os
import signal

from hypothesis import Phase, settings

# A failing example is reported as it was found: shrinking may take longer than everything else.
settings.register_profile("ci", derandomize=True, deadline=None, phases=[Phase.explicit, Phase.generate])
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "random")

# Where SIGINT is ignored, as in the background of a shell, tests that interrupt would wait for ever; so would children.
signal.signal(signal.SIGINT, signal.default_int_handler)
