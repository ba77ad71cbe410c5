# Types for the compiled form of weave_search.py; what they are for is written there.

cimport cython

from cluster_exp.policies.weave_groups cimport Groups

cdef long _WIDTH
cdef double _LEAST


cdef class Search:
    cdef readonly Groups store
    @cython.locals(before=double, group=long)
    cpdef void improve(self, long rounds)
    @cython.locals(group=long, again=bint)
    cpdef void add_members(self)
    cdef bint _gains(self, double new, double old)
    cdef bint _add(self, long group)
    @cython.locals(width=long, old=double, size=long, best=long, best_worth=double, worth=double, kind=long, queue=long,
                   job=long, leaver=long, count=long)
    cdef bint _best_change(self, long group, long place)
    @cython.locals(again=bint, limit=long, place=long)
    cdef void _improve_one(self, long group)
    @cython.locals(one=long, other=long, limit=long)
    cdef void _improve_pairs(self)
    @cython.locals(width=long, old=double, best=bint, best_worth=double, best_i=long, best_k=long, i=long, k=long,
                   mine=long, theirs=long, worth=double, also=double, count=long)
    cdef bint _improve_pair(self, long one, long other)
    @cython.locals(count=long)
    cdef double _exchanged(self, long group, long without, long extra)
    @cython.locals(width=long, old=double, first=long, i=long, free=long, left=long, worth=double, new=long, count=long)
    cdef bint _refill(self, long group)
    @cython.locals(best=long, best_set=long, best_gain=double, group=long, size=long, part=long, gain=double, width=long,
                   i=long, count=long, worth=double)
    cdef void _split_all(self)
    @cython.locals(i=long, worth=double)
    cdef double _part_worth(self, long group, long part, long inside)
    @cython.locals(count=long, i=long)
    cdef long _collect(self, long part, long inside)
    @cython.locals(width=long, limit=long)
    cdef void _improve_wide(self)
    @cython.locals(wanted=long, freed=long, lost=double, groups=long, worst=long, worst_density=double, group=long,
                   gpus=long, density=double)
    cdef bint _make_room(self, long width)
