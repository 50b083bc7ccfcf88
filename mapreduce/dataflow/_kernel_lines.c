/* Lines end at LF, CR LF or a lone CR, wherever one feed ends and the next begins
 * (spec 4.1). Towards a map command a line is passed on as it comes, never held as a
 * whole, unless long lines are to be dropped. */
#include "_kernel_lines.h"

#include <stdio.h>
#include <stdlib.h>

static bool reserve(buffer *b, size_t more)
{
    if (b->size - b->length >= more)
        return true;
    size_t size = b->length + more;
    size += size / 2;
    uint8_t *bytes = realloc(b->bytes, size);
    if (!bytes)
        return false;
    b->bytes = bytes;
    b->size = size;
    return true;
}

static bool append(buffer *b, const uint8_t *bytes, size_t length)
{
    if (!reserve(b, length))
        return false;
    if (length)
        memcpy(b->bytes + b->length, bytes, length);
    b->length += length;
    return true;
}

static void free_buffer(buffer *b)
{
    free(b->bytes);
    *b = (buffer){0};
}

/* The end of the line at p, or end. *cr is the next CR, looked for once for many lines. */
static inline const uint8_t *line_end(const uint8_t *p, const uint8_t *end, const uint8_t **cr)
{
    if (!*cr || *cr < p) {
        *cr = memchr(p, '\r', (size_t)(end - p));
        if (!*cr)
            *cr = end;
    }
    const uint8_t *lf = memchr(p, '\n', (size_t)(*cr - p));
    return lf ? lf : *cr;
}

/* ---- towards a map command --------------------------------------------------------- */

void feeder_close(line_feeder *f)
{
    free_buffer(&f->line);
    free_buffer(&f->out);
}

static bool write_offset(line_feeder *f)
{
    char text[24];
    int length = snprintf(text, sizeof text, "%lld", (long long)f->line_at);
    return append(&f->out, (const uint8_t *)text, (size_t)length);
}

static bool write_line_start(line_feeder *f)
{
    f->key_found = false;
    if (f->form == LINE_OFFSET)
        return write_offset(f);
    if (f->form == LINE_OFFSET_LINE)
        return write_offset(f) && append(&f->out, f->separator, f->separator_length);
    return true;
}

static bool write_piece(line_feeder *f, const uint8_t *piece, size_t length)
{
    if (f->form == LINE_OFFSET)
        return true;
    if (f->form == LINE_PLAIN || f->form == LINE_OFFSET_LINE)
        return append(&f->out, piece, length);
    bool wants_key = f->form != LINE_VALUE, wants_value = f->form != LINE_KEY;
    if (!f->key_found) {
        const uint8_t *found = length ? memchr(piece, f->key_end, length) : NULL;
        size_t key_length = found ? (size_t)(found - piece) : length;
        if (wants_key && !append(&f->out, piece, key_length))
            return false;
        if (!found)
            return true;
        f->key_found = true;
        if (f->form == LINE_KEY_VALUE && !append(&f->out, f->separator, f->separator_length))
            return false;
        piece = found + 1;
        length -= key_length + 1;
    }
    return !wants_value || append(&f->out, piece, length);
}

static bool write_line_end(line_feeder *f)
{
    if (f->form == LINE_KEY_VALUE && !f->key_found &&
        !append(&f->out, f->separator, f->separator_length))
        return false;
    f->records++;
    return append(&f->out, (const uint8_t *)"\n", 1);
}

static bool begin_line(line_feeder *f)
{
    f->in_line = true;
    f->line_bytes = 0;
    f->line.length = 0;
    return f->skipping || f->bytes_max || write_line_start(f);
}

static bool take_piece(line_feeder *f, const uint8_t *piece, size_t length)
{
    f->line_bytes += length;
    if (f->skipping)
        return true;
    if (!f->bytes_max)
        return write_piece(f, piece, length);
    return f->line_bytes >= f->bytes_max || append(&f->line, piece, length);
}

/* The line is complete, with end_bytes of line end. */
static bool end_line(line_feeder *f, uint64_t end_bytes)
{
    bool good = true;
    if (f->skipping)
        f->skipping = false;
    else if (!f->bytes_max)
        good = write_line_end(f);
    else if (f->line_bytes + end_bytes < f->bytes_max)
        good = write_line_start(f) && write_piece(f, f->line.bytes, f->line.length) &&
               write_line_end(f);
    f->line_at += (int64_t)(f->line_bytes + end_bytes + f->dropped_bytes);
    f->dropped_bytes = 0;
    f->in_line = false;
    return good;
}

static bool is_past_end(line_feeder *f)
{
    if (!f->in_line && f->end >= 0 && f->line_at > f->end)
        f->done = true;
    return f->done;
}

/* What the byte behind a CR says: a LF belongs to it. */
static bool settle_cr(line_feeder *f, const uint8_t **p)
{
    bool lf = **p == '\n';
    *p += lf;
    f->after_cr = false;
    if (f->ending) {
        f->ending = false;
        return end_line(f, 1 + (uint64_t)lf);
    }
    f->line_at += lf;
    return true;
}

static bool feed_lines(line_feeder *f, const uint8_t *p, const uint8_t *end)
{
    const uint8_t *cr = NULL;
    if (f->after_cr && p < end && !settle_cr(f, &p))
        return false;
    while (p < end) {
        if (!f->in_line && (is_past_end(f) || !begin_line(f)))
            return f->done;
        const uint8_t *stop = line_end(p, end, &cr);
        if (!take_piece(f, p, (size_t)(stop - p)))
            return false;
        if (stop == end)
            break;
        p = stop + 1;
        bool is_cr = *stop == '\r', lf_follows = is_cr && p < end && *p == '\n';
        if (is_cr && p == end) {
            f->after_cr = true;
            /* Whether the line is too long may depend on the next byte. */
            f->ending = f->bytes_max && !f->skipping;
            return f->ending || end_line(f, 1);
        }
        p += lf_follows;
        if (!end_line(f, 1 + (uint64_t)lf_follows))
            return false;
    }
    is_past_end(f);
    return true;
}

static const uint8_t BOM[3] = {0xef, 0xbb, 0xbf};

/* Drop a byte order mark at the start; false without memory. */
static bool match_bom(line_feeder *f, const uint8_t **p, const uint8_t *end)
{
    while (f->bom_matched >= 0 && *p < end) {
        if (**p == BOM[f->bom_matched]) {
            ++*p;
            if (++f->bom_matched < 3)
                continue;
            f->bom_matched = -1;
            f->dropped_bytes = sizeof BOM;
            return true;
        }
        int held = f->bom_matched;
        f->bom_matched = -1;
        return feed_lines(f, BOM, BOM + held);
    }
    return true;
}

bool feeder_feed(line_feeder *f, const uint8_t *data, size_t length)
{
    const uint8_t *p = data, *end = data + length;
    if (f->done)
        return true;
    f->position += (int64_t)length;
    if (f->bom_matched >= 0 && !match_bom(f, &p, end))
        return false;
    if (!feed_lines(f, p, end))
        return false;
    if (f->done)
        f->position = f->line_at;
    return true;
}

bool feeder_finish(line_feeder *f)
{
    int held = f->bom_matched;
    f->bom_matched = -1;
    if (f->done)
        return true;
    if (held > 0 && !feed_lines(f, BOM, BOM + held))
        return false;
    if (f->ending) {
        f->ending = f->after_cr = false;
        return end_line(f, 1);
    }
    return !f->in_line || end_line(f, 0);
}

uint64_t count_byte(const uint8_t *p, size_t length, uint8_t byte)
{
    uint64_t count = 0;
    while (length) { /* bytes are summed in bytes as long as they cannot overflow */
        size_t part = length < 192 ? length : 192;
        uint8_t sum = 0;
        for (size_t i = 0; i < part; i++)
            sum = (uint8_t)(sum + (p[i] == byte));
        count += sum;
        p += part;
        length -= part;
    }
    return count;
}

bool feeder_passes(line_feeder *f, const uint8_t *data, size_t length)
{
    if (f->form != LINE_PLAIN || f->bytes_max || f->skipping || f->after_cr || f->done ||
        f->bom_matched >= 0 || !length || (f->end >= 0 && f->position + (int64_t)length > f->end))
        return false;
    if (memchr(data, '\r', length))
        return false;
    f->records += count_byte(data, length, '\n');
    size_t last = length;
    while (last && data[last - 1] != '\n')
        last--;
    if (last) { /* a line end is at last - 1 */
        f->line_at = f->position + (int64_t)last;
        f->line_bytes = f->dropped_bytes = 0;
    }
    f->line_bytes += length - last;
    f->in_line = f->line_bytes > 0 || (!last && f->in_line);
    f->position += (int64_t)length;
    return true;
}

/* ---- from a command to an output file ------------------------------------------------ */

void rewriter_close(line_rewriter *r)
{
    free_buffer(&r->held);
    free_buffer(&r->out);
}

/* The separator at which the line is cut, or NULL. */
static inline const uint8_t *cut_at(const line_rewriter *r, const uint8_t *p, const uint8_t *end)
{
    const uint8_t *found = NULL;
    for (int64_t i = 0; i < r->key_fields; i++) {
        found = find_bytes(p, end, r->separator, r->separator_length);
        if (!found)
            return NULL;
        p = found + r->separator_length;
    }
    return found;
}

static bool write_line(line_rewriter *r, const uint8_t *p, const uint8_t *end)
{
    buffer *out = &r->out;
    r->records++;
    if (!reserve(out, (size_t)(end - p) + r->out_separator_length + 1))
        return false;
    if (r->key_only) {
        append(out, p, (size_t)(end - p));
    } else {
        const uint8_t *found = cut_at(r, p, end);
        append(out, p, (size_t)((found ? found : end) - p));
        append(out, r->out_separator, r->out_separator_length);
        if (found) {
            found += r->separator_length;
            append(out, found, (size_t)(end - found));
        }
    }
    return append(out, (const uint8_t *)"\n", 1);
}

/* A line that stays as it is needs no copy of its own. */
static inline bool stays(const line_rewriter *r, const uint8_t *p, const uint8_t *end)
{
    return r->key_only || (r->same_separator && cut_at(r, p, end));
}

/* Pass on a piece of a line that is not in this feed as a whole; it is never kept but for a
 * few bytes that may be the beginning of a separator. */
static bool stream_piece(line_rewriter *r, const uint8_t *p, const uint8_t *end, bool ends)
{
    while (!r->key_only && r->found < r->key_fields) {
        const uint8_t *found = find_bytes(p, end, r->separator, r->separator_length);
        if (!found)
            break;
        bool is_cut = ++r->found == r->key_fields;
        const uint8_t *stop = is_cut ? found : found + r->separator_length;
        if (!append(&r->out, p, (size_t)(stop - p)) ||
            (is_cut && !append(&r->out, r->out_separator, r->out_separator_length)))
            return false;
        p = found + r->separator_length;
    }
    bool is_open = !r->key_only && r->found < r->key_fields;
    size_t held = 0;
    if (is_open && !ends) {
        held = r->separator_length - 1;
        if (held > (size_t)(end - p))
            held = (size_t)(end - p);
    }
    if (!append(&r->out, p, (size_t)(end - p) - held))
        return false;
    /* Where p lies in the held bytes themselves, there is room for them already. */
    if (r->held.size < held && !reserve(&r->held, held))
        return false;
    if (held)
        memmove(r->held.bytes, end - held, held);
    r->held.length = held;
    r->in_line = !ends;
    if (!ends)
        return true;
    r->found = 0;
    r->records++;
    return (!is_open || append(&r->out, r->out_separator, r->out_separator_length)) &&
           append(&r->out, (const uint8_t *)"\n", 1);
}

static bool take_piece_of_line(line_rewriter *r, const uint8_t *p, const uint8_t *end, bool ends)
{
    if (!r->held.length)
        return stream_piece(r, p, end, ends);
    return append(&r->held, p, (size_t)(end - p)) &&
           stream_piece(r, r->held.bytes, r->held.bytes + r->held.length, ends);
}

bool rewriter_feed(line_rewriter *r, const uint8_t *data, size_t length)
{
    const uint8_t *p = data, *end = data + length, *cr = NULL;
    if (!length)
        return true;
    if (r->after_cr) {
        r->after_cr = false;
        p += *p == '\n';
    }
    const uint8_t *unwritten = p; /* lines before p that stay as they are */
    while (p < end) {
        const uint8_t *stop = line_end(p, end, &cr);
        if (stop == end)
            break;
        bool is_cr = *stop == '\r';
        const uint8_t *next = stop + 1;
        if (is_cr) {
            if (next == end)
                r->after_cr = true;
            else
                next += *next == '\n';
        }
        if (r->in_line) {
            if (!take_piece_of_line(r, p, stop, true))
                return false;
            unwritten = next;
        } else if (!is_cr && stays(r, p, stop)) {
            r->records++;
        } else {
            if (!append(&r->out, unwritten, (size_t)(p - unwritten)) || !write_line(r, p, stop))
                return false;
            unwritten = next;
        }
        p = next;
    }
    return append(&r->out, unwritten, (size_t)(p - unwritten)) &&
           (p == end || take_piece_of_line(r, p, end, false));
}

bool rewriter_finish(line_rewriter *r)
{
    return !r->in_line || take_piece_of_line(r, NULL, NULL, true);
}
