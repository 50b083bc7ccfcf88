/* The kernel: the code that touches records one by one. Plain C11, no Python in
 * here: _kernel.c binds it. Every function is told all it needs by its arguments,
 * keeps no global state, and never does IO; what it gives is, byte for byte, what
 * twin.py, twin_lines.py and twin_records.py give. */
#ifndef MRSTREAM_KERNEL_H
#define MRSTREAM_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(address) __builtin_prefetch(address)
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#else
#define PREFETCH(address) ((void)(address))
#define LIKELY(condition) (condition)
#endif

#define LENGTH_MAX ((size_t)0x7fffffff)
#define FRAME_HEADER_BYTES_MAX 10
#define RECORD_OVERHEAD_BYTES 32 /* an entry of the index and one of the scratch */
#define ERROR_BYTES 200

/* ---- keys: order and partition ------------------------------------------------ */

typedef struct {
    int64_t first_field, first_byte, last_field, last_byte;
    bool numeric, reverse;
} key_spec;

typedef struct { /* how a key is seen as fields */
    uint8_t *separator;
    size_t separator_length;
    bool whole_key;
    key_spec *specs;
    size_t spec_count;
} key_fields;

enum order_kind { ORDER_BYTES, ORDER_LONG, ORDER_LONG_REVERSE, ORDER_FIELDS };

typedef struct {
    enum order_kind kind;
    bool numeric; /* some field is compared as a number: no total order */
    key_fields fields;
} key_order;

enum partition_kind {
    PARTITION_HASH,
    PARTITION_LONG,
    PARTITION_STRING,
    PARTITION_FIELDS,
    PARTITION_BINARY,
    PARTITION_TOTAL_ORDER
};

typedef struct {
    enum partition_kind kind;
    bool by_value; /* what is said of keys here is meant of values */
    key_fields fields;
    int64_t left, right;
    uint8_t **cuts;
    size_t *cut_lengths;
    size_t cut_count;
    key_order cuts_order;
    uint8_t *scratch; /* a key in clean UTF-8 */
    size_t scratch_bytes;
} key_partition;

int order_compare(const key_order *order, const uint8_t *a, size_t a_length, const uint8_t *b,
                  size_t b_length);
/* May b follow a in a run (D1)? */
bool order_allows(const key_order *order, const uint8_t *a, size_t a_length, const uint8_t *b,
                  size_t b_length);
/* Eight bytes that decide most comparisons: see order_compare_prefixed. */
uint64_t order_prefix(const key_order *order, const uint8_t *key, size_t length);
/* [*start, *end) of a spec in a key; false where its start does not exist. */
bool field_range(const key_fields *fields, const key_spec *spec, const uint8_t *key,
                 int64_t length, int64_t *start, int64_t *end);
const uint8_t *find_bytes(const uint8_t *from, const uint8_t *end, const uint8_t *wanted,
                          size_t wanted_length);
/* The partition, -1 without memory; the caller checks that it is below the count. */
int64_t partition_of(key_partition *partition, const uint8_t *key, size_t length,
                     uint32_t partitions);

/* ---- text ---------------------------------------------------------------------- */

bool is_ascii(const uint8_t *p, size_t length);
/* Write text with U+FFFD for each mistake, as Java decodes and encodes it; return its length,
 * at most three times what it was. With out NULL nothing is written. */
size_t clean_utf8(const uint8_t *p, size_t length, uint8_t *out);

static inline uint64_t load_be64(const uint8_t *p)
{
    return (uint64_t)p[0] << 56 | (uint64_t)p[1] << 48 | (uint64_t)p[2] << 40 |
           (uint64_t)p[3] << 32 | (uint64_t)p[4] << 24 | (uint64_t)p[5] << 16 |
           (uint64_t)p[6] << 8 | p[7];
}

static inline uint32_t load_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline void store_be32(uint8_t *p, uint32_t number)
{
    p[0] = (uint8_t)(number >> 24);
    p[1] = (uint8_t)(number >> 16);
    p[2] = (uint8_t)(number >> 8);
    p[3] = (uint8_t)number;
}

/* Seven bytes of the key from depth on, and how many bytes there were (8: more than
 * seven). So prefixes compare as the keys do, and if two are equal and do not end in
 * 8, the keys are equal too. */
#define PREFIX_STEP 7
#define PREFIX_MORE 8

static inline uint64_t byte_prefix(const uint8_t *key, size_t length, size_t depth)
{
    size_t left = length - depth;
    const uint8_t *p = key + depth;
    if (left >= 8)
        return (load_be64(p) & ~(uint64_t)0xff) | PREFIX_MORE;
    uint64_t prefix = 0;
    if (left >= 4) {
        prefix = (uint64_t)load_be32(p) << 32;
        prefix |= (uint64_t)load_be32(p + left - 4) << (64 - 8 * left);
    } else {
        for (size_t i = 0; i < left; i++)
            prefix |= (uint64_t)p[i] << (56 - 8 * i);
    }
    return prefix | left;
}

static inline int compare_bytes(const uint8_t *a, size_t a_length, const uint8_t *b,
                                size_t b_length)
{
    int result = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return result ? result : (a_length > b_length) - (a_length < b_length);
}

/* order_compare for keys whose order_prefix is known. */
static inline int order_compare_prefixed(const key_order *order, uint64_t a_prefix,
                                         const uint8_t *a, size_t a_length, uint64_t b_prefix,
                                         const uint8_t *b, size_t b_length)
{
    if (a_prefix != b_prefix)
        return a_prefix < b_prefix ? -1 : 1;
    if (order->kind == ORDER_BYTES) {
        if ((a_prefix & 0xff) != PREFIX_MORE)
            return 0;
        return compare_bytes(a + PREFIX_STEP, a_length - PREFIX_STEP, b + PREFIX_STEP,
                             b_length - PREFIX_STEP);
    }
    if (order->kind == ORDER_FIELDS)
        return order_compare(order, a, a_length, b, b_length);
    return 0;
}

/* ---- frames -------------------------------------------------------------------- */

static inline size_t varint_bytes(size_t number)
{
    size_t bytes = 1;
    while (number >= 0x80) {
        number >>= 7;
        bytes++;
    }
    return bytes;
}

static inline uint8_t *put_varint(uint8_t *out, size_t number)
{
    while (number >= 0x80) {
        *out++ = (uint8_t)(number | 0x80);
        number >>= 7;
    }
    *out++ = (uint8_t)number;
    return out;
}

/* Read a varint that is known to be whole. */
static inline const uint8_t *get_varint(const uint8_t *p, size_t *number)
{
    size_t value = *p++;
    if (LIKELY(value < 0x80)) {
        *number = value;
        return p;
    }
    value &= 0x7f;
    for (unsigned shift = 7;; shift += 7) {
        size_t byte = *p++;
        value |= (byte & 0x7f) << shift;
        if (byte < 0x80)
            break;
    }
    *number = value;
    return p;
}

/* Copies that are mostly a few bytes: a call costs more than the copy. */
static inline void copy_short(uint8_t *to, const uint8_t *from, size_t length)
{
    if (length > 16) {
        memcpy(to, from, length);
    } else if (length >= 8) {
        uint64_t head, tail;
        memcpy(&head, from, 8);
        memcpy(&tail, from + length - 8, 8);
        memcpy(to, &head, 8);
        memcpy(to + length - 8, &tail, 8);
    } else if (length >= 4) {
        uint32_t head, tail;
        memcpy(&head, from, 4);
        memcpy(&tail, from + length - 4, 4);
        memcpy(to, &head, 4);
        memcpy(to + length - 4, &tail, 4);
    } else {
        for (size_t i = 0; i < length; i++)
            to[i] = from[i];
    }
}

typedef struct {
    const uint8_t *frame;
    const uint8_t *key;
    size_t key_length;
    const uint8_t *value;
    size_t value_length;
} record;

static inline record frame_record(const uint8_t *frame)
{
    record r;
    r.frame = frame;
    const uint8_t *p = get_varint(frame, &r.key_length);
    r.key = get_varint(p, &r.value_length);
    r.value = r.key + r.key_length;
    return r;
}

static inline size_t frame_bytes(const record *r)
{
    return (size_t)(r->value + r->value_length - r->frame);
}

enum cut_status { CUT_WHOLE, CUT_MORE, CUT_BAD };

/* Find the frame at p, which may be cut off at end: CUT_MORE says how many bytes it needs. */
enum cut_status cut_frame(const uint8_t *p, const uint8_t *end, record *found, size_t *needed,
                          char *error);

/* ---- records on the wire, and as Hadoop counts them ------------------------------ */

enum serial { SERIAL_TEXT, SERIAL_BYTES, SERIAL_NULL, SERIAL_LONG };
enum side {
    SIDE_PLAIN,
    SIDE_NOTHING,
    SIDE_SIZED,
    SIDE_SIZED_TEXT,
    SIDE_TYPED_STRING,
    SIDE_TYPED_BYTES,
    SIDE_TYPED_LONG,
    SIDE_DECIMAL
};

typedef struct {
    bool framed;
    enum side key, value;
    uint8_t *separator, *end;
    size_t separator_length, end_length;
} wire_form;

size_t wire_bytes(const wire_form *form, const record *r);
uint8_t *wire_write(const wire_form *form, const record *r, uint8_t *out);

/* The same for the two forms that nearly all records have, without a call. */
static inline size_t quick_wire_bytes(const wire_form *form, const record *r)
{
    if (form->framed)
        return frame_bytes(r);
    if (form->key == SIDE_PLAIN && form->value == SIDE_PLAIN)
        return r->key_length + form->separator_length + r->value_length + form->end_length;
    return wire_bytes(form, r);
}

static inline void quick_wire_write(const wire_form *form, const record *r, uint8_t *out)
{
    if (form->framed) {
        copy_short(out, r->frame, frame_bytes(r));
    } else if (form->key == SIDE_PLAIN && form->value == SIDE_PLAIN) {
        copy_short(out, r->key, r->key_length);
        out += r->key_length;
        copy_short(out, form->separator, form->separator_length);
        out += form->separator_length;
        copy_short(out, r->value, r->value_length);
        copy_short(out + r->value_length, form->end, form->end_length);
    } else {
        wire_write(form, r, out);
    }
}

static inline uint64_t hadoop_vint_bytes(uint64_t number)
{
    uint64_t bytes = 1;
    if (number > 127)
        for (; number; number >>= 8)
            bytes++;
    return bytes;
}

static inline uint64_t serial_bytes(uint64_t length, enum serial serial)
{
    switch (serial) {
    case SERIAL_TEXT:
        return hadoop_vint_bytes(length) + length;
    case SERIAL_BYTES:
        return 4 + length;
    case SERIAL_NULL:
        return 0;
    default:
        return 8;
    }
}

static inline uint64_t stored_bytes(const record *r, enum serial key, enum serial value)
{
    uint64_t key_bytes = serial_bytes(r->key_length, key);
    uint64_t value_bytes = serial_bytes(r->value_length, value);
    return key_bytes + value_bytes + hadoop_vint_bytes(key_bytes) +
           hadoop_vint_bytes(value_bytes);
}

/* ---- checksums ------------------------------------------------------------------- */

void crc32c_start(void); /* once, before the others */
uint32_t crc32c(uint32_t before, const uint8_t *p, size_t length);
uint32_t crc32c_by_tables(uint32_t before, const uint8_t *p, size_t length);

/* ---- the sort -------------------------------------------------------------------- */

typedef struct { /* of the index: one record in the arena */
    uint64_t prefix;
    uint32_t offset; /* of its frame; also the order of emission */
    uint32_t partition;
} entry;

/* Sort entries that are in order of emission; scratch is as long. The result lies in entries. */
void sort_entries(const key_order *order, const uint8_t *arena, entry *entries, entry *scratch,
                  size_t count);

#endif
