# Types for the compiled form of weave_groups.py; what they are for is written there.

cimport cython

cdef long _WIDTH


cdef class Groups:
    cdef public long free, num_groups, moves
    cdef public long num_widths, kinds
    cdef public long[::1] widths, queues, tables, members, order, keys, queue_of, head, top, best_row
    cdef public long[::1] width_of, group, hand, saved
    cdef public double[::1] weight, kept, speed, best_worth, worth
    cdef public unsigned char[::1] taken, fresh, known, chosen
    @cython.locals(group=long, worth=double)
    cpdef double total(self)
    @cython.locals(count=long)
    cpdef long size(self, long group)
    @cython.locals(width=long, worth=double, i=long)
    cpdef bint put(self, long[::1] jobs)
    @cython.locals(best=long, width=long, best_density=double, density=double)
    cpdef long fill(self, long budget)
    @cython.locals(job=long, end=long, found=long)
    cpdef void tops(self, long queue)
    @cython.locals(queue=long)
    cpdef void take(self, long job)
    @cython.locals(queue=long)
    cpdef void give_back(self, long job)
    @cython.locals(first=long, kind=long, best=long, best_worth=double, row=long, worth=double, kept=double, last=long,
                   again=long, complete=bint, place=long, job=long)
    cpdef void find_best(self, long width)
    @cython.locals(row=long, last=long, again=long, count=long, place=long, kind=long, queue=long)
    cpdef void open_best(self, long width)
    @cython.locals(low=long, high=long, middle=long)
    cpdef long row(self, long width, long key)
    @cython.locals(hand=long[::1], i=long, job=long, at=long, first=long, base=long, key=long, row=long, worth=double,
                   kept=double)
    cpdef double hand_worth(self, long width, long count)
    @cython.locals(group=long, i=long)
    cpdef void open(self, long width, long count, double worth)
    @cython.locals(i=long, job=long, last=long)
    cpdef void close(self, long group)
    @cython.locals(i=long)
    cpdef void rewrite(self, long group, long count, double worth)
    @cython.locals(count=long, i=long, job=long)
    cpdef long pick_up(self, long group, long without, long extra)
