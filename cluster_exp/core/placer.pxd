# Types for the compiled form of placer.py; what they are for is written there.

cimport cython

from cluster_exp.core.pool cimport Pool


cdef class Placer:
    cdef Pool pool
    cdef Py_ssize_t groups
    cdef long[::1] wanted, place_of, place_size, at, by_size, gpus, first, following, found
    cdef unsigned char[::1] state, admitted
    cdef void _chain(self, long[::1] place_on)
    cdef Py_ssize_t _present(self, Py_ssize_t group)
    cpdef void pinned(self, int fit, bint stop)
    cpdef void admit(self, int fit, bint stop)
    cpdef void keep_admitted(self, int fit)
    cdef void _rest(self, int fit, bint stop)
    cpdef bint keep_then_fit(self, int fit)
    cpdef bint largest_first(self, int fit)
    @cython.locals(trial=Pool)
    cpdef void bind(self, int fit)
    cdef void _forget(self)
    cdef bint _claim(self, Py_ssize_t group)
    cdef bint _take(self, Py_ssize_t group, int fit)
    cdef bint _settle(self, Py_ssize_t begin, Py_ssize_t end, int fit)
