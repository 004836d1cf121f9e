"""What the catalogue's fits calibrate, release and tell are the numbers on record.

Other tests say what is right. This one notices a change that no test thought of: of a scale, a clip, a share of a
budget, a limit. After a change that is wanted, ``python tests/golden.py --record`` writes the numbers anew, and the
commit says why they differ. What differs in each fit is said by ``python tests/golden.py FILE --compare``.
"""

import json

import pytest
from golden import ON_RECORD, RECORD, numbers

#: Other processors, and other builds of linear algebra, change them by up to 1e-8.
TOLERANCE = 1e-5


@pytest.mark.parametrize("n", ON_RECORD)
def test_every_fit_gives_the_numbers_on_record(n):
    found, kept = numbers(n), json.loads(RECORD.read_text())
    assert {f"{n}: {name}" for name in found} == {name for name in kept if name.startswith(f"{n}: ")}
    differing = []
    for name, figures in found.items():
        pairs = zip(("calibrated", "released", "told"), figures, kept[f"{n}: {name}"], strict=True)
        differing += [f"{name}: {what}" for what, one, other in pairs if not abs(one - other) <= TOLERANCE]
    assert not differing
