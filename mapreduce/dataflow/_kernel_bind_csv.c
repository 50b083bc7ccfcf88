/* CsvReader, as Python sees it (kernel.CsvReader). */
#define PY_SSIZE_T_CLEAN
#include "_kernel_bind.h"
#include "_kernel_csv.h"

#include <stdlib.h>

typedef struct {
    PyObject_HEAD
    bool busy;
    csv_reader core;
} CsvReader;

static int take_names(csv_reader *r, PyObject *names)
{
    Py_ssize_t count = PyTuple_Size(names);
    if (count < 0)
        return -1;
    r->names = calloc((size_t)count + 1, sizeof *r->names);
    r->name_lengths = calloc((size_t)count + 1, sizeof *r->name_lengths);
    if (!r->names || !r->name_lengths) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        r->names[i] = name ? copy_bytes(name, &r->name_lengths[i]) : NULL;
        if (!r->names[i])
            return -1;
    }
    return 0;
}

static int take_columns(csv_reader *r, PyObject *columns)
{
    if (columns == Py_None) {
        r->column_count = SIZE_MAX;
        return 0;
    }
    Py_ssize_t count = PyTuple_Size(columns);
    if (count < 0)
        return -1;
    r->columns = calloc((size_t)count + 1, sizeof *r->columns);
    if (!r->columns) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *column = PyTuple_GetItem(columns, i);
        r->columns[i] = column ? PyLong_AsLongLong(column) : -1;
        if (r->columns[i] < 0) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a column has a negative number");
            return -1;
        }
    }
    r->column_count = (size_t)count;
    return 0;
}

static PyObject *csv_reader_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int form, quote;
    unsigned char delimiter;
    long long start, end;
    unsigned long long fields_max, bytes_max;
    PyObject *names, *columns;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "ibiLLKKOO", &form, &delimiter, &quote, &start, &end, &fields_max,
                          &bytes_max, &names, &columns))
        return NULL;
    CsvReader *self = new_object(type);
    if (!self)
        return NULL;
    csv_reader *r = &self->core;
    r->form = (enum csv_form)form;
    r->delimiter = delimiter;
    r->quote = quote;
    r->position = r->record_at = start;
    r->end = end;
    r->fields_max = (size_t)fields_max;
    r->bytes_max = bytes_max;
    if (take_names(r, names) < 0 || take_columns(r, columns) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    bool names_all = r->column_count != SIZE_MAX && (Py_ssize_t)r->column_count == PyTuple_Size(names);
    if (form < CSV_OBJECTS || form > CSV_NOTHING || start < 0 || quote < -1 || quote > 255 ||
        (form == CSV_OBJECTS && !names_all)) {
        Py_DECREF(self);
        PyErr_SetString(PyExc_ValueError, "a CSV reader of no form, or without names for objects");
        return NULL;
    }
    return (PyObject *)self;
}

static void csv_reader_dealloc(CsvReader *self)
{
    csv_reader *r = &self->core;
    for (size_t i = 0; r->names && r->names[i]; i++)
        free(r->names[i]);
    free(r->names);
    free(r->name_lengths);
    free(r->columns);
    csv_close(r);
    free_object(self);
}

static PyObject *take_out(CsvReader *self, bool good)
{
    csv_reader *r = &self->core;
    if (r->error[0]) {
        PyErr_SetString(PyExc_ValueError, r->error);
        return NULL;
    }
    return take_bytes(&r->out, good);
}

static PyObject *feed(CsvReader *self, PyObject *data)
{
    Py_buffer view;
    bool good;
    ENTER(self);
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    UNLOCKED(self, good = csv_feed(&self->core, view.buf, (size_t)view.len));
    PyBuffer_Release(&view);
    return take_out(self, good);
}

static PyObject *finish(CsvReader *self, PyObject *unused)
{
    (void)unused;
    ENTER(self);
    return take_out(self, csv_finish(&self->core));
}

static PyMethodDef csv_reader_methods[] = {
    {"feed", (PyCFunction)(void (*)(void))feed, METH_O, NULL},
    {"finish", (PyCFunction)(void (*)(void))finish, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef csv_reader_shown[] = {
    SHOWN(CsvReader, "records", T_ULONGLONG, records),
    SHOWN(CsvReader, "done", T_BOOL, done),
    SHOWN(CsvReader, "position", T_LONGLONG, position),
    {NULL, 0, 0, 0, NULL},
};

KERNEL_TYPE(csv_reader, CsvReader, );
