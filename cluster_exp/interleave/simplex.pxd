# Types for the compiled form of simplex.py; what they are for is written there.

cimport cython


cdef class Programme:
    cdef readonly Py_ssize_t pairs, classes, cuts
    cdef Py_ssize_t width
    cdef long[::1] first, second, counts, basis, cut_bound, leader
    cdef double[::1] weight, table, solution
    cdef unsigned char[::1] inside
    cpdef bint solve(self, long[::1] numbers)
    cdef void _fill(self)
    cdef bint _optimise(self)
    cdef Py_ssize_t _entering(self, Py_ssize_t rows, bint careful)
    cdef Py_ssize_t _leaving(self, Py_ssize_t rows, Py_ssize_t column)
    cdef void _pivot(self, Py_ssize_t rows, Py_ssize_t row, Py_ssize_t column)
    cdef bint _holds(self, long[::1] numbers)
    cdef bint _cut(self, bint fractional)
    @cython.locals(one=long, other=long, lowest=long, a=long, b=long, value=double)
    cdef void _connect(self, bint fractional)
