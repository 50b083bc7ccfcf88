/* The collector: cuts a command's output into records, keeps them in one piece of
 * memory, and gives them back sorted (twin.Collector). */
#ifndef MRSTREAM_KERNEL_COLLECT_H
#define MRSTREAM_KERNEL_COLLECT_H

#include "_kernel.h"
#include "_kernel_group.h"

enum cut { CUT_LINES, CUT_KEY_LINES, CUT_RAW, CUT_TYPED, CUT_FRAMED };
enum take { TAKE_OK, TAKE_FULL, TAKE_FAILED, TAKE_PLAIN /* not grouped: take it as it is */ };

#define TYPED_DEPTH_MAX 1024
#define TYPED_LIST (-1)

typedef struct { /* where we are in a pair of typed objects, which may go on in the next feed */
    size_t at;   /* bytes of the record looked at; may lie behind those that are there */
    size_t key_end;
    bool in_value;
    size_t depth;
    int64_t open[TYPED_DEPTH_MAX + 2]; /* objects still to come; TYPED_LIST until a mark */
} typed_cursor;

typedef struct {
    /* how records are cut, dealt and ordered */
    enum cut cut;
    uint8_t *separator;
    size_t separator_length;
    int64_t key_fields;
    enum serial key_serial, value_serial;
    uint32_t partitions;
    key_partition partition;
    key_order order;
    wire_form form;

    /* The arena: frames from the bottom, then the tail (a record that is not complete, as it
     * came, behind room for a header); entries from the top downwards; between them room for
     * as many entries again, the sort's scratch. */
    uint8_t *arena;
    size_t arena_bytes;
    size_t capacity_bytes;
    size_t used_bytes;
    size_t paged_bytes; /* of the bottom, whose pages were taken */
    size_t count;        /* of entries */
    size_t record_count; /* a group is one entry and many records */
    group_table table;
    size_t tail_bytes;
    bool after_cr;
    bool ended; /* typed bytes said so */
    typed_cursor typed;

    /* while records are given back */
    bool giving;
    entry *sorted;
    size_t at;
    bool in_group; /* the entry at is a group, and group stands at its next record */
    group_cursor group;
    const uint8_t *last_key;
    size_t last_key_length;
    uint64_t last_prefix;

    uint64_t records_total, bytes_total;
    char error[ERROR_BYTES];
} collector;

bool collector_open(collector *c);
void collector_close(collector *c);
/* Take data[*at, length); *at says how far. TAKE_FULL: sort, give, reset, come again. */
enum take collector_feed(collector *c, const uint8_t *data, size_t *at, size_t length);
enum take collector_add(collector *c, const uint8_t *key, size_t key_length,
                        const uint8_t *value, size_t value_length);
enum take collector_finish(collector *c);
enum take collector_sort(collector *c);
/* How many bytes the next record takes in the form of the blobs. */
size_t collector_next_bytes(collector *c);
typedef struct {
    size_t records, bytes;
    uint64_t hadoop_bytes;
} given;
/* Write as many whole records of one partition to out as size bytes hold; false: D1. */
bool collector_give(collector *c, uint8_t *out, size_t size, given *what);
bool collector_reset(collector *c);

/* What the files of the collector need of one another. */
enum take collector_failed(collector *c, const char *message);
enum take collector_make_room(collector *c, size_t bytes);
enum take collector_index(collector *c, const record *r, size_t bytes, uint64_t prefix,
                          uint32_t flag);
bool collector_start_grouping(collector *c);
void collector_close_groups(collector *c);
/* Put a record into its group; TAKE_PLAIN if it has none and shall not have one. */
enum take collector_group(collector *c, const record *r);

/* How much of the record at data is there; on CUT_WHOLE its sides (not its frame) are set. */
enum cut_status collector_cut(collector *c, const uint8_t *data, size_t length, record *found,
                              size_t *needed);

/* Behind the entry that was made first; the others lie before it. */
static inline entry *collector_top(const collector *c)
{
    return (entry *)(void *)(c->arena + c->arena_bytes);
}

static inline int64_t collector_partition(const collector *c)
{
    return c->at < c->count ? (int64_t)(c->sorted[c->at].partition & ~GROUP_FLAG) : -1;
}

#endif
