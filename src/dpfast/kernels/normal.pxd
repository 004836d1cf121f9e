"""The Gaussian hockey-stick divergence and its inverses, not rounded towards privacy: dpfast.privacy.guarantee does that."""

cpdef double gaussian_delta(double scale, double epsilon, double sensitivity) noexcept nogil
# The mu, and the epsilon, at which the logarithm of delta is `target`.
cpdef double solve_mu(double epsilon, double target) noexcept nogil
cpdef double solve_epsilon(double scale, double sensitivity, double target) noexcept nogil
