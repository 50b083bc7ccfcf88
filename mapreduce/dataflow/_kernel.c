/* mapreduce.dataflow._kernel: binds the kernel to Python (stable ABI of 3.11). The work
 * is in the other _kernel_*.c; here arguments are taken apart, memory of results is made, and
 * other Python threads run while the kernel works. kernel.py says what each method does. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_kernel_bind.h"

#include <stdlib.h>

#define OUT_BYTES_KEPT ((size_t)4 << 20) /* a buffer that one long line made larger is given back */

void *new_object(PyTypeObject *type)
{
    return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

void free_object(void *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyObject *take_bytes(buffer *out, bool good)
{
    if (!good)
        return PyErr_NoMemory();
    PyObject *bytes =
        PyBytes_FromStringAndSize((const char *)out->bytes, (Py_ssize_t)out->length);
    out->length = 0;
    if (out->size > OUT_BYTES_KEPT) {
        free(out->bytes);
        *out = (buffer){0};
    }
    return bytes;
}

static PyObject *decode_records(PyObject *module, PyObject *block)
{
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(block, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *list = PyList_New(0);
    const uint8_t *start = view.buf, *p = start, *end = start + view.len;
    char error[ERROR_BYTES] = "";
    while (list && p < end) {
        record r;
        size_t needed;
        enum cut_status status = cut_frame(p, end, &r, &needed, error);
        PyObject *pair = NULL;
        if (status == CUT_WHOLE)
            pair = Py_BuildValue("(y#y#)", r.key, (Py_ssize_t)r.key_length, r.value,
                                 (Py_ssize_t)r.value_length);
        else if (status == CUT_BAD)
            PyErr_SetString(PyExc_ValueError, error);
        else
            PyErr_Format(PyExc_ValueError, "a block of %zd bytes ends inside the record at %zd",
                         view.len, (Py_ssize_t)(p - start));
        if (!pair || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
        p += needed;
    }
    PyBuffer_Release(&view);
    return list;
}

static uint8_t *put_pair(PyObject *pair, uint8_t *out, size_t *size)
{
    const char *key, *value;
    Py_ssize_t key_length, value_length;
    if (!PyArg_ParseTuple(pair, "y#y#", &key, &key_length, &value, &value_length))
        return NULL;
    *size = varint_bytes((size_t)key_length) + varint_bytes((size_t)value_length) +
            (size_t)key_length + (size_t)value_length;
    if (!out)
        return (uint8_t *)pair; /* anything but NULL: only the size was wanted */
    out = put_varint(put_varint(out, (size_t)key_length), (size_t)value_length);
    copy_short(out, (const uint8_t *)key, (size_t)key_length);
    copy_short(out + key_length, (const uint8_t *)value, (size_t)value_length);
    return out + key_length + value_length;
}

static PyObject *encode_records(PyObject *module, PyObject *list)
{
    (void)module;
    Py_ssize_t count = PyList_Size(list);
    size_t total = 0, size;
    if (count < 0)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!put_pair(PyList_GetItem(list, i), NULL, &size))
            return NULL;
        total += size;
    }
    PyObject *block = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    uint8_t *out = block ? (uint8_t *)PyBytes_AsString(block) : NULL;
    for (Py_ssize_t i = 0; block && i < count; i++)
        out = put_pair(PyList_GetItem(list, i), out, &size);
    return block;
}

static PyObject *checksum(PyObject *args, uint32_t (*of)(uint32_t, const uint8_t *, size_t))
{
    Py_buffer view;
    unsigned int before = 0;
    if (!PyArg_ParseTuple(args, "y*|I", &view, &before))
        return NULL;
    uint32_t crc;
    if (view.len < 4096) {
        crc = of(before, view.buf, (size_t)view.len);
    } else {
        Py_BEGIN_ALLOW_THREADS crc = of(before, view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

static PyObject *crc32c_fastest(PyObject *module, PyObject *args)
{
    (void)module;
    return checksum(args, crc32c);
}

static PyObject *crc32c_portable(PyObject *module, PyObject *args)
{
    (void)module;
    return checksum(args, crc32c_by_tables);
}

static PyObject *count_lines(PyObject *module, PyObject *data)
{
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    uint64_t count;
    Py_BEGIN_ALLOW_THREADS count = count_byte(view.buf, (size_t)view.len, '\n');
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLongLong(count);
}

static PyMethodDef functions[] = {
    {"count_lines", count_lines, METH_O, NULL},
    {"encode_records", encode_records, METH_O, NULL},
    {"crc32c", crc32c_fastest, METH_VARARGS, NULL},
    {"crc32c_by_tables", crc32c_portable, METH_VARARGS, NULL},
    {"decode_records", decode_records, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "mrstream.mapreduce.dataflow._kernel", NULL, -1, functions, NULL, NULL, NULL, NULL,
};

static int add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    if (!type)
        return -1;
    int result = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return result;
}

PyMODINIT_FUNC PyInit__kernel(void)
{
    crc32c_start();
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    if (add_type(module, "Collector", &collector_spec) < 0 ||
        add_type(module, "MergeTree", &merge_tree_spec) < 0 ||
        add_type(module, "CsvReader", &csv_reader_spec) < 0 ||
        add_type(module, "LineFeeder", &line_feeder_spec) < 0 ||
        add_type(module, "LineRewriter", &line_rewriter_spec) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
