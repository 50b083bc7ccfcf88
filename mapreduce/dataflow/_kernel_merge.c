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
static bool load_record(merge_tree *m, merge_run *run)
{
    size_t needed;
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

/* Count a record that is about to be given; false if it may not follow the last one (D1). */
static bool count_record(merge_tree *m, const record *r)
{
    if (m->last_key && m->last_key_length == r->key_length &&
        memcmp(m->last_key, r->key, r->key_length) == 0) {
        m->group_records++;
    } else {
        if (m->last_key) {
            if (!order_allows(&m->order, m->last_key, m->last_key_length, r->key,
                              r->key_length)) {
                snprintf(m->error, ERROR_BYTES, "run %zu is not in order (D1)", m->winner);
                return false;
            }
            end_group(m);
        }
        m->groups++;
        m->group_records = 1;
    }
    m->last_key = r->key;
    m->last_key_length = r->key_length;
    m->records++;
    m->hadoop_bytes += stored_bytes(r, m->key_serial, m->value_serial);
    return true;
}

/* Go to the next record of the run that was given from, and find the new winner. */
static enum merge_status advance(merge_tree *m, size_t *wanted)
{
    merge_run *run = &m->runs[m->winner];
    if (run->state == RUN_WAITING) {
        *wanted = m->winner;
        return MERGE_WANTS;
    }
    /* The same key again: it beats all that the last one beat, in the same order. */
    bool again = run->state == RUN_READY && run->at.key_length == m->last_key_length &&
                 memcmp(run->at.key, m->last_key, m->last_key_length) == 0;
    if (!again)
        replay(m, m->winner);
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

enum merge_status merge_step(merge_tree *m, size_t *wanted)
{
    if (!m->run_count)
        return MERGE_OVER;
    if (!m->built && start(m, wanted) == MERGE_WANTS)
        return MERGE_WANTS;
    for (;;) {
        if (m->advancing && advance(m, wanted) == MERGE_WANTS)
            return MERGE_WANTS;
        merge_run *run = &m->runs[m->winner];
        if (run->state == RUN_OVER)
            return MERGE_OVER;
        size_t needed = wire_bytes(&m->form, &run->at);
        if (needed > m->out_size - m->out_bytes) {
            m->out_needed = needed;
            return MERGE_FULL;
        }
        if (!count_record(m, &run->at))
            return MERGE_BAD;
        wire_write(&m->form, &run->at, m->out + m->out_bytes);
        m->out_bytes += needed;
        m->out_records++;
        m->advancing = true;
        if (run->next == run->end)
            run->state = RUN_WAITING;
        else if (!load_record(m, run))
            return MERGE_BAD;
    }
}
