/* The merge tree: sorted runs in, one sorted stream out (twin.MergeTree). */
#ifndef MRSTREAM_KERNEL_MERGE_H
#define MRSTREAM_KERNEL_MERGE_H

#include "_kernel.h"

#define PIECE_BYTES_MIN ((size_t)1 << 16) /* blobs of this size or more split a larger record */
#define LARGEST_KEY_BYTES_MAX 1024 /* of the key with the most records; the rest is not shown */

enum run_state { RUN_WAITING, RUN_READY, RUN_OVER };
enum merge_status { MERGE_WANTS, MERGE_FULL, MERGE_OVER, MERGE_BAD };

typedef struct {
    enum run_state state;
    const uint8_t *next, *end; /* of its block, behind the record it stands at */
    uint64_t prefix;
    record at;
} merge_run;

typedef struct {
    key_order order;
    wire_form form;
    enum serial key_serial, value_serial;
    size_t run_count;
    merge_run *runs;
    size_t *losers;
    size_t winner;
    bool built;
    bool advancing; /* the winner's record was given, its next one is not matched yet */

    uint8_t *out; /* where records go; the caller owns it */
    size_t out_bytes, out_size, out_records;
    size_t piece_at;   /* bytes of the winner's record that were given: it is larger than a blob */
    size_t out_needed; /* MERGE_FULL with nothing in it: the next record's size */

    const uint8_t *last_key; /* given last; its block must stay until another one is given */
    size_t last_key_length;
    uint64_t last_prefix;

    uint64_t records, groups, hadoop_bytes, group_records, largest_records;
    uint8_t largest_key[LARGEST_KEY_BYTES_MAX];
    size_t largest_key_length;
    char error[ERROR_BYTES];
} merge_tree;

bool merge_open(merge_tree *m);
void merge_close(merge_tree *m);
/* Give a run its next block; false: bad. The last key given may lie in its block before. */
bool merge_supply(merge_tree *m, size_t run, const uint8_t *block, size_t length);
enum merge_status merge_step(merge_tree *m, size_t *wanted);

#endif
