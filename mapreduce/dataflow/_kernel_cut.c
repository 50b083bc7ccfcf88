/* Binary records from a command: raw bytes, typed bytes, frames (spec 9). The model is
 * twin_records.py; here the typed objects are walked once, however they arrive. */
#include <stdio.h>

#include "_kernel_collect.h"

static bool read_int32(collector *c, const uint8_t *p, const char *what, size_t *length)
{
    uint32_t number = load_be32(p);
    if (number > LENGTH_MAX) {
        snprintf(c->error, ERROR_BYTES, "%s: a length of %ld", what, (long)(int32_t)number);
        return false;
    }
    *length = number;
    return true;
}

static enum cut_status cut_raw(collector *c, const uint8_t *data, size_t length, record *found,
                               size_t *needed)
{
    *needed = 4;
    if (length < *needed)
        return CUT_MORE;
    if (!read_int32(c, data, "raw bytes", &found->key_length))
        return CUT_BAD;
    *needed += found->key_length + 4;
    if (length < *needed)
        return CUT_MORE;
    found->key = data + 4;
    if (!read_int32(c, found->key + found->key_length, "raw bytes", &found->value_length))
        return CUT_BAD;
    found->value = data + *needed;
    *needed += found->value_length;
    return length < *needed ? CUT_MORE : CUT_WHOLE;
}

/* Behind the type byte of an object that has a length: pass its bytes, or open what it holds. */
static enum cut_status open_typed(collector *c, const uint8_t *data, size_t length, uint8_t kind)
{
    typed_cursor *t = &c->typed;
    size_t count;
    if (t->at + 5 > length)
        return CUT_MORE;
    if (!read_int32(c, data + t->at + 1, "typed bytes", &count))
        return CUT_BAD;
    t->at += 5;
    if (kind == 8 || kind == 10)
        t->open[t->depth++] = (int64_t)(kind == 8 ? count : 2 * count);
    else
        t->at += count;
    return CUT_WHOLE;
}

/* Walk over one type byte and what belongs to it. */
static enum cut_status step_typed(collector *c, const uint8_t *data, size_t length)
{
    static const uint8_t fixed_bytes[] = {0, 1, 1, 4, 8, 4, 8};
    typed_cursor *t = &c->typed;
    if (t->at >= length)
        return CUT_MORE;
    uint8_t kind = data[t->at];
    int64_t *open = &t->open[t->depth - 1];
    if (kind == 255 && *open == TYPED_LIST) {
        t->at++;
        t->depth--;
        return CUT_WHOLE;
    }
    if (kind >= 1 && kind <= 6) {
        t->at += 1u + fixed_bytes[kind];
    } else if (kind == 9) {
        t->at++;
        t->open[t->depth++] = TYPED_LIST;
    } else if (kind == 0 || kind == 7 || kind == 8 || kind == 10 || (kind >= 50 && kind <= 200)) {
        enum cut_status status = open_typed(c, data, length, kind);
        if (status != CUT_WHOLE)
            return status;
    } else {
        snprintf(c->error, ERROR_BYTES, "typed bytes: unknown type %d", kind);
        return CUT_BAD;
    }
    if (*open != TYPED_LIST)
        --*open;
    if (t->depth > TYPED_DEPTH_MAX) {
        snprintf(c->error, ERROR_BYTES, "typed bytes: nested deeper than %d", TYPED_DEPTH_MAX);
        return CUT_BAD;
    }
    return CUT_WHOLE;
}

static enum cut_status cut_typed(collector *c, const uint8_t *data, size_t length,
                                 record *found, size_t *needed)
{
    typed_cursor *t = &c->typed;
    for (;;) {
        if (t->at == 0 || t->depth == 0) { /* an object begins */
            t->open[0] = 1;
            t->depth = 1;
        }
        while (t->depth) {
            if (t->open[t->depth - 1] == 0) {
                t->depth--;
                continue;
            }
            enum cut_status status = step_typed(c, data, length);
            if (status != CUT_WHOLE) {
                *needed = t->at + 1 > length ? t->at + 1 : length + 1;
                return status;
            }
        }
        if (t->at > length) {
            *needed = t->at;
            /* Open again, so that the next call finds the object closed. */
            t->open[0] = 0;
            t->depth = 1;
            return CUT_MORE;
        }
        if (t->in_value)
            break;
        t->in_value = true;
        t->key_end = t->at;
    }
    found->key = data;
    found->key_length = t->key_end;
    found->value = data + t->key_end;
    found->value_length = t->at - t->key_end;
    *needed = t->at;
    memset(t, 0, offsetof(typed_cursor, open));
    return CUT_WHOLE;
}

enum cut_status collector_cut(collector *c, const uint8_t *data, size_t length, record *found,
                              size_t *needed)
{
    switch (c->cut) {
    case CUT_RAW:
        return cut_raw(c, data, length, found, needed);
    case CUT_TYPED:
        return cut_typed(c, data, length, found, needed);
    default:
        return cut_frame(data, data + length, found, needed, c->error);
    }
}
