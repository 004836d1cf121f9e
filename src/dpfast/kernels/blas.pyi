# Only for cimport: see blas.pxd.
