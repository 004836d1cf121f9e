"""Leave-one-out synthetic controls by refitting in many digits."""

import mpmath as mp
import numpy as np

DIGITS = 60


def refit(donors, n_pre, target_pre, ridge):
    """Weights and prediction as mpf."""
    pre, post = (mp.matrix(part.tolist()) for part in (donors[:, :n_pre], donors[:, n_pre:]))
    kernel = pre.T * pre + mp.mpf(ridge) / 2 * mp.eye(n_pre)
    weights = pre * mp.lu_solve(kernel, mp.matrix(list(target_pre)))
    return list(weights), list(post.T * weights)


def leave_each_out(donors, n_pre, target_pre, ridge):
    """Weights without each donor (0 in its place), shape (n, n), and changes in prediction, shape (n, n_post)."""
    with mp.workdps(DIGITS):
        weights, prediction = refit(donors, n_pre, target_pre, ridge)
        without, changes = [], []
        for donor in range(len(donors)):
            kept = np.delete(donors, donor, axis=0)
            refitted, predicted = (
                refit(kept, n_pre, target_pre, ridge) if len(kept) else ([], [mp.mpf(0)] * len(prediction))
            )
            without.append([*refitted[:donor], mp.mpf(0), *refitted[donor:]])
            changes.append([a - b for a, b in zip(predicted, prediction, strict=True)])
        norms = [mp.norm([a - b for a, b in zip(row, weights, strict=True)]) for row in without]
        return tuple(np.array(values, np.float64) for values in (weights, prediction, without, norms, changes))
