/* Records as frames and as commands read them. The model is twin_records.py. */
#include <stdio.h>

#include "_kernel.h"

/* Read a varint that may be cut off; CUT_MORE if so. */
static enum cut_status read_length(const uint8_t **p, const uint8_t *end, size_t *length,
                                   char *error)
{
    uint64_t number = 0;
    for (unsigned shift = 0;; shift += 7) {
        if (shift > 28) {
            snprintf(error, ERROR_BYTES, "a frame has a length of more than 35 bits");
            return CUT_BAD;
        }
        if (*p == end)
            return CUT_MORE;
        uint64_t byte = *(*p)++;
        number |= (byte & 0x7f) << shift;
        if (byte < 0x80)
            break;
    }
    if (number > LENGTH_MAX) {
        snprintf(error, ERROR_BYTES, "a frame has a length of %llu; at most %zu is allowed",
                 (unsigned long long)number, LENGTH_MAX);
        return CUT_BAD;
    }
    *length = (size_t)number;
    return CUT_WHOLE;
}

enum cut_status cut_frame(const uint8_t *p, const uint8_t *end, record *found, size_t *needed,
                          char *error)
{
    found->frame = p;
    enum cut_status status = read_length(&p, end, &found->key_length, error);
    if (status == CUT_WHOLE)
        status = read_length(&p, end, &found->value_length, error);
    if (status != CUT_WHOLE) {
        *needed = (size_t)(end - found->frame) + 1;
        return status;
    }
    found->key = p;
    found->value = p + found->key_length;
    *needed = (size_t)(p - found->frame) + found->key_length + found->value_length;
    return *needed > (size_t)(end - found->frame) ? CUT_MORE : CUT_WHOLE;
}

/* A length as Hadoop writes it: up to 127 as it is, more behind a byte that tells its size. */
static uint8_t *put_hadoop_vint(uint8_t *out, size_t number)
{
    if (number <= 127) {
        *out++ = (uint8_t)number;
        return out;
    }
    unsigned size = (unsigned)hadoop_vint_bytes(number) - 1;
    *out++ = (uint8_t)(256 - 112 - size);
    while (size--)
        *out++ = (uint8_t)(number >> 8 * size);
    return out;
}

static int decimal(const uint8_t *bytes, size_t length, char *text)
{
    uint64_t number = length && (bytes[0] & 0x80) ? ~(uint64_t)0 : 0;
    for (size_t i = 0; i < length; i++)
        number = number << 8 | bytes[i];
    return snprintf(text, 24, "%lld", (long long)(int64_t)number);
}

static size_t side_bytes(enum side side, const uint8_t *bytes, size_t length)
{
    char text[24];
    switch (side) {
    case SIDE_PLAIN:
        return length;
    case SIDE_NOTHING:
        return 0;
    case SIDE_SIZED:
        return 4 + length;
    case SIDE_SIZED_TEXT:
        return 4 + (size_t)hadoop_vint_bytes(length) + length;
    case SIDE_TYPED_STRING:
        return 5 + (is_ascii(bytes, length) ? length : clean_utf8(bytes, length, NULL));
    case SIDE_TYPED_BYTES:
        return 5 + length;
    case SIDE_TYPED_LONG:
        return 1 + length;
    default:
        return (size_t)decimal(bytes, length, text);
    }
}

static uint8_t *write_side(enum side side, const uint8_t *bytes, size_t length, uint8_t *out)
{
    char text[24];
    switch (side) {
    case SIDE_PLAIN:
        break;
    case SIDE_NOTHING:
        return out;
    case SIDE_SIZED:
        store_be32(out, (uint32_t)length);
        out += 4;
        break;
    case SIDE_SIZED_TEXT:
        store_be32(out, (uint32_t)(hadoop_vint_bytes(length) + length));
        out = put_hadoop_vint(out + 4, length);
        break;
    case SIDE_TYPED_STRING:
        *out++ = 7;
        if (!is_ascii(bytes, length)) {
            size_t clean = clean_utf8(bytes, length, out + 4);
            store_be32(out, (uint32_t)clean);
            return out + 4 + clean;
        }
        store_be32(out, (uint32_t)length);
        out += 4;
        break;
    case SIDE_TYPED_BYTES:
        *out++ = 0;
        store_be32(out, (uint32_t)length);
        out += 4;
        break;
    case SIDE_TYPED_LONG:
        *out++ = 4;
        break;
    default:
        length = (size_t)decimal(bytes, length, text);
        memcpy(out, text, length);
        return out + length;
    }
    copy_short(out, bytes, length);
    return out + length;
}

size_t wire_bytes(const wire_form *form, const record *r)
{
    if (form->framed)
        return frame_bytes(r);
    return side_bytes(form->key, r->key, r->key_length) + form->separator_length +
           side_bytes(form->value, r->value, r->value_length) + form->end_length;
}

uint8_t *wire_write(const wire_form *form, const record *r, uint8_t *out)
{
    if (form->framed) {
        size_t bytes = frame_bytes(r);
        copy_short(out, r->frame, bytes);
        return out + bytes;
    }
    out = write_side(form->key, r->key, r->key_length, out);
    copy_short(out, form->separator, form->separator_length);
    out = write_side(form->value, r->value, r->value_length, out + form->separator_length);
    copy_short(out, form->end, form->end_length);
    return out + form->end_length;
}
