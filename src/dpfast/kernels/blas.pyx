"""The one door to BLAS: products of row-major matrices, through the library that SciPy carries.

BLAS is Fortran: it sees a row-major m-by-n matrix as its n-by-m transpose, so every call below is written for the
transposes. Strides are in doubles, from one row to the next. Callers hold BLAS to one thread
(`dpfast._threads.single_threaded_blas`), check shapes, and keep dimensions within the range of a 32-bit int.

This module imports SciPy's linear algebra, which takes longer than all of the kernels do: those get the functions from
`import_products`, once they need them.
"""

from cpython.pycapsule cimport PyCapsule_New
from scipy.linalg.cython_blas cimport dgemm, dsyrk

# SciPy's integer type, found when the package is built: `int`, or `blas_int` in versions that have it.
include "blas_int.pxi"


cdef void add_syrk_upper(
    const double* a, Py_ssize_t n_rows, Py_ssize_t n_columns, Py_ssize_t a_stride,
    double beta, double* c, Py_ssize_t c_stride,
) noexcept nogil:
    cdef blas_int n = <blas_int>n_columns, k = <blas_int>n_rows
    cdef blas_int lda = <blas_int>a_stride, ldc = <blas_int>c_stride
    cdef double one = 1.0
    # c[:] = np.triu(a.T @ a + beta * c): the upper triangle of rows is the lower one of Fortran's columns.
    dsyrk(b"L", b"N", &n, &k, &one, <double*>a, &lda, &beta, c, &ldc)


cdef void add_gemm_transposed(
    const double* a, Py_ssize_t n_rows, Py_ssize_t n_a_columns, Py_ssize_t a_stride,
    const double* b, Py_ssize_t n_b_columns, Py_ssize_t b_stride,
    double beta, double* c, Py_ssize_t c_stride,
) noexcept nogil:
    cdef blas_int m = <blas_int>n_b_columns, n = <blas_int>n_a_columns, k = <blas_int>n_rows
    cdef blas_int lda = <blas_int>a_stride, ldb = <blas_int>b_stride, ldc = <blas_int>c_stride
    cdef double one = 1.0
    # c[:] = a.T @ b + beta * c
    dgemm(b"N", b"T", &m, &n, &k, &one, <double*>b, &ldb, <double*>a, &lda, &beta, c, &ldc)


cdef blas_products _products = blas_products(add_syrk_upper, add_gemm_transposed)
PRODUCTS = PyCapsule_New(&_products, b"dpfast.kernels.blas.PRODUCTS", NULL)
