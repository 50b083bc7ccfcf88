/* The sort of the index. Byte order and integers: most significant byte first radix
 * sort, stable, on prefixes of eight bytes; where they are equal and the keys go on, the
 * next seven bytes take their place. Fields: a merge sort from the bottom up with the same
 * borders and comparisons as twin.merge_sort, for an order that need not be transitive. */
#include "_kernel.h"

#define LEAF_COUNT 24 /* below this, insertion is quicker than counting */
#define PREFETCH_COUNT 12
#define SHARED_COUNT_MAX 4096 /* so many keys stay in the cache while they are looked at twice */

typedef struct {
    const uint8_t *arena;
    bool exact; /* equal prefixes mean equal keys */
} radix;

static inline int compare_entries(const radix *r, const entry *a, const entry *b, size_t depth)
{
    if (a->prefix != b->prefix)
        return a->prefix < b->prefix ? -1 : 1;
    if (r->exact || (a->prefix & 0xff) != PREFIX_MORE)
        return 0;
    record left = frame_record(r->arena + a->offset), right = frame_record(r->arena + b->offset);
    size_t from = depth + PREFIX_STEP;
    return compare_bytes(left.key + from, left.key_length - from, right.key + from,
                         right.key_length - from);
}

static void insertion_sort(const radix *r, entry *entries, size_t count, size_t depth)
{
    for (size_t i = 1; i < count; i++) {
        entry moving = entries[i];
        size_t at = i;
        while (at && compare_entries(r, &entries[at - 1], &moving, depth) > 0) {
            entries[at] = entries[at - 1];
            at--;
        }
        entries[at] = moving;
    }
}

/* The lengths of a key, and its bytes behind depth. */
static inline void prefetch_key(const radix *r, const entry *e, size_t depth)
{
    PREFETCH(r->arena + e->offset);
    PREFETCH(r->arena + e->offset + depth + PREFIX_STEP);
}

static void load_prefixes(const radix *r, entry *entries, size_t count, size_t depth)
{
    for (size_t i = 0; i < count; i++) {
        if (i + PREFETCH_COUNT < count)
            prefetch_key(r, &entries[i + PREFETCH_COUNT], depth);
        record found = frame_record(r->arena + entries[i].offset);
        entries[i].prefix = byte_prefix(found.key, found.key_length, depth);
    }
}

/* How many bytes behind depth all keys share. */
static size_t shared_bytes(const radix *r, const entry *entries, size_t count, size_t depth)
{
    record first = frame_record(r->arena + entries[0].offset);
    size_t shared = first.key_length - depth;
    for (size_t i = 1; i < count && shared; i++) {
        if (i + PREFETCH_COUNT < count)
            prefetch_key(r, &entries[i + PREFETCH_COUNT], depth);
        record other = frame_record(r->arena + entries[i].offset);
        if (other.key_length - depth < shared)
            shared = other.key_length - depth;
        const uint8_t *a = first.key + depth, *b = other.key + depth;
        size_t at = 0;
        for (; at + 8 <= shared && memcmp(a + at, b + at, 8) == 0; at += 8)
            ;
        while (at < shared && a[at] == b[at])
            at++;
        shared = at;
    }
    return shared;
}

static unsigned top_byte_shift(uint64_t differing)
{
    unsigned shift = 56;
    while (!(differing >> shift))
        shift -= 8;
    return shift;
}

typedef struct {        /* entries dealt by one byte of their prefixes */
    unsigned low, high; /* its least and its greatest value */
    size_t ends[256];   /* of the entries with that value; only those in between are set */
} deck;

/* Deal by the first byte in which prefixes differ, being given the least and the greatest. */
static void deal(deck *d, const entry *from, entry *to, size_t count, uint64_t least,
                 uint64_t greatest)
{
    size_t starts[256];
    unsigned shift = top_byte_shift(least ^ greatest);
    d->low = least >> shift & 0xff;
    d->high = greatest >> shift & 0xff;
    memset(starts + d->low, 0, (d->high - d->low + 1) * sizeof *starts);
    for (size_t i = 0; i < count; i++)
        starts[from[i].prefix >> shift & 0xff]++;
    size_t sum = 0;
    for (unsigned i = d->low; i <= d->high; i++) {
        size_t size = starts[i];
        starts[i] = sum;
        sum += size;
        d->ends[i] = sum;
    }
    for (size_t i = 0; i < count; i++)
        to[starts[from[i].prefix >> shift & 0xff]++] = from[i];
}

/* Sort here[0, count), whose keys share depth bytes; the result goes to there if into_there.
 * Goes on in a loop with the largest bucket and calls itself for the others, which are at most
 * half as large: so the stack is never deeper than the logarithm of the count. */
static void radix_sort(const radix *r, entry *here, entry *there, size_t count, size_t depth,
                       bool into_there)
{
    deck d;
    while (count > 1) {
        uint64_t least = here[0].prefix, greatest = least;
        for (size_t i = 1; i < count; i++) {
            uint64_t prefix = here[i].prefix;
            least = prefix < least ? prefix : least;
            greatest = prefix > greatest ? prefix : greatest;
        }
        if (least == greatest) {
            if (r->exact || (least & 0xff) != PREFIX_MORE)
                goto sorted;
            depth += PREFIX_STEP;
            if (count > LEAF_COUNT && count <= SHARED_COUNT_MAX)
                depth += shared_bytes(r, here, count, depth);
            load_prefixes(r, here, count, depth);
            continue;
        }
        if (count <= LEAF_COUNT) {
            insertion_sort(r, here, count, depth);
            goto sorted;
        }
        deal(&d, here, there, count, least, greatest);
        size_t largest = d.low, largest_size = 0, start = 0;
        for (unsigned i = d.low; i <= d.high; start = d.ends[i], i++)
            if (d.ends[i] - start > largest_size) {
                largest = i;
                largest_size = d.ends[i] - start;
            }
        start = 0;
        for (unsigned i = d.low; i <= d.high; start = d.ends[i], i++)
            if (i != largest && d.ends[i] > start)
                radix_sort(r, there + start, here + start, d.ends[i] - start, depth, !into_there);
        start = d.ends[largest] - largest_size;
        entry *swapped = here + start;
        here = there + start;
        there = swapped;
        count = largest_size;
        into_there = !into_there;
    }
sorted:
    if (into_there)
        memcpy(there, here, count * sizeof *here);
}

static int compare_keys(const key_order *order, const uint8_t *arena, const entry *a,
                        const entry *b)
{
    if (a->prefix != b->prefix)
        return a->prefix < b->prefix ? -1 : 1;
    record left = frame_record(arena + a->offset), right = frame_record(arena + b->offset);
    return order_compare(order, left.key, left.key_length, right.key, right.key_length);
}

static void merge_runs(const key_order *order, const uint8_t *arena, const entry *from,
                       size_t middle, size_t end, entry *to)
{
    size_t i = 0, j = middle;
    if (middle == end || compare_keys(order, arena, &from[middle - 1], &from[middle]) <= 0) {
        memcpy(to, from, end * sizeof *from);
        return;
    }
    while (i < middle && j < end)
        *to++ = compare_keys(order, arena, &from[i], &from[j]) <= 0 ? from[i++] : from[j++];
    memcpy(to, from + i, (middle - i) * sizeof *from);
    memcpy(to + (middle - i), from + j, (end - j) * sizeof *from);
}

static void merge_sort(const key_order *order, const uint8_t *arena, entry *entries,
                       entry *scratch, size_t count)
{
    entry *from = entries, *to = scratch;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t low = 0; low < count; low += 2 * width) {
            size_t left = count - low;
            merge_runs(order, arena, from + low, left < width ? left : width,
                       left < 2 * width ? left : 2 * width, to + low);
        }
        entry *swapped = from;
        from = to;
        to = swapped;
    }
    if (from != entries)
        memcpy(entries, from, count * sizeof *entries);
}

void sort_entries(const key_order *order, const uint8_t *arena, entry *entries, entry *scratch,
                  size_t count)
{
    if (order->kind == ORDER_FIELDS) {
        merge_sort(order, arena, entries, scratch, count);
    } else {
        radix r = {arena, order->kind != ORDER_BYTES};
        radix_sort(&r, entries, scratch, count, 0, false);
    }
}
