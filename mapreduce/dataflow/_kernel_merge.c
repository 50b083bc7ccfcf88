/* A loser tree over any number of runs; the model is twin.MergeTree. Runs are leaves
 * run_count ... 2 * run_count - 1, node i has the children 2i and 2i + 1, and keeps who
 * lost there. On a tie the run that was named first wins. */
#include "_kernel_merge.h"

#include <stdio.h>
#include <stdlib.h>

bool merge_open(merge_tree *m)
{
    m->runs = calloc(m->run_count + 1, sizeof *m->runs);
    m->losers = calloc(m->run_count + 1, sizeof *m->losers);
    return m->runs && m->losers;
}

void merge_close(merge_tree *m)
{
    free(m->runs);
    free(m->losers);
    m->runs = NULL;
    m->losers = NULL;
}

/* Stand at the record that begins at next. */
static inline bool load_record(merge_tree *m, merge_run *run)
{
    size_t needed;
    const uint8_t *p = run->next;
    if (LIKELY(run->end - p >= 2 && p[0] < 0x80 && p[1] < 0x80 &&
               run->end - p >= 2 + p[0] + p[1])) {
        run->at = (record){p, p + 2, p[0], p + 2 + p[0], p[1]};
        run->next = p + 2 + p[0] + p[1];
        run->prefix = m->order.kind == ORDER_BYTES
                          ? byte_prefix(run->at.key, run->at.key_length, 0)
                          : order_prefix(&m->order, run->at.key, run->at.key_length);
        run->state = RUN_READY;
        return true;
    }
    switch (cut_frame(run->next, run->end, &run->at, &needed, m->error)) {
    case CUT_WHOLE:
        run->next += needed;
        run->prefix = order_prefix(&m->order, run->at.key, run->at.key_length);
        run->state = RUN_READY;
        return true;
    case CUT_MORE:
        snprintf(m->error, ERROR_BYTES, "a block ends inside a record");
        return false;
    default:
        return false;
    }
}

bool merge_supply(merge_tree *m, size_t run, const uint8_t *block, size_t length)
{
    merge_run *r = &m->runs[run];
    r->next = block;
    r->end = block + length;
    if (!block)
        r->state = RUN_OVER;
    return length ? load_record(m, r) : true;
}

static inline bool beats(const merge_tree *m, size_t a, size_t b)
{
    const merge_run *left = &m->runs[a], *right = &m->runs[b];
    bool swapped = a > b;
    if (swapped) {
        left = &m->runs[b];
        right = &m->runs[a];
    }
    bool left_wins;
    if (left->state == RUN_OVER)
        left_wins = right->state == RUN_OVER;
    else
        left_wins = right->state == RUN_OVER ||
                    order_compare_prefixed(&m->order, left->prefix, left->at.key,
                                           left->at.key_length, right->prefix, right->at.key,
                                           right->at.key_length) <= 0;
    return left_wins != swapped;
}

/* Who wins the subtree at node; losers are noted on the way. Depth: log2 of the runs. */
static size_t build(merge_tree *m, size_t node)
{
    if (node >= m->run_count)
        return node - m->run_count;
    size_t left = build(m, 2 * node), right = build(m, 2 * node + 1);
    bool left_wins = beats(m, left, right);
    m->losers[node] = left_wins ? right : left;
    return left_wins ? left : right;
}

static void replay(merge_tree *m, size_t run)
{
    size_t winner = run;
    for (size_t node = (run + m->run_count) / 2; node; node /= 2) {
        size_t loser = m->losers[node];
        if (beats(m, loser, winner)) {
            m->losers[node] = winner;
            winner = loser;
        }
    }
    m->winner = winner;
}

static void end_group(merge_tree *m)
{
    if (m->group_records <= m->largest_records)
        return;
    m->largest_key_length = m->last_key_length < LARGEST_KEY_BYTES_MAX ? m->last_key_length
                                                                        : LARGEST_KEY_BYTES_MAX;
    memcpy(m->largest_key, m->last_key, m->largest_key_length);
    m->largest_records = m->group_records;
}

/* Has the run's record the same key as the last one that was given? */
static inline bool same_key(const merge_tree *m, const merge_run *run)
{
    if (run->prefix != m->last_prefix || run->at.key_length != m->last_key_length || !m->last_key)
        return false;
    if (m->order.kind == ORDER_BYTES && (run->prefix & 0xff) != PREFIX_MORE)
        return true;
    return memcmp(m->last_key, run->at.key, run->at.key_length) == 0;
}

/* May the run's record follow the last one (D1)? */
static inline bool may_follow(const merge_tree *m, const merge_run *run)
{
    const record *r = &run->at;
    if (m->order.kind == ORDER_BYTES)
        return order_compare_prefixed(&m->order, m->last_prefix, m->last_key,
                                      m->last_key_length, run->prefix, r->key,
                                      r->key_length) <= 0;
    return order_allows(&m->order, m->last_key, m->last_key_length, r->key, r->key_length);
}

/* Begin a group with the run's record; false if that may not follow the last one. */
static bool begin_group(merge_tree *m, const merge_run *run)
{
    if (m->last_key) {
        if (!may_follow(m, run)) {
            snprintf(m->error, ERROR_BYTES, "run %zu is not in order (D1)", m->winner);
            return false;
        }
        end_group(m);
    }
    m->groups++;
    m->group_records = 0;
    m->last_prefix = run->prefix;
    return true;
}

/* Go to the next record of the run that was given from, and find the new winner; *same says
 * whether its key is the last one's. */
static inline enum merge_status advance(merge_tree *m, size_t *wanted, bool *same)
{
    merge_run *run = &m->runs[m->winner];
    if (run->state == RUN_WAITING) {
        *wanted = m->winner;
        return MERGE_WANTS;
    }
    /* The same key again: it beats all that the last one beat, in the same order. */
    *same = run->state == RUN_READY && same_key(m, run);
    if (!*same) {
        replay(m, m->winner);
        run = &m->runs[m->winner];
        *same = run->state == RUN_READY && same_key(m, run);
    }
    m->advancing = false;
    return MERGE_OVER;
}

static enum merge_status start(merge_tree *m, size_t *wanted)
{
    for (size_t i = 0; i < m->run_count; i++)
        if (m->runs[i].state == RUN_WAITING) {
            *wanted = i;
            return MERGE_WANTS;
        }
    m->winner = build(m, 1);
    m->built = true;
    return MERGE_OVER;
}

/* Can a record be given in pieces? Then one that is larger than a blob needs no copy. */
static inline bool is_divisible(const merge_tree *m)
{
    return !m->form.framed && m->form.key == SIDE_PLAIN && m->form.value == SIDE_PLAIN &&
           m->out_size >= PIECE_BYTES_MIN;
}

/* Fill the rest of the blob with the next bytes of the record; true when it is complete. */
static bool give_piece(merge_tree *m, const record *r)
{
    const wire_form *form = &m->form;
    const struct {
        const uint8_t *bytes;
        size_t length;
    } parts[] = {{r->key, r->key_length},
                 {form->separator, form->separator_length},
                 {r->value, r->value_length},
                 {form->end, form->end_length}};
    size_t skip = m->piece_at;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (skip >= parts[i].length) {
            skip -= parts[i].length;
            continue;
        }
        size_t left = parts[i].length - skip, room = m->out_size - m->out_bytes;
        size_t length = left < room ? left : room;
        memcpy(m->out + m->out_bytes, parts[i].bytes + skip, length);
        m->out_bytes += length;
        m->piece_at += length;
        if (length < left)
            return false;
        skip = 0;
    }
    m->piece_at = 0;
    return true;
}

/* Write the record, or what fits of it; false if the blob has to be taken first. */
static inline bool give(merge_tree *m, const record *r)
{
    size_t needed = quick_wire_bytes(&m->form, r);
    if (LIKELY(needed <= m->out_size - m->out_bytes && !m->piece_at)) {
        quick_wire_write(&m->form, r, m->out + m->out_bytes);
        m->out_bytes += needed;
        return true;
    }
    if (m->piece_at || (needed > m->out_size && is_divisible(m)))
        return give_piece(m, r);
    m->out_needed = needed;
    return false;
}

enum merge_status merge_step(merge_tree *m, size_t *wanted)
{
    if (!m->run_count)
        return MERGE_OVER;
    if (!m->built && start(m, wanted) == MERGE_WANTS)
        return MERGE_WANTS;
    bool same = !m->advancing && m->runs[m->winner].state == RUN_READY &&
                same_key(m, &m->runs[m->winner]);
    for (;;) {
        if (m->advancing && advance(m, wanted, &same) == MERGE_WANTS)
            return MERGE_WANTS;
        merge_run *run = &m->runs[m->winner];
        if (run->state == RUN_OVER)
            return MERGE_OVER;
        if (!give(m, &run->at))
            return MERGE_FULL;
        if (!same && !begin_group(m, run))
            return MERGE_BAD;
        m->out_records++;
        m->records++;
        m->group_records++;
        m->hadoop_bytes += stored_bytes(&run->at, m->key_serial, m->value_serial);
        m->last_key = run->at.key;
        m->last_key_length = run->at.key_length;
        m->advancing = true;
        if (run->next == run->end)
            run->state = RUN_WAITING;
        else if (!load_record(m, run))
            return MERGE_BAD;
    }
}
