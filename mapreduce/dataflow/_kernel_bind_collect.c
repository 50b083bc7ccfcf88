/* Collector, as Python sees it (kernel.Collector). */
#define PY_SSIZE_T_CLEAN
#include "_kernel_bind.h"
#include "_kernel_collect.h"

#include <stdlib.h>

typedef struct {
    PyObject_HEAD
    bool busy;
    collector core;
} Collector;

static PyObject *collector_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    Py_ssize_t capacity;
    unsigned int partitions;
    PyObject *shape, *partition, *order, *form, *separator;
    int cut, key_serial, value_serial;
    long long key_fields;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "nIOOOO", &capacity, &partitions, &shape, &partition, &order,
                          &form) ||
        !PyArg_ParseTuple(shape, "iOLii", &cut, &separator, &key_fields, &key_serial,
                          &value_serial))
        return NULL;
    Collector *self = new_object(type);
    if (!self)
        return NULL;
    collector *c = &self->core;
    if (capacity < 256 || capacity > (Py_ssize_t)LENGTH_MAX || partitions < 1 ||
        cut < CUT_LINES || cut > CUT_FRAMED || key_fields < 1) {
        PyErr_Format(PyExc_ValueError,
                     "a collector of %zd bytes, %u partitions, cut %d and %lld key fields", capacity,
                     partitions, cut, key_fields);
        goto refuse;
    }
    c->cut = (enum cut)cut;
    c->key_fields = key_fields;
    c->key_serial = (enum serial)key_serial;
    c->value_serial = (enum serial)value_serial;
    c->partitions = partitions;
    c->capacity_bytes = (size_t)capacity;
    c->separator = copy_bytes(separator, &c->separator_length);
    if (!c->separator || parse_partition(partition, &c->partition) < 0 ||
        parse_order(order, &c->order) < 0 || parse_form(form, &c->form) < 0)
        goto refuse;
    if (!c->separator_length) {
        PyErr_SetString(PyExc_ValueError, "the separator of lines is empty");
        goto refuse;
    }
    if (!collector_open(c)) {
        PyErr_NoMemory();
        goto refuse;
    }
    return (PyObject *)self;
refuse:
    Py_DECREF(self);
    return NULL;
}

static void collector_dealloc(Collector *self)
{
    collector_close(&self->core);
    free(self->core.separator);
    free_partition(&self->core.partition);
    free_order(&self->core.order);
    free_form(&self->core.form);
    free_object(self);
}

static bool is_taking(Collector *self)
{
    if (!self->core.giving)
        return true;
    PyErr_SetString(PyExc_AssertionError, "the records are being given back");
    return false;
}

static PyObject *raise_failed(Collector *self)
{
    PyErr_SetString(PyExc_ValueError, self->core.error);
    return NULL;
}

static PyObject *feed(Collector *self, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t start = 0;
    ENTER(self);
    if (!is_taking(self) || !PyArg_ParseTuple(args, "y*|n", &view, &start))
        return NULL;
    if (start < 0 || start > view.len) {
        PyBuffer_Release(&view);
        return PyErr_Format(PyExc_ValueError, "start is %zd of %zd", start, view.len);
    }
    size_t at = (size_t)start;
    enum take taken;
    UNLOCKED(self, taken = collector_feed(&self->core, view.buf, &at, (size_t)view.len));
    PyBuffer_Release(&view);
    return taken == TAKE_FAILED ? raise_failed(self) : PyLong_FromSize_t(at);
}

static PyObject *add(Collector *self, PyObject *args)
{
    const char *key, *value;
    Py_ssize_t key_length, value_length;
    ENTER(self);
    if (!is_taking(self) ||
        !PyArg_ParseTuple(args, "y#y#", &key, &key_length, &value, &value_length))
        return NULL;
    enum take taken = collector_add(&self->core, (const uint8_t *)key, (size_t)key_length,
                                    (const uint8_t *)value, (size_t)value_length);
    return taken == TAKE_FAILED ? raise_failed(self) : PyBool_FromLong(taken == TAKE_OK);
}

static PyObject *finish(Collector *self, PyObject *unused)
{
    (void)unused;
    ENTER(self);
    if (!is_taking(self))
        return NULL;
    enum take taken = collector_finish(&self->core);
    return taken == TAKE_FAILED ? raise_failed(self) : PyBool_FromLong(taken == TAKE_OK);
}

static PyObject *sort(Collector *self, PyObject *unused)
{
    (void)unused;
    ENTER(self);
    if (!is_taking(self))
        return NULL;
    enum take taken;
    UNLOCKED(self, taken = collector_sort(&self->core));
    if (taken == TAKE_FAILED)
        return raise_failed(self);
    Py_RETURN_NONE;
}

static PyObject *next_blob(Collector *self, PyObject *args)
{
    collector *c = &self->core;
    Py_buffer out;
    given what = {0, 0, 0};
    bool in_order = true;
    ENTER(self);
    if (!c->giving || collector_partition(c) < 0) {
        PyErr_SetString(PyExc_AssertionError, "there is nothing left to give");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "w*", &out))
        return NULL;
    size_t next = collector_next_bytes(c);
    if (next > (size_t)out.len)
        what.bytes = next;
    else
        UNLOCKED(self, in_order = collector_give(c, out.buf, (size_t)out.len, &what));
    PyBuffer_Release(&out);
    if (!in_order) {
        PyErr_SetString(PyExc_AssertionError, "D1: the sorted records are not in order");
        return NULL;
    }
    return Py_BuildValue("(nKn)", (Py_ssize_t)what.records,
                         (unsigned long long)what.hadoop_bytes, (Py_ssize_t)what.bytes);
}

static PyObject *reset(Collector *self, PyObject *unused)
{
    (void)unused;
    ENTER(self);
    if (!collector_reset(&self->core))
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *get_partition(Collector *self, void *unused)
{
    (void)unused;
    if (!self->core.giving) {
        PyErr_SetString(PyExc_AssertionError, "sort comes first");
        return NULL;
    }
    return PyLong_FromLongLong(collector_partition(&self->core));
}

static PyMethodDef collector_methods[] = {
    {"feed", (PyCFunction)(void (*)(void))feed, METH_VARARGS, NULL},
    {"add", (PyCFunction)(void (*)(void))add, METH_VARARGS, NULL},
    {"finish", (PyCFunction)(void (*)(void))finish, METH_NOARGS, NULL},
    {"sort", (PyCFunction)(void (*)(void))sort, METH_NOARGS, NULL},
    {"next_blob", (PyCFunction)(void (*)(void))next_blob, METH_VARARGS, NULL},
    {"reset", (PyCFunction)(void (*)(void))reset, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef collector_shown[] = {
    SHOWN(Collector, "records", T_PYSSIZET, record_count),
    SHOWN(Collector, "records_total", T_ULONGLONG, records_total),
    SHOWN(Collector, "bytes_total", T_ULONGLONG, bytes_total),
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"partition", (getter)(void (*)(void))get_partition, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

KERNEL_TYPE(collector, Collector, {Py_tp_getset, properties}, );
