"""Losses without exponentials in plain NumPy: value, first and second derivative of each prediction."""

import numpy as np


def numpy_loss(loss, z, y):
    """Return the three, of a loss of solvers/losses.py; of others what their own methods say."""
    if loss.kind == "squared":
        return 0.5 * (z - y) ** 2, z - y, np.ones(np.shape(z - y))
    if loss.kind == "smoothed_hinge":
        of_margin = hinge(np.sign(y) * z - 1.0, loss.width)
        return tuple(part * weight for part, weight in zip(of_margin, weights(y), strict=True))
    if loss.kind == "smoothed_huber":
        return huber(z - y, loss.threshold, loss.width)
    if loss.kind == "smoothed_quantile":
        value, size, curvature = hinge(y - z, loss.width)
        return loss.level * (y - z) + value, size - loss.level, curvature
    return loss.value(z, y), loss.derivative(z, y), loss.second_derivative(z, y)


def weights(y):
    """What a row's outcome multiplies the three by, of a loss of the margin."""
    return np.abs(y), -y, np.abs(y)


def hinge(r, width):
    """Return the smoothed hinge of margin 1 + r, the size of its slope, and its curvature."""
    t = np.clip((r + width) / (2.0 * width), 0.0, 1.0)
    value = np.where(t <= 0.0, -r, width * (1.0 - t) ** 3 * (1.0 + t))
    return value, (1.0 - t) ** 2 * (1.0 + 2.0 * t), 3.0 * t * (1.0 - t) / width


def huber(r, threshold, width):
    """Return the smoothed Huber loss of a residual and its derivatives."""
    short, size, inner = np.clip(threshold + width - np.abs(r), 0.0, 2.0 * width), np.abs(r), threshold - width
    beyond = 0.5 * inner**2 + threshold * (size - inner) - 2.0 * width**2 / 3.0
    quadratic = short >= 2.0 * width
    value = np.where(quadratic, 0.5 * r**2, beyond + short**3 / (12.0 * width))
    slope = np.where(quadratic, r, np.sign(r) * (threshold - short**2 / (4.0 * width)))
    return value, slope, short / (2.0 * width)
