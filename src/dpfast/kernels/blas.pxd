# Row-major matrix products; the design is described in blas.pyx.

from cpython.pycapsule cimport PyCapsule_GetPointer


cdef void add_syrk_upper(
    const double* a, Py_ssize_t n_rows, Py_ssize_t n_columns, Py_ssize_t a_stride,
    double beta, double* c, Py_ssize_t c_stride,
) noexcept nogil

cdef void add_gemm_transposed(
    const double* a, Py_ssize_t n_rows, Py_ssize_t n_a_columns, Py_ssize_t a_stride,
    const double* b, Py_ssize_t n_b_columns, Py_ssize_t b_stride,
    double beta, double* c, Py_ssize_t c_stride,
) noexcept nogil


ctypedef struct blas_products:
    void (*add_syrk_upper)(
        const double* a, Py_ssize_t n_rows, Py_ssize_t n_columns, Py_ssize_t a_stride,
        double beta, double* c, Py_ssize_t c_stride,
    ) noexcept nogil
    void (*add_gemm_transposed)(
        const double* a, Py_ssize_t n_rows, Py_ssize_t n_a_columns, Py_ssize_t a_stride,
        const double* b, Py_ssize_t n_b_columns, Py_ssize_t b_stride,
        double beta, double* c, Py_ssize_t c_stride,
    ) noexcept nogil


cdef inline const blas_products* import_products() except NULL:
    """The functions above, for kernels that seldom need them: cimported, they would import SciPy with the kernel."""
    from dpfast.kernels.blas import PRODUCTS
    return <const blas_products*>PyCapsule_GetPointer(PRODUCTS, b"dpfast.kernels.blas.PRODUCTS")
