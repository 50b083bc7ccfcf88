/* mapreduce.dataflow._kernel: binds the kernel to Python (stable ABI of 3.11). The work
 * is in the other _kernel_*.c; here arguments are taken apart, memory of results is made, and
 * other Python threads run while the kernel works. kernel.py says what each method does. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_kernel_bind.h"

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

static PyMethodDef functions[] = {
    {"decode_records", decode_records, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "mapreduce.dataflow._kernel", NULL, -1, functions, NULL, NULL, NULL, NULL,
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
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    if (add_type(module, "Collector", &collector_spec) < 0 ||
        add_type(module, "MergeTree", &merge_tree_spec) < 0 ||
        add_type(module, "LineFeeder", &line_feeder_spec) < 0 ||
        add_type(module, "LineRewriter", &line_rewriter_spec) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
