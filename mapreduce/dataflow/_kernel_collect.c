/* The collector's memory, and taking records into it; _kernel_give.c gives them back. Its
 * rules for when it is full are those of twin.Collector, so that both spill at the same
 * records, as long as keys are not grouped: then more fits in here. */
#ifdef __linux__
#define _GNU_SOURCE /* mremap */
#include <sys/mman.h>
#endif

#include "_kernel_collect.h"

#include <stdio.h>
#include <stdlib.h>

#define PAGE_BYTES ((size_t)1 << 16) /* the largest that a page of any host has */
#define SLACK_BYTES 64 /* for the alignment of entries and scratch */
#define TAIL_GROUPED_BYTES_MAX 4096
#define PAGES_BYTES ((size_t)1 << 18) /* so many are taken at once */

enum take collector_failed(collector *c, const char *message)
{
    snprintf(c->error, ERROR_BYTES, "%s", message);
    return TAKE_FAILED;
}

/* Under the address sanitizer the arena comes from malloc, which then watches its borders. */
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
/* The arena has pages of its own: it grows without a copy, and what is not touched costs
 * nothing. Large pages were tried: giving records back is then quicker, but where memory is
 * fragmented the first touch costs more than that. */
static uint8_t *resize_memory(uint8_t *memory, size_t old_bytes, size_t bytes)
{
    void *resized = memory ? mremap(memory, old_bytes, bytes, MREMAP_MAYMOVE)
                           : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return resized == MAP_FAILED ? NULL : resized;
}

static void free_memory(uint8_t *memory, size_t bytes)
{
    if (memory)
        (void)munmap(memory, bytes);
}

/* Take pages now: one call for many costs a third less than a fault for each. A system that
 * does not know how gives them one by one. */
static void take_pages(uint8_t *from, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    (void)madvise(from, bytes, MADV_POPULATE_WRITE);
#else
    (void)from, (void)bytes;
#endif
}
#else
static uint8_t *resize_memory(uint8_t *memory, size_t old_bytes, size_t bytes)
{
    (void)old_bytes;
    return realloc(memory, bytes);
}

static void free_memory(uint8_t *memory, size_t bytes)
{
    (void)bytes;
    free(memory);
}

static void take_pages(uint8_t *from, size_t bytes) { (void)from, (void)bytes; }
#endif

static bool resize_arena(collector *c, size_t bytes)
{
    bytes = (bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);
    uint8_t *arena = resize_memory(c->arena, c->arena_bytes, bytes);
    if (!arena)
        return false;
    c->arena = arena;
    c->arena_bytes = bytes;
    return true;
}

bool collector_open(collector *c)
{
    return resize_arena(c, c->capacity_bytes + SLACK_BYTES) && collector_start_grouping(c);
}

void collector_close(collector *c)
{
    free_memory(c->arena, c->arena_bytes);
    free(c->table.slots);
    c->arena = NULL;
    c->table.slots = NULL;
}

/* Is there room for so many bytes behind the frames? An empty collector makes room. */
enum take collector_make_room(collector *c, size_t bytes)
{
    size_t needed = c->used_bytes + bytes;
    if (c->count) {
        needed += (c->count + 1) * RECORD_OVERHEAD_BYTES;
        if (c->table.on || c->table.groups)
            needed += c->table.slot_count * sizeof *c->table.slots;
        return needed <= c->capacity_bytes ? TAKE_OK : TAKE_FULL;
    }
    if (LIKELY(needed + SLACK_BYTES <= c->arena_bytes))
        return TAKE_OK;
    /* A record larger than the buffer grows by feeds: half as much again each time. What is
     * not touched costs no memory. */
    if (!resize_arena(c, needed + needed / 2 + SLACK_BYTES))
        return collector_failed(c, "out of memory for one record");
    return TAKE_OK;
}

/* Enter a record whose frame of so many bytes lies, or will lie, behind the others. */
enum take collector_index(collector *c, const record *r, size_t bytes, uint64_t prefix,
                          uint32_t flag)
{
    int64_t partition = 0;
    if (c->partitions > 1) {
        bool by_value = c->partition.by_value;
        partition = partition_of(&c->partition, by_value ? r->value : r->key,
                                 by_value ? r->value_length : r->key_length, c->partitions);
        if (partition < 0)
            return collector_failed(c, "out of memory for one key");
        if (partition >= (int64_t)c->partitions) {
            int shown = r->key_length < 100 ? (int)r->key_length : 100;
            snprintf(c->error, ERROR_BYTES, "Illegal partition for %.*s (%lld)", shown,
                     (const char *)r->key, (long long)partition);
            return TAKE_FAILED;
        }
    }
    entry *e = collector_top(c) - ++c->count;
    e->prefix = prefix;
    e->offset = (uint32_t)c->used_bytes;
    e->partition = (uint32_t)partition | flag;
    c->used_bytes += bytes;
    return TAKE_OK;
}

static inline enum take counted(collector *c, const record *r, enum take taken)
{
    if (taken == TAKE_OK) {
        c->record_count++;
        c->records_total++;
        c->bytes_total += serial_bytes(r->key_length, c->key_serial) +
                          serial_bytes(r->value_length, c->value_serial);
    }
    return taken;
}

static enum take index_record(collector *c, const record *r, size_t bytes)
{
    uint64_t prefix = order_prefix(&c->order, r->key, r->key_length);
    return counted(c, r, collector_index(c, r, bytes, prefix, 0));
}

static bool has_good_lengths(collector *c, const record *r)
{
    if (LIKELY(r->key_length <= LENGTH_MAX && r->value_length <= LENGTH_MAX))
        return c->order.kind == ORDER_BYTES || c->order.kind == ORDER_FIELDS ||
               r->key_length <= 8 || !collector_failed(c, "an integer key has more than 8 bytes");
    snprintf(c->error, ERROR_BYTES, "a record has a side of more than %zu bytes", LENGTH_MAX);
    return false;
}

/* Take a record that lies elsewhere. */
static enum take take_record(collector *c, const record *r)
{
    size_t header = varint_bytes(r->key_length) + varint_bytes(r->value_length);
    if (!has_good_lengths(c, r))
        return TAKE_FAILED;
    if (c->table.on) {
        enum take taken = collector_group(c, r);
        if (taken != TAKE_PLAIN)
            return counted(c, r, taken);
    }
    size_t bytes = header + r->key_length + r->value_length;
    enum take taken = collector_make_room(c, bytes);
    if (taken != TAKE_OK)
        return taken;
    /* The key is looked at where it comes from: to read again what was just written stalls. */
    uint8_t *frame = c->arena + c->used_bytes;
    taken = index_record(c, r, bytes);
    if (taken != TAKE_OK)
        return taken;
    uint8_t *p = put_varint(put_varint(frame, r->key_length), r->value_length);
    copy_short(p, r->key, r->key_length);
    copy_short(p + r->key_length, r->value, r->value_length);
    return TAKE_OK;
}

/* ---- the tail ------------------------------------------------------------------ */

static inline uint8_t *tail_of(const collector *c)
{
    return c->arena + c->used_bytes + FRAME_HEADER_BYTES_MAX;
}

static enum take append_tail(collector *c, const uint8_t *data, size_t length)
{
    enum take room = collector_make_room(c, FRAME_HEADER_BYTES_MAX + c->tail_bytes + length);
    if (room == TAKE_OK) {
        memcpy(tail_of(c) + c->tail_bytes, data, length);
        c->tail_bytes += length;
    }
    return room;
}

/* Group the tail; TAKE_PLAIN if that cannot be. A group is made where the tail lies, so a copy
 * of that makes way first: rare, once a feed. */
static enum take group_tail(collector *c, const record *found)
{
    uint8_t aside[TAIL_GROUPED_BYTES_MAX];
    record r = *found;
    if (r.key_length + r.value_length > sizeof aside)
        return TAKE_PLAIN;
    r.key = aside;
    r.value = aside + r.key_length;
    memcpy(aside, found->key, r.key_length);
    memcpy(aside + r.key_length, found->value, r.value_length);
    enum take taken = collector_group(c, &r);
    if (taken == TAKE_OK)
        c->tail_bytes = 0;
    /* Plain, it has its room already. */
    return taken == TAKE_FULL ? TAKE_PLAIN : counted(c, &r, taken);
}

/* Make a frame of the tail, whose key and value are known, where it lies. */
static enum take take_tail(collector *c, const record *found)
{
    if (!has_good_lengths(c, found))
        return TAKE_FAILED;
    if (c->table.on) {
        enum take taken = group_tail(c, found);
        if (taken != TAKE_PLAIN)
            return taken;
        c->table.on = false;
    }
    size_t header = varint_bytes(found->key_length) + varint_bytes(found->value_length);
    uint8_t *frame = c->arena + c->used_bytes, *key = frame + header;
    enum take taken =
        index_record(c, found, header + found->key_length + found->value_length);
    if (taken != TAKE_OK)
        return taken;
    memmove(key, found->key, found->key_length);
    memmove(key + found->key_length, found->value, found->value_length);
    put_varint(put_varint(frame, found->key_length), found->value_length);
    c->tail_bytes = 0;
    return TAKE_OK;
}

/* ---- lines --------------------------------------------------------------------- */

static inline record cut_line(const collector *c, const uint8_t *line, const uint8_t *end)
{
    const uint8_t *found = NULL;
    if (c->cut == CUT_LINES) {
        const uint8_t *from = line;
        for (int64_t i = 0; i < c->key_fields; i++) {
            found = find_bytes(from, end, c->separator, c->separator_length);
            if (!found)
                break;
            from = found + c->separator_length;
        }
    }
    record r = {NULL, line, (size_t)((found ? found : end) - line), end, 0};
    if (found) {
        r.value = found + c->separator_length;
        r.value_length = (size_t)(end - r.value);
    }
    return r;
}

static enum take take_line(collector *c, const uint8_t *line, const uint8_t *end)
{
    if (LIKELY(!c->tail_bytes)) {
        record r = cut_line(c, line, end);
        return take_record(c, &r);
    }
    enum take taken = append_tail(c, line, (size_t)(end - line));
    if (taken != TAKE_OK)
        return taken;
    record r = cut_line(c, tail_of(c), tail_of(c) + c->tail_bytes);
    return take_tail(c, &r);
}

static enum take feed_lines(collector *c, const uint8_t *data, size_t *at, size_t length)
{
    const uint8_t *p = data + *at, *end = data + length;
    if (c->after_cr && p < end) {
        c->after_cr = false;
        p += *p == '\n';
    }
    const uint8_t *cr = NULL; /* the next one; end if there is none; NULL if not looked for */
    enum take taken = TAKE_OK;
    while (p < end) {
        if (!cr || cr < p) {
            cr = memchr(p, '\r', (size_t)(end - p));
            cr = cr ? cr : end;
        }
        const uint8_t *line_end = memchr(p, '\n', (size_t)(end - p));
        if (!line_end || line_end > cr)
            line_end = cr;
        if (line_end == end) {
            taken = append_tail(c, p, (size_t)(end - p));
            if (taken == TAKE_OK)
                p = end;
            break;
        }
        taken = take_line(c, p, line_end);
        if (taken != TAKE_OK)
            break;
        p = line_end + 1;
        if (line_end == cr) {
            if (p == end)
                c->after_cr = true;
            else
                p += *p == '\n';
        }
    }
    *at = (size_t)(p - data);
    return taken;
}

/* ---- binary records ------------------------------------------------------------- */

/* Complete the record in the tail; *at reaches length if there is not enough for it. */
static enum take feed_tail(collector *c, const uint8_t *data, size_t *at, size_t length)
{
    record found;
    size_t needed;
    for (;;) {
        enum cut_status status = collector_cut(c, tail_of(c), c->tail_bytes, &found, &needed);
        if (status == CUT_BAD)
            return TAKE_FAILED;
        if (status == CUT_WHOLE)
            return take_tail(c, &found);
        if (*at == length)
            return TAKE_OK;
        size_t missing = needed - c->tail_bytes, there = length - *at;
        size_t piece = missing < there ? missing : there;
        enum take taken = append_tail(c, data + *at, piece);
        if (taken != TAKE_OK)
            return taken;
        *at += piece;
    }
}

static enum take feed_binary(collector *c, const uint8_t *data, size_t *at, size_t length)
{
    enum take taken = TAKE_OK;
    while (taken == TAKE_OK && *at < length && !c->ended) {
        record found;
        size_t needed;
        if (c->tail_bytes) {
            taken = feed_tail(c, data, at, length);
            continue;
        }
        if (c->cut == CUT_TYPED && data[*at] == 255) {
            c->ended = true;
            break;
        }
        memset(&c->typed, 0, offsetof(typed_cursor, open));
        switch (collector_cut(c, data + *at, length - *at, &found, &needed)) {
        case CUT_WHOLE:
            taken = take_record(c, &found);
            *at += taken == TAKE_OK ? needed : 0;
            break;
        case CUT_MORE:
            taken = append_tail(c, data + *at, length - *at);
            if (taken == TAKE_OK)
                *at = length;
            break;
        default:
            taken = TAKE_FAILED;
        }
    }
    if (c->ended)
        *at = length;
    return taken;
}

enum take collector_feed(collector *c, const uint8_t *data, size_t *at, size_t length)
{
    while (c->paged_bytes < c->used_bytes + length - *at &&
           c->paged_bytes + PAGES_BYTES <= c->capacity_bytes) {
        take_pages(c->arena + c->paged_bytes, PAGES_BYTES);
        c->paged_bytes += PAGES_BYTES;
    }
    if (c->cut == CUT_LINES || c->cut == CUT_KEY_LINES)
        return feed_lines(c, data, at, length);
    return feed_binary(c, data, at, length);
}

enum take collector_add(collector *c, const uint8_t *key, size_t key_length,
                        const uint8_t *value, size_t value_length)
{
    record r = {NULL, key, key_length, value, value_length};
    if (c->tail_bytes)
        return collector_failed(c, "a record was added while another one is not complete");
    return take_record(c, &r);
}

enum take collector_finish(collector *c)
{
    if (!c->tail_bytes)
        return TAKE_OK;
    if (c->cut != CUT_LINES && c->cut != CUT_KEY_LINES) {
        snprintf(c->error, ERROR_BYTES, "the output ends inside a record, %zu bytes into it",
                 c->tail_bytes);
        return TAKE_FAILED;
    }
    record r = cut_line(c, tail_of(c), tail_of(c) + c->tail_bytes);
    return take_tail(c, &r);
}

bool collector_reset(collector *c)
{
    uint8_t *tail = tail_of(c);
    c->used_bytes = c->count = c->record_count = c->at = 0;
    c->giving = false;
    c->last_key = NULL;
    if (c->tail_bytes)
        memmove(tail_of(c), tail, c->tail_bytes);
    size_t usual = c->capacity_bytes + SLACK_BYTES;
    if (c->arena_bytes > usual + PAGE_BYTES && c->tail_bytes + FRAME_HEADER_BYTES_MAX <= c->capacity_bytes)
        if (!resize_arena(c, usual))
            return false;
    return collector_start_grouping(c);
}
