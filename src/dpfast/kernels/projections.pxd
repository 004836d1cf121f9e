"""The Euclidean projection x of y, n numbers, onto the L1 ball of a radius; `kept` is room for n."""

cdef void project_one(const double* y, Py_ssize_t n, double radius, double* kept, double* x) noexcept nogil
