/* LineFeeder and LineRewriter, as Python sees them (kernel.LineFeeder, kernel.LineRewriter). */
#define PY_SSIZE_T_CLEAN
#include "_kernel_bind.h"

#include <stdlib.h>

/* ---- LineFeeder ------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    bool busy;
    line_feeder core;
} LineFeeder;

static PyObject *line_feeder_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int form, skip_first, strip_bom;
    long long start, end;
    PyObject *separator;
    unsigned char key_end;
    unsigned long long bytes_max;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "iLLpObKp", &form, &start, &end, &skip_first, &separator, &key_end,
                          &bytes_max, &strip_bom))
        return NULL;
    if (form < LINE_PLAIN || form > LINE_KEY || start < 0)
        return PyErr_Format(PyExc_ValueError, "lines of form %d from %lld on", form, start);
    LineFeeder *self = new_object(type);
    if (!self)
        return NULL;
    line_feeder *f = &self->core;
    f->form = (enum line_form)form;
    f->key_end = key_end;
    f->line_at = f->position = start;
    f->end = end;
    f->bytes_max = bytes_max;
    f->skipping = skip_first;
    f->bom_matched = strip_bom && start == 0 && !skip_first ? 0 : -1;
    f->separator = copy_bytes(separator, &f->separator_length);
    if (!f->separator) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void line_feeder_dealloc(LineFeeder *self)
{
    feeder_close(&self->core);
    free(self->core.separator);
    free_object(self);
}

static PyObject *feeder_feed_bytes(LineFeeder *self, PyObject *data)
{
    Py_buffer view;
    bool good = true, passes;
    ENTER(self);
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *bytes = view.buf;
    size_t length = (size_t)view.len;
    UNLOCKED(self, {
        passes = PyBytes_CheckExact(data) && feeder_passes(&self->core, bytes, length);
        good = passes || feeder_feed(&self->core, bytes, length);
    });
    PyBuffer_Release(&view);
    return passes ? Py_NewRef(data) : take_bytes(&self->core.out, good);
}

static PyObject *feeder_finish_bytes(LineFeeder *self, PyObject *unused)
{
    (void)unused;
    ENTER(self);
    return take_bytes(&self->core.out, feeder_finish(&self->core));
}

static PyMethodDef line_feeder_methods[] = {
    {"feed", (PyCFunction)(void (*)(void))feeder_feed_bytes, METH_O, NULL},
    {"finish", (PyCFunction)(void (*)(void))feeder_finish_bytes, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef line_feeder_shown[] = {
    SHOWN(LineFeeder, "records", T_ULONGLONG, records),
    SHOWN(LineFeeder, "done", T_BOOL, done),
    SHOWN(LineFeeder, "position", T_LONGLONG, position),
    {NULL, 0, 0, 0, NULL},
};

KERNEL_TYPE(line_feeder, LineFeeder, );

/* ---- LineRewriter ------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    bool busy;
    line_rewriter core;
} LineRewriter;

static PyObject *line_rewriter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int key_only;
    PyObject *separator, *out_separator;
    long long key_fields;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "pOLO", &key_only, &separator, &key_fields, &out_separator))
        return NULL;
    LineRewriter *self = new_object(type);
    if (!self)
        return NULL;
    line_rewriter *r = &self->core;
    r->key_only = key_only;
    r->key_fields = key_fields;
    r->separator = copy_bytes(separator, &r->separator_length);
    r->out_separator = r->separator ? copy_bytes(out_separator, &r->out_separator_length) : NULL;
    if (!r->out_separator) {
        Py_DECREF(self);
        return NULL;
    }
    if (!r->separator_length || key_fields < 1) {
        Py_DECREF(self);
        return PyErr_Format(PyExc_ValueError, "no separator, or %lld key fields", key_fields);
    }
    r->same_separator = r->separator_length == r->out_separator_length &&
                        memcmp(r->separator, r->out_separator, r->separator_length) == 0;
    return (PyObject *)self;
}

static void line_rewriter_dealloc(LineRewriter *self)
{
    rewriter_close(&self->core);
    free(self->core.separator);
    free(self->core.out_separator);
    free_object(self);
}

static PyObject *rewriter_feed_bytes(LineRewriter *self, PyObject *data)
{
    Py_buffer view;
    bool good;
    ENTER(self);
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    UNLOCKED(self, good = rewriter_feed(&self->core, view.buf, (size_t)view.len));
    PyBuffer_Release(&view);
    return take_bytes(&self->core.out, good);
}

static PyObject *rewriter_finish_bytes(LineRewriter *self, PyObject *unused)
{
    (void)unused;
    ENTER(self);
    return take_bytes(&self->core.out, rewriter_finish(&self->core));
}

static PyMethodDef line_rewriter_methods[] = {
    {"feed", (PyCFunction)(void (*)(void))rewriter_feed_bytes, METH_O, NULL},
    {"finish", (PyCFunction)(void (*)(void))rewriter_finish_bytes, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef line_rewriter_shown[] = {
    SHOWN(LineRewriter, "records", T_ULONGLONG, records),
    {NULL, 0, 0, 0, NULL},
};

KERNEL_TYPE(line_rewriter, LineRewriter, );
