cdef struct Ratio:  # an unevaluated sum high + low
    double high
    double low

cdef struct Tail:
    double h
    double t
    double t_low
    double v
    double difference  # M(t) - M(v)

cdef double mills_ratio(double x) noexcept nogil
cdef double mills_slope(double x) noexcept nogil
cdef double mills_difference(double t, double h) noexcept nogil
cpdef double gaussian_delta(double scale, double epsilon, double sensitivity) noexcept nogil
cpdef double solve_mu(double epsilon, double target) noexcept nogil
cpdef double solve_epsilon(double scale, double sensitivity, double target) noexcept nogil
cdef Ratio divide(double numerator, double denominator) noexcept nogil
cdef Tail tail_at(Ratio h, double epsilon) noexcept nogil
cdef double log_delta(Tail tail) noexcept nogil
cdef double complement(Tail tail) noexcept nogil
cdef double largest_t(double target) noexcept nogil
