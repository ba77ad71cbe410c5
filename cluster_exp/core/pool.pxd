# Types for the compiled form of pool.py; what they are for is written there.

cimport cython


cdef class Pool:
    cdef readonly Py_ssize_t num_nodes, num_gpus, largest, free_gpus
    cdef long[::1] size, start, node_of, by_size, free, hint, nodes_at, part_node, part_size
    cdef unsigned char[::1] taken, at_level, refused
    @cython.locals(other=Pool)
    cpdef Pool fresh(self)
    cdef void _allocate(self)
    cpdef void clear(self)
    cdef void _set_free(self, Py_ssize_t node, Py_ssize_t free)
    cdef Py_ssize_t _lowest(self, Py_ssize_t level)
    cdef Py_ssize_t _roomy(self, Py_ssize_t wanted, int fit)
    cpdef Py_ssize_t find(self, Py_ssize_t wanted, int fit)
    cdef Py_ssize_t _find_any(self, Py_ssize_t wanted)
    cdef Py_ssize_t _find_wide(self, Py_ssize_t wanted, int fit)
    cdef Py_ssize_t _roomy_beside(self, Py_ssize_t parts, Py_ssize_t wanted, int fit)
    cdef void _sort_parts(self, Py_ssize_t parts)
    cpdef bint take(self, Py_ssize_t wanted, int fit)
    cpdef void take_many(self, const long[::1] wanted, int fit, unsigned char[::1] taken)
    cdef void take_counts(self, Py_ssize_t parts)
    cdef void take_gpus(self, Py_ssize_t parts, long[::1] gpus, Py_ssize_t at)
    cdef bint claim(self, Py_ssize_t first, long[::1] following, long[::1] gpus, Py_ssize_t at)
    cdef bint has_parts(self, Py_ssize_t first, long[::1] following, Py_ssize_t parts)
