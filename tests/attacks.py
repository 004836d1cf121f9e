"""Every attack on one claim, set up once: that takes seconds, and several modules of tests need it."""

from dpfast import Privacy
from dpfast.audit import all_attacks

CLAIM = Privacy(1.0, 1e-5)
ATTACKS = tuple(all_attacks(CLAIM))
