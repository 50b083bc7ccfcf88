/* Grouping: where keys repeat, a key is kept once, with its values behind one another.
 *
 * A group is a frame of the arena like any record, so that the sort needs to know nothing of
 * it: its key is the key, its value a group_values, and its entry has GROUP_FLAG set. The
 * values lie in chunks of the arena, in order of emission. Grouping ends for a fill of the
 * buffer when keys turn out not to repeat; what comes then are plain records, all of them
 * emitted later than what the groups hold, so that a stable sort puts them behind. */
#ifndef MRSTREAM_KERNEL_GROUP_H
#define MRSTREAM_KERNEL_GROUP_H

#include "_kernel.h"

#define GROUP_FLAG 0x80000000u
#define GROUP_CAPACITY_MIN ((size_t)1 << 18) /* smaller buffers never group */

typedef struct {
    uint32_t first, last; /* chunks */
    uint32_t next_size;   /* of the next chunk */
} group_values;

typedef struct { /* at the start of a chunk */
    uint32_t next;
    uint32_t end; /* of its values; of the last chunk, set when all is sorted */
} group_chunk;

typedef struct {
    uint64_t prefix; /* byte_prefix of the key */
    uint32_t hash;
    uint32_t offset; /* of the group's frame, plus 1; 0: free */
    uint32_t cursor; /* where the next value goes: most values need no more than this slot */
    uint32_t end;    /* of the last chunk */
} group_slot;

typedef struct {
    bool on;
    group_slot *slots;
    size_t slot_count; /* a power of two */
    size_t groups;
    size_t window_records, window_groups; /* since we last asked whether keys repeat */
} group_table;

typedef struct { /* a group whose records are being given back */
    record at;
    uint32_t next, position, end; /* chunk; place and end in this one */
} group_cursor;

/* Stand at the first value of the group whose frame is r. */
void group_open(const uint8_t *arena, const record *r, group_cursor *cursor);
/* Stand at the next value; false behind the last. */
bool group_next(const uint8_t *arena, group_cursor *cursor);

#endif
