# Nothing for Python: cython_noise.pxd has what is cimported.
