/* Plans, the plain tuples that kernel.py makes of specs, become C structures. */
#define PY_SSIZE_T_CLEAN
#include "_kernel_bind.h"

#include <stdlib.h>

uint8_t *copy_bytes(PyObject *bytes, size_t *length)
{
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(bytes, &data, &size) < 0)
        return NULL;
    uint8_t *copy = malloc((size_t)size + 1);
    if (!copy) {
        PyErr_NoMemory();
        return NULL;
    }
    memcpy(copy, data, (size_t)size);
    *length = (size_t)size;
    return copy;
}

static int parse_specs(PyObject *specs, key_fields *fields, bool *numeric)
{
    Py_ssize_t count = PyTuple_Size(specs);
    if (count < 0)
        return -1;
    fields->specs = calloc((size_t)count + 1, sizeof *fields->specs);
    if (!fields->specs) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        key_spec *spec = &fields->specs[i];
        long long first_field, first_byte, last_field, last_byte;
        int is_numeric, is_reverse;
        PyObject *plan = PyTuple_GetItem(specs, i);
        if (!plan || !PyArg_ParseTuple(plan, "LLLLpp", &first_field, &first_byte, &last_field,
                                       &last_byte, &is_numeric, &is_reverse))
            return -1;
        *spec = (key_spec){first_field, first_byte, last_field, last_byte, is_numeric, is_reverse};
        *numeric = *numeric || is_numeric;
    }
    fields->spec_count = (size_t)count;
    return 0;
}

static int parse_fields(PyObject *separator, int whole_key, PyObject *specs, key_fields *fields,
                        bool *numeric)
{
    fields->whole_key = whole_key;
    fields->separator = copy_bytes(separator, &fields->separator_length);
    if (!fields->separator || parse_specs(specs, fields, numeric) < 0)
        return -1;
    if (fields->spec_count && !fields->separator_length) {
        PyErr_SetString(PyExc_ValueError, "the separator of key fields is empty");
        return -1;
    }
    return 0;
}

static void free_fields(key_fields *fields)
{
    free(fields->separator);
    free(fields->specs);
    *fields = (key_fields){0};
}

int parse_order(PyObject *plan, key_order *order)
{
    int kind, whole_key;
    PyObject *separator, *specs;
    if (!PyArg_ParseTuple(plan, "iOpO", &kind, &separator, &whole_key, &specs))
        return -1;
    order->kind = (enum order_kind)kind;
    if (parse_fields(separator, whole_key, specs, &order->fields, &order->numeric) < 0)
        return -1;
    if (kind < ORDER_BYTES || kind > ORDER_FIELDS ||
        (kind == ORDER_FIELDS && !order->fields.spec_count)) {
        PyErr_Format(PyExc_ValueError, "order %d is none, or has no fields", kind);
        return -1;
    }
    return 0;
}

void free_order(key_order *order) { free_fields(&order->fields); }

static int parse_cuts(PyObject *cuts, key_partition *partition)
{
    Py_ssize_t count = PyTuple_Size(cuts);
    if (count < 0)
        return -1;
    partition->cuts = calloc((size_t)count + 1, sizeof *partition->cuts);
    partition->cut_lengths = calloc((size_t)count + 1, sizeof *partition->cut_lengths);
    if (!partition->cuts || !partition->cut_lengths) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *cut = PyTuple_GetItem(cuts, i);
        uint8_t *copy = cut ? copy_bytes(cut, &partition->cut_lengths[i]) : NULL;
        if (!copy)
            return -1;
        partition->cuts[i] = copy;
        partition->cut_count++;
    }
    return 0;
}

int parse_partition(PyObject *plan, key_partition *partition)
{
    int kind, whole_key, by_value;
    bool numeric = false;
    long long left, right;
    PyObject *separator, *specs, *cuts, *order;
    if (!PyArg_ParseTuple(plan, "iOpOLLOOp", &kind, &separator, &whole_key, &specs, &left, &right,
                          &cuts, &order, &by_value))
        return -1;
    partition->kind = (enum partition_kind)kind;
    partition->by_value = by_value;
    partition->left = left;
    partition->right = right;
    if (kind < PARTITION_HASH || kind > PARTITION_TOTAL_ORDER) {
        PyErr_Format(PyExc_ValueError, "there is no partitioner %d", kind);
        return -1;
    }
    if (parse_fields(separator, whole_key, specs, &partition->fields, &numeric) < 0 ||
        parse_cuts(cuts, partition) < 0)
        return -1;
    return parse_order(order, &partition->cuts_order);
}

void free_partition(key_partition *partition)
{
    for (size_t i = 0; i < partition->cut_count; i++)
        free(partition->cuts[i]);
    free(partition->cuts);
    free(partition->cut_lengths);
    free(partition->scratch);
    free_fields(&partition->fields);
    free_order(&partition->cuts_order);
    *partition = (key_partition){0};
}

int parse_form(PyObject *plan, wire_form *form)
{
    int framed, key, value;
    PyObject *separator, *end;
    if (!PyArg_ParseTuple(plan, "piOiO", &framed, &key, &separator, &value, &end))
        return -1;
    if (key < SIDE_PLAIN || key > SIDE_DECIMAL || value < SIDE_PLAIN || value > SIDE_DECIMAL) {
        PyErr_Format(PyExc_ValueError, "there is no form %d or no form %d", key, value);
        return -1;
    }
    form->framed = framed;
    form->key = (enum side)key;
    form->value = (enum side)value;
    form->separator = copy_bytes(separator, &form->separator_length);
    form->end = form->separator ? copy_bytes(end, &form->end_length) : NULL;
    return form->end ? 0 : -1;
}

void free_form(wire_form *form)
{
    free(form->separator);
    free(form->end);
    *form = (wire_form){0};
}
