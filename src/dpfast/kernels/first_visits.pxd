"""np.sum(weights / np.maximum(counts - k, 1) ** 2) of n weights and counts; first_visits.pyx says how exact."""

cdef double sum_of_inverse_squares(const double* weights, const double* counts, Py_ssize_t n, double k) noexcept nogil
