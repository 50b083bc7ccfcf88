/* What the files that bind the kernel to Python share. */
#ifndef MRSTREAM_KERNEL_BIND_H
#define MRSTREAM_KERNEL_BIND_H

#include <Python.h>

#include "_kernel.h"

extern PyType_Spec collector_spec, merge_tree_spec, line_feeder_spec, line_rewriter_spec,
    csv_reader_spec;

/* The plans of kernel.py, as C. What these make is freed by free_...; -1 with an exception. */
int parse_order(PyObject *plan, key_order *order);
int parse_partition(PyObject *plan, key_partition *partition);
int parse_form(PyObject *plan, wire_form *form);
void free_order(key_order *order);
void free_partition(key_partition *partition);
void free_form(wire_form *form);
/* A copy of a bytes object; NULL with an exception. Never NULL for an empty one. */
uint8_t *copy_bytes(PyObject *bytes, size_t *length);

/* An object works for one thread at a time: two at once would be a bug of the caller. */
#define ENTER(self)                                                                              \
    do {                                                                                         \
        if ((self)->busy) {                                                                      \
            PyErr_SetString(PyExc_RuntimeError, "the object is in use by another thread");       \
            return NULL;                                                                         \
        }                                                                                        \
    } while (0)

#define UNLOCKED(self, statement)                                                                \
    do {                                                                                         \
        (self)->busy = true;                                                                     \
        Py_BEGIN_ALLOW_THREADS statement;                                                        \
        Py_END_ALLOW_THREADS(self)->busy = false;                                                \
    } while (0)

#endif
