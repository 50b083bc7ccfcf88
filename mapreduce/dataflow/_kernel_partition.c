/* To which reducer a key goes: 32-bit arithmetic with wrap-around over signed bytes
 * (spec 5.1). The model is streaming/records/partitioner.py. */
#include <stdlib.h>

#include "_kernel.h"

#define HIGH_BITS 0x8080808080808080u

/* h = 31 * h + byte for each byte, which is signed. Eight at once where none is negative: first
 * pairs, then fours are summed side by side in one number. */
static uint32_t hash_bytes(const uint8_t *p, size_t length, uint32_t h)
{
    const uint64_t bytes = 0x00ff00ff00ff00ffu, pairs = 0x0000ffff0000ffffu;
    for (; length >= 8; p += 8, length -= 8) {
        uint64_t sum = load_be64(p);
        if (sum & HIGH_BITS)
            break;
        sum = (sum >> 8 & bytes) * 31 + (sum & bytes);
        sum = (sum >> 16 & pairs) * (31 * 31) + (sum & pairs);
        h = h * (31u * 31 * 31 * 31 * 31 * 31 * 31 * 31) +
            (uint32_t)(sum >> 32) * (31u * 31 * 31 * 31) + (uint32_t)sum;
    }
    for (; length; p++, length--)
        h = 31u * h + (uint32_t)(int8_t)*p;
    return h;
}

bool is_ascii(const uint8_t *p, size_t length)
{
    uint8_t seen = 0;
    for (size_t i = 0; i < length; i++)
        seen |= p[i];
    return seen < 0x80;
}

static inline bool is_continuation(uint8_t byte) { return (byte & 0xc0) == 0x80; }

/* How many bytes at p are one character; or how many are one mistake, as a negative number. */
static int utf8_step(const uint8_t *p, size_t left)
{
    uint8_t lead = p[0];
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return -1;
    int length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (left < 2)
        return -1;
    uint8_t second = p[1];
    /* An encoded surrogate is one mistake to Java, all its bytes together. */
    if (lead == 0xed && second >= 0xa0 && second <= 0xbf)
        return left >= 3 && is_continuation(p[2]) ? -3 : -2;
    if (!is_continuation(second) || (lead == 0xe0 && second < 0xa0) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f))
        return -1;
    for (int i = 2; i < length; i++)
        if ((size_t)i >= left || !is_continuation(p[i]))
            return -i;
    return length;
}

size_t clean_utf8(const uint8_t *p, size_t length, uint8_t *out)
{
    size_t written = 0;
    for (size_t at = 0; at < length;) {
        int step = utf8_step(p + at, length - at);
        size_t taken = (size_t)(step > 0 ? step : -step), given = step > 0 ? taken : 3;
        if (out)
            memcpy(out + written, step > 0 ? p + at : (const uint8_t *)"\xef\xbf\xbd", given);
        written += given;
        at += taken;
    }
    return written;
}

/* h = 31 * h + unit over the UTF-16 units of clean UTF-8. */
static uint32_t hash_utf16(const uint8_t *p, size_t length)
{
    uint32_t h = 0;
    for (const uint8_t *end = p + length; p < end;) {
        uint32_t c = *p;
        if (c < 0x80) {
            p += 1;
        } else if (c < 0xe0) {
            c = (c & 0x1f) << 6 | (p[1] & 0x3f);
            p += 2;
        } else if (c < 0xf0) {
            c = (c & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
            p += 3;
        } else {
            c = (c & 0x07) << 18 | (uint32_t)(p[1] & 0x3f) << 12 | (uint32_t)(p[2] & 0x3f) << 6 |
                (p[3] & 0x3f);
            p += 4;
            h = 31u * h + 0xd800u + ((c - 0x10000) >> 10);
            c = 0xdc00u + ((c - 0x10000) & 0x3ff);
        }
        h = 31u * h + c;
    }
    return h;
}

/* Point *key at clean UTF-8; false without memory. */
static bool decode_text(key_partition *partition, const uint8_t **key, size_t *length)
{
    if (is_ascii(*key, *length))
        return true;
    if (partition->scratch_bytes < 3 * *length) {
        uint8_t *scratch = realloc(partition->scratch, 3 * *length);
        if (!scratch)
            return false;
        partition->scratch = scratch;
        partition->scratch_bytes = 3 * *length;
    }
    *length = clean_utf8(*key, *length, partition->scratch);
    *key = partition->scratch;
    return true;
}

static uint32_t hash_fields(const key_fields *fields, const uint8_t *key, size_t length)
{
    uint32_t h = 0;
    for (size_t i = 0; i < fields->spec_count; i++) {
        int64_t start, end;
        if (field_range(fields, &fields->specs[i], key, (int64_t)length, &start, &end) &&
            end > start)
            h = hash_bytes(key + start, (size_t)(end - start), h);
    }
    return h;
}

static uint32_t hash_low_bits(const uint8_t *key, size_t length)
{
    uint32_t number = 0;
    for (size_t i = length > 4 ? length - 4 : 0; i < length; i++)
        number = number << 8 | key[i];
    return number;
}

static uint32_t hash_slice(const uint8_t *key, int64_t length, int64_t left, int64_t right)
{
    if (length == 0)
        return 1;
    /* Python's and Java's remainders differ below zero; the model uses Python's. */
    int64_t first = ((left + length) % length + length) % length;
    int64_t last = ((right + length) % length + length) % length;
    return last < first ? 1 : hash_bytes(key + first, (size_t)(last - first + 1), 1);
}

static int64_t cuts_at_most(const key_partition *partition, const uint8_t *key, size_t length)
{
    size_t low = 0, high = partition->cut_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (order_compare(&partition->cuts_order, partition->cuts[middle],
                          partition->cut_lengths[middle], key, length) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return (int64_t)low;
}

int64_t partition_of(key_partition *partition, const uint8_t *key, size_t length,
                     uint32_t partitions)
{
    uint32_t h;
    switch (partition->kind) {
    case PARTITION_HASH:
        h = hash_bytes(key, length, 1);
        break;
    case PARTITION_LONG:
        h = hash_low_bits(key, length);
        break;
    case PARTITION_STRING:
        if (!decode_text(partition, &key, &length))
            return -1;
        h = hash_utf16(key, length);
        break;
    case PARTITION_FIELDS:
        if (!decode_text(partition, &key, &length))
            return -1;
        h = length ? hash_fields(&partition->fields, key, length) : 0;
        break;
    case PARTITION_BINARY:
        h = hash_slice(key, (int64_t)length, partition->left, partition->right);
        break;
    default:
        return cuts_at_most(partition, key, length);
    }
    return (h & 0x7fffffffu) % partitions;
}
