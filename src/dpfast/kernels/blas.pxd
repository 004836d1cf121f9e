# Row-major matrix products; the design is described in blas.pyx.

cdef void add_syrk_upper(
    const double* a, Py_ssize_t n_rows, Py_ssize_t n_columns, Py_ssize_t a_stride,
    double beta, double* c, Py_ssize_t c_stride,
) noexcept nogil

cdef void add_gemm_transposed(
    const double* a, Py_ssize_t n_rows, Py_ssize_t n_a_columns, Py_ssize_t a_stride,
    const double* b, Py_ssize_t n_b_columns, Py_ssize_t b_stride,
    double beta, double* c, Py_ssize_t c_stride,
) noexcept nogil
