/* The order of keys: bytes, integers, and fields compared the way Hadoop's
 * KeyFieldBasedComparator does (spec 5.2, 5.3). The model is streaming/records/comparator.py;
 * what looks odd here is odd there, and in Hadoop. */
#include "_kernel.h"

const uint8_t *find_bytes(const uint8_t *from, const uint8_t *end, const uint8_t *wanted,
                          size_t wanted_length)
{
    while ((size_t)(end - from) >= wanted_length) {
        const uint8_t *at = memchr(from, wanted[0], (size_t)(end - from) - wanted_length + 1);
        if (!at)
            return NULL;
        if (wanted_length == 1 || memcmp(at + 1, wanted + 1, wanted_length - 1) == 0)
            return at;
        from = at + 1;
    }
    return NULL;
}

static inline int64_t at_least_0(int64_t number) { return number > 0 ? number : 0; }

bool field_range(const key_fields *fields, const key_spec *spec, const uint8_t *key,
                 int64_t length, int64_t *start, int64_t *end)
{
    int64_t first = at_least_0(spec->first_field - 1), last = at_least_0(spec->last_field - 1);
    int64_t separator_length = (int64_t)fields->separator_length;
    int64_t first_at = -1, last_at = -1, last_length = 0, lengths = 0, search = 0;
    if (spec->last_field == 0)
        last = -1; /* no field is the last */

    for (int64_t field = 0; field <= first || field <= last; field++) {
        const uint8_t *found = NULL;
        if (!fields->whole_key)
            found = find_bytes(key + search, key + length, fields->separator,
                               fields->separator_length);
        int64_t field_length = (found ? found - key : length) - search;
        if (field == first)
            first_at = lengths + field * separator_length;
        if (field == last) {
            last_at = lengths + field * separator_length;
            last_length = field_length;
        }
        if (!found)
            break;
        lengths += field_length;
        /* One byte on, not a whole separator: Hadoop measures so, see field_lengths. */
        search = found - key + 1;
    }
    if (first_at < 0 || first_at + spec->first_byte > length)
        return false;
    *start = first_at + spec->first_byte - 1;
    if (*start < 0)
        return false;
    if (last_at < 0) {
        *end = length;
    } else {
        int64_t stop = at_least_0(last_at + (spec->last_byte ? spec->last_byte : last_length));
        *end = stop < length ? stop : length;
    }
    return true;
}

/* ---- numbers ------------------------------------------------------------------- */

typedef struct { /* what is left of a number: text[at, end) */
    const uint8_t *text;
    int64_t at, end;
} digits;

static inline bool is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

static void skip_zeros(digits *d)
{
    while (d->at < d->end && d->text[d->at] == '0')
        d->at++;
}

static int64_t count_digits(const digits *d)
{
    int64_t at = d->at;
    while (at < d->end && is_digit(d->text[at]))
        at++;
    return at - d->at;
}

static int digit_after_zeros(const uint8_t *text, int64_t at, int64_t end)
{
    digits d = {text, at, end};
    skip_zeros(&d);
    return d.at < d.end && is_digit(d.text[d.at]);
}

/* Whether a number is 0 up to its first character that is neither digit nor point. */
static bool is_zero(const uint8_t *text, int64_t at, int64_t end)
{
    digits d = {text, at, end};
    skip_zeros(&d);
    if (d.at >= d.end)
        return true;
    if (text[d.at] == '.')
        return !digit_after_zeros(text, d.at + 1, end);
    return !is_digit(text[d.at]);
}

static int compare_both_fractions(digits a, digits b)
{
    for (; a.at < a.end && b.at < b.end; a.at++, b.at++) {
        uint8_t left = a.text[a.at], right = b.text[b.at];
        if (left == right)
            continue;
        if (is_digit(left) && is_digit(right))
            return left - right;
        return is_digit(left) - is_digit(right);
    }
    return digit_after_zeros(a.text, a.at, a.end) - digit_after_zeros(b.text, b.at, b.end);
}

static int compare_fractions(digits a, digits b)
{
    if (a.at >= a.end)
        return -digit_after_zeros(b.text, b.at + 1, b.end);
    if (b.at >= b.end)
        return digit_after_zeros(a.text, a.at + 1, a.end);
    bool a_point = a.text[a.at] == '.', b_point = b.text[b.at] == '.';
    if (a_point && b_point)
        return compare_both_fractions(a, b);
    if (a_point)
        return digit_after_zeros(a.text, a.at + 1, a.end);
    if (b_point)
        return -digit_after_zeros(b.text, b.at + 1, b.end);
    return 0;
}

static int compare_magnitudes(digits a, uint8_t a_first, digits b, uint8_t b_first)
{
    skip_zeros(&a);
    skip_zeros(&b);
    while (a.at < a.end && b.at < b.end && is_digit(a.text[a.at]) &&
           a.text[a.at] == b.text[b.at]) {
        a.at++;
        b.at++;
    }
    /* The first byte stands in for a number that is used up: 007 is less than 7. */
    uint8_t left = a.at < a.end ? a.text[a.at] : a_first;
    uint8_t right = b.at < b.end ? b.text[b.at] : b_first;
    if ((left == '.' && (!is_digit(right) || b.at >= b.end)) ||
        (right == '.' && (!is_digit(left) || a.at >= a.end)))
        return compare_fractions(a, b);
    int64_t longer = count_digits(&a) - count_digits(&b);
    if (longer)
        return longer < 0 ? -1 : 1;
    return (int8_t)left - (int8_t)right;
}

static int compare_numbers(const uint8_t *a, int64_t a_start, int64_t a_end, const uint8_t *b,
                           int64_t b_start, int64_t b_end)
{
    uint8_t a_first = a[a_start], b_first = b[b_start];
    bool a_minus = a_first == '-', b_minus = b_first == '-';
    if (a_minus != b_minus) {
        bool zero = is_zero(a, a_start + a_minus, a_end) && is_zero(b, b_start + b_minus, b_end);
        return zero ? 0 : a_minus ? -1 : 1;
    }
    int result = compare_magnitudes((digits){a, a_start + a_minus, a_end}, a_first,
                                    (digits){b, b_start + b_minus, b_end}, b_first);
    return a_minus ? -result : result;
}

/* ---- keys ------------------------------------------------------------------------ */

static int compare_ranges(const uint8_t *a, int64_t a_length, const uint8_t *b,
                          int64_t b_length)
{
    int64_t shorter = a_length < b_length ? a_length : b_length;
    if (shorter > 0) {
        int result = memcmp(a, b, (size_t)shorter);
        if (result)
            return result;
    }
    return (a_length > b_length) - (a_length < b_length);
}

static int compare_fields(const key_fields *fields, const uint8_t *a, size_t a_length,
                          const uint8_t *b, size_t b_length)
{
    for (size_t i = 0; i < fields->spec_count; i++) {
        const key_spec *spec = &fields->specs[i];
        int64_t a_start, a_end, b_start, b_end;
        int result;
        /* The first key's missing start decides: two keys without it are never equal. */
        if (!field_range(fields, spec, a, (int64_t)a_length, &a_start, &a_end))
            result = -1;
        else if (!field_range(fields, spec, b, (int64_t)b_length, &b_start, &b_end))
            result = 1;
        else if (spec->numeric)
            result = compare_numbers(a, a_start, a_end, b, b_start, b_end);
        else
            result = compare_ranges(a + a_start, a_end - a_start, b + b_start, b_end - b_start);
        if (result)
            return spec->reverse ? -result : result;
    }
    return 0;
}

/* A big-endian two's complement integer of up to eight bytes. */
static int64_t long_of(const uint8_t *key, size_t length)
{
    if (length == 0)
        return 0;
    uint64_t number = (key[0] & 0x80) ? ~(uint64_t)0 : 0;
    for (size_t i = 0; i < length; i++)
        number = number << 8 | key[i];
    return (int64_t)number;
}

int order_compare(const key_order *order, const uint8_t *a, size_t a_length, const uint8_t *b,
                  size_t b_length)
{
    switch (order->kind) {
    case ORDER_BYTES:
        return compare_bytes(a, a_length, b, b_length);
    case ORDER_FIELDS:
        return compare_fields(&order->fields, a, a_length, b, b_length);
    default: {
        int64_t left = long_of(a, a_length), right = long_of(b, b_length);
        int result = (left > right) - (left < right);
        return order->kind == ORDER_LONG_REVERSE ? -result : result;
    }
    }
}

bool order_allows(const key_order *order, const uint8_t *a, size_t a_length, const uint8_t *b,
                  size_t b_length)
{
    if (order->kind != ORDER_FIELDS)
        return order_compare(order, a, a_length, b, b_length) <= 0;
    /* Numbers are no total order, and two keys without the field are each less than the
     * other: neither is a mistake. */
    return order->numeric || order_compare(order, a, a_length, b, b_length) <= 0 ||
           order_compare(order, b, b_length, a, a_length) >= 0;
}

/* The beginning of the first range, if that is compared as bytes; 0 decides nothing. */
static uint64_t field_prefix(const key_fields *fields, const uint8_t *key, size_t length)
{
    const key_spec *spec = &fields->specs[0];
    int64_t start, end;
    uint64_t prefix = 0;
    if (spec->numeric)
        return 0;
    if (field_range(fields, spec, key, (int64_t)length, &start, &end))
        for (int64_t i = 0; i < 8 && start + i < end; i++)
            prefix |= (uint64_t)key[start + i] << (56 - 8 * i);
    return spec->reverse ? ~prefix : prefix;
}

uint64_t order_prefix(const key_order *order, const uint8_t *key, size_t length)
{
    switch (order->kind) {
    case ORDER_BYTES:
        return byte_prefix(key, length, 0);
    case ORDER_FIELDS:
        return field_prefix(&order->fields, key, length);
    default: {
        uint64_t prefix = (uint64_t)long_of(key, length) ^ (uint64_t)1 << 63;
        return order->kind == ORDER_LONG_REVERSE ? ~prefix : prefix;
    }
    }
}
