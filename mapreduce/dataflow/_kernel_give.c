/* Sorting the collector's index, and giving its records back in order. */
#include <stdlib.h>

#include "_kernel_collect.h"

#define PREFETCH_COUNT 16
#define PREFETCH_LINES_MAX 4
#define CACHE_LINE_BYTES 64

static size_t rounded(size_t bytes) { return (bytes + 15) & ~(size_t)15; }

/* Deal the entries, last emitted first, to their partitions; starts[i] begins partition i. */
static void deal_partitions(const collector *c, const entry *entries, entry *to, size_t *starts)
{
    memset(starts, 0, (c->partitions + 1) * sizeof *starts);
    for (size_t i = 0; i < c->count; i++)
        starts[(entries[i].partition & ~GROUP_FLAG) + 1]++;
    for (uint32_t i = 0; i < c->partitions; i++)
        starts[i + 1] += starts[i];
    for (size_t i = c->count; i-- > 0;)
        to[starts[entries[i].partition & ~GROUP_FLAG]++] = entries[i];
    for (uint32_t i = c->partitions; i > 0; i--)
        starts[i] = starts[i - 1];
    starts[0] = 0;
}

enum take collector_sort(collector *c)
{
    size_t tail = c->tail_bytes ? FRAME_HEADER_BYTES_MAX + c->tail_bytes : 0;
    entry *entries = collector_top(c) - c->count;
    entry *sorted = (entry *)(void *)(c->arena + rounded(c->used_bytes + tail));
    size_t *starts = malloc((c->partitions + 1) * sizeof *starts);
    if (!starts)
        return collector_failed(c, "out of memory for the partitions");
    collector_close_groups(c);
    deal_partitions(c, entries, sorted, starts);
    for (uint32_t i = 0; i < c->partitions; i++)
        sort_entries(&c->order, c->arena, sorted + starts[i], entries + starts[i],
                     starts[i + 1] - starts[i]);
    free(starts);
    c->sorted = sorted;
    c->at = 0;
    c->giving = true;
    c->last_key = NULL;
    c->in_group = false;
    return TAKE_OK;
}

/* Is the next record one of a group? If so, c->group stands at it. */
static inline bool enter_group(collector *c)
{
    if (c->in_group || !(c->sorted[c->at].partition & GROUP_FLAG))
        return c->in_group;
    record r = frame_record(c->arena + c->sorted[c->at].offset);
    group_open(c->arena, &r, &c->group);
    return c->in_group = true;
}

/* The frame of a record; one of a group does not lie there as it is written. */
static inline size_t framed_bytes(const record *r)
{
    return varint_bytes(r->key_length) + varint_bytes(r->value_length) + r->key_length +
           r->value_length;
}

size_t collector_next_bytes(collector *c)
{
    record r =
        enter_group(c) ? c->group.at : frame_record(c->arena + c->sorted[c->at].offset);
    return c->form.framed ? framed_bytes(&r) : wire_bytes(&c->form, &r);
}

static inline void write_frame(const record *r, uint8_t *out)
{
    out = put_varint(put_varint(out, r->key_length), r->value_length);
    copy_short(out, r->key, r->key_length);
    copy_short(out + r->key_length, r->value, r->value_length);
}

/* D1, and remember the key for the next one. */
static inline bool may_follow(collector *c, const record *r)
{
    bool good = true;
    if (c->order.kind == ORDER_BYTES) {
        uint64_t prefix = byte_prefix(r->key, r->key_length, 0);
        if (c->last_key)
            good = order_compare_prefixed(&c->order, c->last_prefix, c->last_key,
                                          c->last_key_length, prefix, r->key, r->key_length) <= 0;
        c->last_prefix = prefix;
    } else if (c->last_key) {
        good = order_allows(&c->order, c->last_key, c->last_key_length, r->key, r->key_length);
    }
    c->last_key = r->key;
    c->last_key_length = r->key_length;
    return good;
}

typedef struct { /* what is being filled */
    uint8_t *next, *end;
    given what;
} output;

/* Give the plain records at c->at and behind it; false: D1. */
static bool give_plain(collector *c, output *o, uint32_t partition, size_t lines)
{
    const entry *sorted = c->sorted;
    bool framed = c->form.framed;
    size_t at = c->at;
    for (; at < c->count && sorted[at].partition == partition; at++) {
        if (at + PREFETCH_COUNT < c->count) {
            const uint8_t *ahead = c->arena + sorted[at + PREFETCH_COUNT].offset;
            for (size_t line = 0; line < lines; line++)
                PREFETCH(ahead + line * CACHE_LINE_BYTES);
        }
        record r = frame_record(c->arena + sorted[at].offset);
        size_t bytes = framed ? frame_bytes(&r) : wire_bytes(&c->form, &r);
        if (bytes > (size_t)(o->end - o->next))
            break;
        if (!may_follow(c, &r))
            return false;
        if (framed)
            copy_short(o->next, r.frame, bytes);
        else
            wire_write(&c->form, &r, o->next);
        o->next += bytes;
        o->what.records++;
        o->what.hadoop_bytes += stored_bytes(&r, c->key_serial, c->value_serial);
    }
    c->at = at;
    return true;
}

/* Give the records of the group at c->at; false: D1. */
static bool give_group(collector *c, output *o)
{
    group_cursor *g = &c->group;
    bool framed = c->form.framed;
    if (!may_follow(c, &g->at))
        return false;
    do {
        size_t bytes = framed ? framed_bytes(&g->at) : wire_bytes(&c->form, &g->at);
        if (bytes > (size_t)(o->end - o->next))
            return true;
        if (framed)
            write_frame(&g->at, o->next);
        else
            wire_write(&c->form, &g->at, o->next);
        o->next += bytes;
        o->what.records++;
        o->what.hadoop_bytes += stored_bytes(&g->at, c->key_serial, c->value_serial);
    } while (group_next(c->arena, g));
    c->in_group = false;
    c->at++;
    return true;
}

bool collector_give(collector *c, uint8_t *out, size_t size, given *what)
{
    int64_t partition = collector_partition(c);
    /* A usual record begins anywhere in its first line. */
    size_t lines = 2 + c->used_bytes / c->count / CACHE_LINE_BYTES;
    if (lines > PREFETCH_LINES_MAX)
        lines = PREFETCH_LINES_MAX;
    output o = {out, out + size, {0, 0, 0}};
    bool good = true, moved = true;
    while (good && moved && collector_partition(c) == partition) {
        size_t before = c->at;
        good = enter_group(c) ? give_group(c, &o)
                              : give_plain(c, &o, (uint32_t)partition, lines);
        moved = c->at != before;
    }
    *what = o.what;
    what->bytes = (size_t)(o.next - out);
    if (collector_partition(c) != partition)
        c->last_key = NULL;
    return good;
}
