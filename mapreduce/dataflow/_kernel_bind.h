/* What the files that bind the kernel to Python share. */
#ifndef MRSTREAM_KERNEL_BIND_H
#define MRSTREAM_KERNEL_BIND_H

#include <Python.h>
#include <structmember.h>

#include "_kernel_lines.h"

extern PyType_Spec collector_spec, merge_tree_spec, line_feeder_spec, line_rewriter_spec,
    csv_reader_spec;

/* The plans of kernel.py, as C. What these make is freed by free_...; -1 with an exception. */
int parse_order(PyObject *plan, key_order *order);
int parse_partition(PyObject *plan, key_partition *partition);
int parse_form(PyObject *plan, wire_form *form);
void free_order(key_order *order);
void free_partition(key_partition *partition);
void free_form(wire_form *form);
/* A new object of a type, all zero; NULL with an exception. */
void *new_object(PyTypeObject *type);
void free_object(void *self);
/* What was made lies in out: as bytes, and out is empty again; not good: there was no memory. */
PyObject *take_bytes(buffer *out, bool good);
/* A copy of a bytes object; NULL with an exception. Never NULL for an empty one. */
uint8_t *copy_bytes(PyObject *bytes, size_t *length);

/* A number of an object's core that Python may read. */
#define SHOWN(object, name, kind, field)                                                         \
    {                                                                                            \
        name, kind, offsetof(object, core.field), READONLY, NULL                                 \
    }

/* The type of an object: name_new, name_dealloc, name_methods and name_shown make it up, and more
 * slots if there are any. */
#define KERNEL_TYPE(name, object, ...)                                                           \
    static PyType_Slot name##_slots[] = {                                                        \
        {Py_tp_new, (void *)name##_new},                                                         \
        {Py_tp_dealloc, (void *)name##_dealloc},                                                 \
        {Py_tp_methods, name##_methods},                                                         \
        {Py_tp_members, name##_shown},                                                           \
        __VA_ARGS__{0, NULL},                                                                    \
    };                                                                                           \
    PyType_Spec name##_spec = {                                                                  \
        "mrstream.mapreduce.dataflow._kernel." #object, sizeof(object), 0, Py_TPFLAGS_DEFAULT,   \
        name##_slots,                                                                            \
    }

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
