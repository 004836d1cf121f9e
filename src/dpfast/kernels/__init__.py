"""Cython and C: loops, no policy; and the types of what they read and return."""

import os


def get_include() -> str:
    """Return the folder of the headers that code built on dpfast's kernels is compiled with.

    Kernels that have a ``.pxd`` can be cimported; the others take whole tables, and are called from Python. They give
    exact sums and public numbers: none of them makes a release.

    Returns
    -------
    str
        For the compiler's ``-I``, as `numpy.get_include` is.

    Examples
    --------
    >>> import os, dpfast
    >>> os.path.exists(os.path.join(dpfast.get_include(), "gram.h"))
    True
    """
    return os.path.dirname(__file__)
