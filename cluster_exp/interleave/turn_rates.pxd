# Types for the compiled form of turn_rates.py; what they are for is written there.

cimport cython

cdef long _RESOURCES
cdef long _LEAST_ITERATIONS
cdef long _WARM
cdef long _MOST_EVENTS
cdef long _RESTING
cdef double _NEVER


cdef class Turns:
    cdef public double[::1] stage_s, alone_s, due_s, begun_s, first_s, last_s
    cdef public long[::1] at, done, first, holder, latest, order
    cdef public long size, set
    @cython.locals(size=long, member=long, resource=long, seen=long, took_s=double)
    cpdef void run(self, double[::1] rates)
    @cython.locals(least=long, member=long)
    cdef long _slowest(self)
    @cython.locals(found=long, member=long)
    cdef long _next(self)
    cdef bint _before(self, long member, long other)
    cdef void _until(self, long member, double due_s)
    @cython.locals(now_s=double, stage=long)
    cdef void _step(self, long member)
    @cython.locals(ready_s=double)
    cdef void _end_iteration(self, long member, double now_s)
    @cython.locals(step=long, member=long)
    cdef void _grant(self, long resource, double now_s)
