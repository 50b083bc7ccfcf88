/* See _kernel_group.h. */
#include "_kernel_group.h"

#include <stdlib.h>

#include "_kernel_collect.h"

#define SLOTS_FIRST 1024
#define PROBES_MAX 64
#define CHUNK_BYTES_FIRST 16
#define CHUNK_BYTES_MAX 4096
#define WINDOW_RECORDS 4096
#define WINDOW_GROUPS_MAX (WINDOW_RECORDS / 4 * 3)

static inline uint64_t mixed(uint64_t h)
{
    h = (h ^ (h >> 32)) * 0x9e3779b97f4a7c15u; /* the golden ratio's bits: odd and without pattern */
    return h ^ (h >> 29);
}

static inline uint32_t hash_key(uint64_t prefix, const uint8_t *key, size_t length)
{
    uint64_t h = mixed(prefix);
    for (size_t at = PREFIX_STEP; at < length; at += 8) {
        uint64_t part = 0;
        if (length - at >= 8)
            part = load_be64(key + at);
        else
            memcpy(&part, key + at, length - at);
        h = mixed(h + part);
    }
    return (uint32_t)(mixed(h + length) >> 16);
}

bool collector_start_grouping(collector *c)
{
    group_table *t = &c->table;
    t->groups = t->window_records = t->window_groups = 0;
    /* A group is of one partition: where values decide, the records of a key are of many. */
    t->on = c->order.kind == ORDER_BYTES && c->capacity_bytes >= GROUP_CAPACITY_MIN &&
            !(c->partition.by_value && c->partitions > 1);
    if (!t->on)
        return true;
    if (!t->slots) {
        t->slots = malloc(SLOTS_FIRST * sizeof *t->slots);
        if (!t->slots)
            return false;
        t->slot_count = SLOTS_FIRST;
    }
    memset(t->slots, 0, t->slot_count * sizeof *t->slots);
    return true;
}

/* The slot of the key, or the free one where it belongs; NULL if that is too far away. */
static inline group_slot *find_slot(const collector *c, uint64_t prefix, uint32_t hash,
                                    const record *r)
{
    const group_table *t = &c->table;
    size_t at = hash & (t->slot_count - 1);
    for (int probes = 0; probes < PROBES_MAX; probes++, at = (at + 1) & (t->slot_count - 1)) {
        group_slot *slot = &t->slots[at];
        if (!slot->offset)
            return slot;
        if (slot->prefix != prefix || slot->hash != hash)
            continue;
        if ((prefix & 0xff) != PREFIX_MORE)
            return slot;
        record group = frame_record(c->arena + slot->offset - 1);
        if (group.key_length == r->key_length &&
            memcmp(group.key, r->key, r->key_length) == 0)
            return slot;
    }
    return NULL;
}

/* Twice as many slots; false if the table would take more than its share, or without memory. */
static bool grow_table(collector *c)
{
    group_table *t = &c->table;
    size_t count = 2 * t->slot_count;
    if (count * sizeof *t->slots > c->capacity_bytes / 8)
        return false;
    group_slot *slots = calloc(count, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < t->slot_count; i++) {
        if (!t->slots[i].offset)
            continue;
        size_t at = t->slots[i].hash & (count - 1);
        while (slots[at].offset)
            at = (at + 1) & (count - 1);
        slots[at] = t->slots[i];
    }
    free(t->slots);
    t->slots = slots;
    t->slot_count = count;
    return true;
}

static inline group_values *values_of(const collector *c, uint32_t offset, group_values *copy)
{
    record group = frame_record(c->arena + offset);
    memcpy(copy, group.value, sizeof *copy);
    return (group_values *)(uintptr_t)group.value; /* not aligned: only to be copied to */
}

/* Begin a chunk behind what is used, the caller having made room; the slot goes there. */
static void add_chunk(collector *c, group_slot *slot, group_values *values, size_t size)
{
    group_chunk head = {0, 0};
    uint32_t offset = (uint32_t)c->used_bytes;
    memcpy(c->arena + offset, &head, sizeof head);
    if (values->last) {
        head = (group_chunk){offset, slot->cursor};
        memcpy(c->arena + values->last, &head, sizeof head);
    } else {
        values->first = offset;
    }
    values->last = offset;
    if (values->next_size < CHUNK_BYTES_MAX)
        values->next_size *= 2;
    slot->cursor = offset + (uint32_t)sizeof head;
    slot->end = slot->cursor + (uint32_t)size;
    c->used_bytes += sizeof head + size;
}

static inline void put_value(collector *c, group_slot *slot, const record *r)
{
    uint8_t *start = c->arena + slot->cursor;
    uint8_t *p = put_varint(start, r->value_length);
    copy_short(p, r->value, r->value_length);
    slot->cursor += (uint32_t)((size_t)(p - start) + r->value_length);
}

static enum take grow_group(collector *c, group_slot *slot, size_t needed)
{
    group_values values, *place = values_of(c, slot->offset - 1, &values);
    size_t size = needed > values.next_size ? needed : values.next_size;
    enum take room = collector_make_room(c, sizeof(group_chunk) + size);
    if (room == TAKE_OK) {
        add_chunk(c, slot, &values, size);
        memcpy((void *)place, &values, sizeof values);
    }
    return room;
}

static inline enum take append_value(collector *c, group_slot *slot, const record *r)
{
    size_t needed = varint_bytes(r->value_length) + r->value_length;
    if (needed > slot->end - slot->cursor) {
        enum take grown = grow_group(c, slot, needed);
        if (grown != TAKE_OK)
            return grown;
    }
    put_value(c, slot, r);
    return TAKE_OK;
}

static enum take add_group(collector *c, group_slot *slot, uint64_t prefix, uint32_t hash,
                           const record *r)
{
    size_t needed = varint_bytes(r->value_length) + r->value_length;
    size_t size = needed > CHUNK_BYTES_FIRST ? needed : CHUNK_BYTES_FIRST;
    size_t header = varint_bytes(r->key_length) + varint_bytes(sizeof(group_values));
    enum take room =
        collector_make_room(c, header + r->key_length + sizeof(group_values) +
                                   sizeof(group_chunk) + size);
    if (room != TAKE_OK)
        return room;

    uint32_t offset = (uint32_t)c->used_bytes;
    uint8_t *frame = c->arena + offset;
    uint8_t *key = put_varint(put_varint(frame, r->key_length), sizeof(group_values));
    copy_short(key, r->key, r->key_length);
    size_t bytes = header + r->key_length + sizeof(group_values);
    if (collector_index(c, r, bytes, prefix, GROUP_FLAG) != TAKE_OK)
        return TAKE_FAILED;
    group_values values = {0, 0, CHUNK_BYTES_FIRST};
    *slot = (group_slot){prefix, hash, offset + 1, 0, 0};
    add_chunk(c, slot, &values, size);
    memcpy(key + r->key_length, &values, sizeof values);
    put_value(c, slot, r);
    c->table.groups++;
    c->table.window_groups++;
    return TAKE_OK;
}

/* Every so often: if most keys were new, grouping only costs. */
static inline bool keys_repeat(group_table *t)
{
    if (++t->window_records < WINDOW_RECORDS)
        return true;
    bool repeat = t->window_groups <= WINDOW_GROUPS_MAX;
    t->window_records = t->window_groups = 0;
    return repeat;
}

enum take collector_group(collector *c, const record *r)
{
    group_table *t = &c->table;
    /* A large record would waste a chunk, and one larger than the buffer has no place in it. */
    if (r->key_length + r->value_length > c->capacity_bytes / 8) {
        t->on = false;
        return TAKE_PLAIN;
    }
    uint64_t prefix = byte_prefix(r->key, r->key_length, 0);
    uint32_t hash = hash_key(prefix, r->key, r->key_length);
    group_slot *slot = find_slot(c, prefix, hash, r);
    if (!slot || (!slot->offset && 2 * (t->groups + 1) > t->slot_count)) {
        t->on = slot && grow_table(c);
        return t->on ? collector_group(c, r) : TAKE_PLAIN;
    }
    enum take taken =
        slot->offset ? append_value(c, slot, r) : add_group(c, slot, prefix, hash, r);
    if (taken == TAKE_OK && !keys_repeat(t))
        t->on = false;
    return taken;
}

/* ---- giving ------------------------------------------------------------------------ */

void collector_close_groups(collector *c)
{
    group_values values;
    if (!c->table.groups)
        return;
    for (size_t i = 0; i < c->table.slot_count; i++) {
        const group_slot *slot = &c->table.slots[i];
        if (!slot->offset)
            continue;
        values_of(c, slot->offset - 1, &values);
        group_chunk head = {0, slot->cursor};
        memcpy(c->arena + values.last, &head, sizeof head);
    }
}

static void enter_chunk(const uint8_t *arena, group_cursor *cursor, uint32_t chunk)
{
    group_chunk head;
    memcpy(&head, arena + chunk, sizeof head);
    cursor->next = head.next;
    cursor->position = chunk + (uint32_t)sizeof head;
    cursor->end = head.end;
}

void group_open(const uint8_t *arena, const record *r, group_cursor *cursor)
{
    group_values values;
    memcpy(&values, r->value, sizeof values);
    cursor->at = *r;
    enter_chunk(arena, cursor, values.first);
    group_next(arena, cursor);
}

bool group_next(const uint8_t *arena, group_cursor *cursor)
{
    if (cursor->position == cursor->end) {
        if (!cursor->next)
            return false;
        enter_chunk(arena, cursor, cursor->next);
    }
    cursor->at.value = get_varint(arena + cursor->position, &cursor->at.value_length);
    cursor->position = (uint32_t)(cursor->at.value + cursor->at.value_length - arena);
    return true;
}
