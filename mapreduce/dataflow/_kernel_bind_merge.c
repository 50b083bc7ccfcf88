/* MergeTree, as Python sees it (kernel.MergeTree). */
#define PY_SSIZE_T_CLEAN
#include "_kernel_bind.h"
#include "_kernel_merge.h"

#include <stdlib.h>

typedef struct {
    PyObject_HEAD
    bool busy;
    merge_tree core;
    Py_buffer *blocks; /* the block of each run; obj is NULL where there is none */
    Py_buffer kept;    /* a block before, in which the last key lies */
    uint8_t *blob;     /* where blobs are put together */
    size_t blob_bytes;
    PyObject *large; /* one record that is larger than a blob, or NULL */
} MergeTree;

static PyObject *merge_tree_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    Py_ssize_t runs;
    PyObject *order, *form;
    int key_serial, value_serial;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "nOOii", &runs, &order, &form, &key_serial, &value_serial))
        return NULL;
    if (runs < 0)
        return PyErr_Format(PyExc_ValueError, "a merge of %zd runs", runs);
    MergeTree *self = new_object(type);
    if (!self)
        return NULL;
    merge_tree *m = &self->core;
    m->run_count = (size_t)runs;
    m->key_serial = (enum serial)key_serial;
    m->value_serial = (enum serial)value_serial;
    self->blocks = calloc((size_t)runs + 1, sizeof *self->blocks);
    if (!self->blocks || !merge_open(m)) {
        PyErr_NoMemory();
    } else if (parse_order(order, &m->order) == 0 && parse_form(form, &m->form) == 0) {
        return (PyObject *)self;
    }
    Py_DECREF(self);
    return NULL;
}

static void merge_tree_dealloc(MergeTree *self)
{
    for (size_t i = 0; self->blocks && i < self->core.run_count; i++)
        PyBuffer_Release(&self->blocks[i]);
    PyBuffer_Release(&self->kept);
    free(self->blocks);
    free(self->blob);
    Py_XDECREF(self->large);
    merge_close(&self->core);
    free_order(&self->core.order);
    free_form(&self->core.form);
    free_object(self);
}

static PyObject *supply(MergeTree *self, PyObject *args)
{
    Py_ssize_t run;
    PyObject *block;
    merge_tree *m = &self->core;
    ENTER(self);
    if (!PyArg_ParseTuple(args, "nO", &run, &block))
        return NULL;
    if (run < 0 || (size_t)run >= m->run_count || m->runs[run].state != RUN_WAITING)
        return PyErr_Format(PyExc_AssertionError, "run %zd wants no block", run);
    Py_buffer next = {0};
    if (block != Py_None) {
        if (PyObject_GetBuffer(block, &next, PyBUF_SIMPLE) < 0)
            return NULL;
        if (next.len == 0) {
            PyBuffer_Release(&next);
            Py_RETURN_NONE;
        }
    }
    /* The run that wants a block is the one that was given from last: its last key lies here. */
    if (self->blocks[run].obj) {
        PyBuffer_Release(&self->kept);
        self->kept = self->blocks[run];
    }
    self->blocks[run] = next;
    if (!merge_supply(m, (size_t)run, next.buf, (size_t)next.len)) {
        PyErr_SetString(PyExc_ValueError, m->error);
        return NULL;
    }
    Py_RETURN_NONE;
}

static void use_out(merge_tree *m, uint8_t *out, size_t size)
{
    m->out = out;
    m->out_size = size;
    m->out_bytes = m->out_records = 0;
}

static bool make_usual(MergeTree *self, size_t size)
{
    if (self->blob_bytes < size || !self->blob) {
        uint8_t *grown = realloc(self->blob, size + 1);
        if (!grown) {
            PyErr_NoMemory();
            return false;
        }
        self->blob = grown;
        self->blob_bytes = size;
    }
    use_out(&self->core, self->blob, size);
    return true;
}

static bool make_large(MergeTree *self)
{
    size_t size = self->core.out_needed;
    self->large = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (self->large)
        use_out(&self->core, (uint8_t *)PyBytes_AsString(self->large), size);
    return self->large;
}

/* Hand over what was filled: (-1, records, blob). */
static PyObject *take_out(MergeTree *self)
{
    merge_tree *m = &self->core;
    PyObject *blob = self->large;
    if (blob)
        self->large = NULL;
    else
        blob = PyBytes_FromStringAndSize((const char *)self->blob, (Py_ssize_t)m->out_bytes);
    m->out = NULL;
    if (!blob)
        return NULL;
    return Py_BuildValue("(inN)", -1, (Py_ssize_t)m->out_records, blob);
}

static PyObject *step(MergeTree *self, PyObject *args)
{
    merge_tree *m = &self->core;
    Py_ssize_t size;
    ENTER(self);
    if (!PyArg_ParseTuple(args, "n", &size))
        return NULL;
    for (;;) {
        size_t wanted = 0;
        enum merge_status status;
        if (!m->out && !make_usual(self, size > 0 ? (size_t)size : 0))
            return NULL;
        UNLOCKED(self, status = merge_step(m, &wanted));
        switch (status) {
        case MERGE_WANTS:
            return Py_BuildValue("(niO)", (Py_ssize_t)wanted, 0, Py_None);
        case MERGE_BAD:
            PyErr_SetString(PyExc_ValueError, m->error);
            return NULL;
        case MERGE_OVER:
            if (m->out_bytes || m->out_records)
                return take_out(self);
            return Py_BuildValue("(iiO)", -1, 0, Py_None);
        case MERGE_FULL:
            if (m->out_bytes || m->out_records)
                return take_out(self);
            if (!make_large(self))
                return NULL;
        }
    }
}

static PyObject *get_largest_group(MergeTree *self, void *unused)
{
    merge_tree *m = &self->core;
    (void)unused;
    ENTER(self);
    const uint8_t *key = m->largest_key;
    size_t length = m->largest_key_length;
    uint64_t records = m->largest_records;
    if (m->last_key && m->group_records > records) {
        key = m->last_key;
        length = m->last_key_length;
        if (length > LARGEST_KEY_BYTES_MAX)
            length = LARGEST_KEY_BYTES_MAX;
        records = m->group_records;
    }
    return Py_BuildValue("(y#K)", (const char *)key, (Py_ssize_t)length,
                         (unsigned long long)records);
}

static PyMethodDef merge_tree_methods[] = {
    {"supply", (PyCFunction)(void (*)(void))supply, METH_VARARGS, NULL},
    {"step", (PyCFunction)(void (*)(void))step, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef merge_tree_shown[] = {
    SHOWN(MergeTree, "records", T_ULONGLONG, records),
    SHOWN(MergeTree, "groups", T_ULONGLONG, groups),
    SHOWN(MergeTree, "hadoop_bytes", T_ULONGLONG, hadoop_bytes),
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"largest_group", (getter)(void (*)(void))get_largest_group, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

KERNEL_TYPE(merge_tree, MergeTree, {Py_tp_getset, properties}, );
