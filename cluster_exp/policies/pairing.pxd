# Types for the compiled form of pairing.py; what they are for is written there.

cimport cython


cdef class Pairing:
    cdef Py_ssize_t groups, kinds
    cdef long[::1] kind, home, numbers, mate, next_at_home, at_home, place, low, high
    cpdef Py_ssize_t pair(self, long[::1] first, long[::1] second)
    cdef void _keep_together(self)
    @cython.locals(last=long, candidate=long)
    cdef void _fill_up(self)
    cdef void _sort_unpaired(self)
    cdef void _join(self, Py_ssize_t one, Py_ssize_t other)


@cython.locals(pair=Py_ssize_t, into=Py_ssize_t, source=Py_ssize_t, size=Py_ssize_t, at=Py_ssize_t, slot=long)
cpdef void merge(Py_ssize_t pairs, long[::1] first, long[::1] second, long[::1] members, const long[::1] profile_class)
