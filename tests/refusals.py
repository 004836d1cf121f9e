"""What a fit that is refused leaves behind: nothing."""

import pytest

from dpfast import Ledger, Privacy


def assert_refused(fit, message):
    """A fit that pays from the ledger it is given raises a ValueError, and nothing was drawn or spent."""
    ledger = Ledger(Privacy(5.0, 1e-5))
    with pytest.raises(ValueError, match=message):
        fit(ledger)
    assert not ledger.releases
    assert ledger.remaining.epsilon == 5.0
