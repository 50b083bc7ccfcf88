/* CSV as Python's csv module reads it: a quote opens a field only at its start, two quotes inside
 * are one, and what follows a closing quote belongs to the field. A record ends at LF, CR LF or a
 * lone CR outside quotes; an empty line is none. */
#include "_kernel_csv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

static inline bool reserve(buffer *b, size_t more)
{
    if (b->size - b->length >= more)
        return true;
    size_t size = b->length + more;
    size += size / 2 + 64;
    uint8_t *bytes = realloc(b->bytes, size);
    if (!bytes)
        return false;
    b->bytes = bytes;
    b->size = size;
    return true;
}

/* Most fields are short: SHORT bytes are copied at once where there is room to, whatever the
 * length. Buffers keep that much room behind their end. */
#define SHORT 16

static inline void copy(uint8_t *to, const uint8_t *from, size_t length, bool has_room)
{
    if (LIKELY(has_room && length <= SHORT))
        memcpy(to, from, SHORT);
    else if (length)
        memcpy(to, from, length);
}

void csv_close(csv_reader *r)
{
    free(r->text.bytes);
    free(r->out.bytes);
    free(r->field_ends);
    free(r->pieces);
    r->text = r->out = (buffer){0};
    r->field_ends = NULL;
    r->pieces = NULL;
}

/* ---- one record as a line ----------------------------------------------------------- */

/* Is there nothing in it that JSON or a field between tabs must escape? One pass that compilers
 * turn into a few wide instructions. */
static bool is_plain(const uint8_t *p, size_t length)
{
    uint8_t found = 0;
    for (size_t i = 0; i < length; i++)
        found |= (uint8_t)((p[i] < 0x20) | (p[i] == '"') | (p[i] == '\\'));
    return !found;
}

static inline uint8_t *put(uint8_t *out, const char *bytes, size_t length)
{
    memcpy(out, bytes, length);
    return out + length;
}

/* What a byte becomes; 0: itself, 'u': \u00xx. */
static char escape_of(uint8_t byte, bool is_json)
{
    switch (byte) {
    case '\\':
        return '\\';
    case '\t':
        return 't';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '"':
        return is_json ? '"' : 0;
    default:
        return is_json && byte < 0x20 ? 'u' : 0;
    }
}

static uint8_t *put_escaped(uint8_t *out, const uint8_t *p, size_t length, bool is_json)
{
    static const char *digits = "0123456789abcdef";
    for (const uint8_t *end = p + length; p < end; p++) {
        char escape = escape_of(*p, is_json);
        if (!escape) {
            *out++ = *p;
            continue;
        }
        *out++ = '\\';
        *out++ = (uint8_t)escape;
        if (escape == 'u') {
            out = put(out, "00", 2);
            *out++ = (uint8_t)digits[*p >> 4];
            *out++ = (uint8_t)digits[*p & 15];
        }
    }
    return out;
}

static uint8_t *put_field(const csv_reader *r, uint8_t *out, size_t place, size_t field, bool plain)
{
    bool is_json = r->form != CSV_TABS;
    if (r->form == CSV_OBJECTS) {
        copy(out, r->names[place], r->name_lengths[place], false);
        out += r->name_lengths[place];
    } else if (place)
        *out++ = is_json ? ',' : '\t';
    if (field >= r->field_count)
        return is_json ? put(out, "null", 4) : put(out, "\\N", 2);
    size_t start = field ? r->field_ends[field - 1] : 0;
    const uint8_t *p = r->text.bytes + start;
    size_t length = r->field_ends[field] - start;
    if (is_json)
        *out++ = '"';
    if (plain || is_plain(p, length)) {
        copy(out, p, length, true);
        out += length;
    } else {
        out = put_escaped(out, p, length, is_json);
    }
    if (is_json)
        *out++ = '"';
    return out;
}

/* How many bytes a record's line has at most: columns may name a field more than once. */
static size_t line_bytes_max(const csv_reader *r, bool all, size_t count, bool plain)
{
    size_t text = 0, names = 0;
    if (all) {
        text = r->text.length;
    } else {
        for (size_t i = 0; i < count; i++) {
            size_t field = (size_t)r->columns[i];
            if (field < r->field_count)
                text += r->field_ends[field] - (field ? r->field_ends[field - 1] : 0);
        }
    }
    for (size_t i = 0; r->form == CSV_OBJECTS && i < count; i++)
        names += r->name_lengths[i];
    return text * (plain ? 1 : 6) + names + 8 * count + 8 + SHORT;
}

static bool write_record(csv_reader *r)
{
    bool all = r->column_count == SIZE_MAX;
    size_t count = all ? r->field_count : r->column_count;
    if (r->fields_max && r->field_count > r->fields_max) {
        snprintf(r->error, sizeof r->error,
                 "the record at byte %" PRId64 " has %zu fields, and the header %zu", r->record_at,
                 r->field_count, r->fields_max);
        return false;
    }
    r->records++;
    if (r->form == CSV_NOTHING)
        return true;
    bool plain = is_plain(r->text.bytes, r->text.length);
    if (!reserve(&r->out, line_bytes_max(r, all, count, plain)))
        return false;
    uint8_t *out = r->out.bytes + r->out.length;
    if (r->form != CSV_TABS)
        *out++ = r->form == CSV_OBJECTS ? '{' : '[';
    for (size_t i = 0; i < count; i++)
        out = put_field(r, out, i, all ? i : (size_t)r->columns[i], plain);
    if (r->form != CSV_TABS)
        *out++ = r->form == CSV_OBJECTS ? '}' : ']';
    *out++ = '\n';
    r->out.length = (size_t)(out - r->out.bytes);
    return true;
}

/* ---- the states --------------------------------------------------------------------- */

/* `left`: how many bytes may be read from p on. */
static inline bool add_text(csv_reader *r, const uint8_t *p, size_t length, size_t left)
{
    if ((uint64_t)r->text.length + length > r->bytes_max) {
        snprintf(r->error, sizeof r->error,
                 "the record at byte %" PRId64 " is longer than %" PRIu64
                 " bytes: is a quote not closed?",
                 r->record_at, r->bytes_max);
        return false;
    }
    if (r->form == CSV_NOTHING) { /* only its length is of interest */
        r->text.length += length;
        return true;
    }
    if (!reserve(&r->text, length + SHORT))
        return false;
    copy(r->text.bytes + r->text.length, p, length, left >= SHORT);
    r->text.length += length;
    return true;
}

static bool more_fields(csv_reader *r)
{
    size_t room = r->field_room * 2 + 16;
    size_t *ends = realloc(r->field_ends, room * sizeof *ends);
    if (!ends)
        return false;
    r->field_ends = ends;
    r->field_room = room;
    return true;
}

static inline bool end_field(csv_reader *r)
{
    if (r->field_count == r->field_room && !more_fields(r))
        return false;
    r->field_ends[r->field_count++] = r->text.length;
    return true;
}

static bool end_record(csv_reader *r, uint8_t ender)
{
    bool good = end_field(r) && write_record(r);
    r->text.length = 0;
    r->field_count = 0;
    r->state = ender == '\r' ? CSV_AFTER_CR : CSV_START_RECORD;
    return good;
}

static inline bool ends_line(uint8_t byte) { return byte == '\n' || byte == '\r'; }

/* A byte outside quotes that ends a field. */
static bool take_end(csv_reader *r, uint8_t byte)
{
    if (ends_line(byte))
        return end_record(r, byte);
    r->state = CSV_START_FIELD;
    return end_field(r);
}

/* ---- the common case ------------------------------------------------------------------ */

/* A record that lies whole in the data, with nothing to unquote and nothing to escape, is written
 * from where it lies: one look at every byte, one copy. Any other is left to the states below,
 * untouched. */

#define BLOCK 16
#define PIECE_BYTES 32 /* names that need more are left to the states too */

/* Which of BLOCK bytes end a field, or keep a record from being a common one: a bit for each. */
static inline unsigned specials(const uint8_t *p, uint8_t delimiter, uint8_t quote)
{
#if defined(__SSE2__)
    __m128i v = _mm_loadu_si128((const __m128i *)p);
    __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(0x1f)), v);
    __m128i ends = _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8((char)delimiter)),
                                _mm_cmpeq_epi8(v, _mm_set1_epi8((char)quote)));
    __m128i escaped = _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')),
                                   _mm_cmpeq_epi8(v, _mm_set1_epi8('\\')));
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(low, ends), escaped));
#else
    unsigned found = 0;
    for (unsigned i = 0; i < BLOCK; i++)
        found |= (unsigned)((p[i] < 0x20) | (p[i] == delimiter) | (p[i] == quote) | (p[i] == '"') |
                            (p[i] == '\\'))
                 << i;
    return found;
#endif
}

/* Find the fields of a common record: their ends, from its start on, and where the next begins.
 * NULL: it is none, or there is no memory to say. */
static inline const uint8_t *find_fields(csv_reader *r, const uint8_t *start, const uint8_t *end,
                                         size_t *count)
{
    const uint8_t delimiter = r->delimiter, quote = r->quote < 0 ? '"' : (uint8_t)r->quote;
    size_t fields = 0;
    for (const uint8_t *block = start; end - block >= BLOCK; block += BLOCK) {
        for (unsigned found = specials(block, delimiter, quote); found; found &= found - 1) {
            const uint8_t *p = block + __builtin_ctz(found);
            bool is_last = *p == '\n' || (*p == '\r' && p + 1 < end && p[1] == '\n');
            if (!is_last && *p != delimiter)
                return NULL;
            if (fields == r->field_room && !more_fields(r))
                return NULL;
            r->field_ends[fields++] = (size_t)(p - start);
            if (is_last) {
                *count = fields;
                return p + (*p == '\r' ? 2 : 1);
            }
        }
    }
    return NULL;
}

static size_t piece_length(const csv_reader *r, size_t i)
{
    return r->pieces[i * PIECE_BYTES + PIECE_BYTES - 1];
}

/* Make what stands between fields, once: false if a name is too long, or without memory. */
static bool make_pieces(csv_reader *r, size_t count)
{
    const char *open[] = {"{", "[\"", ""}, *between[] = {"\"", "\",\"", "\t"};
    const char *close[] = {"\"}\n", "\"]\n", "\n"};
    r->pieces = calloc(count + 1, PIECE_BYTES);
    for (size_t i = 0; r->pieces && i <= count; i++) {
        uint8_t *piece = r->pieces + i * PIECE_BYTES;
        const char *first = i == count ? close[r->form] : i ? between[r->form] : open[r->form];
        size_t length = strlen(first);
        bool is_named = r->form == CSV_OBJECTS && i < count;
        if (is_named && r->name_lengths[i] + length + 2 > PIECE_BYTES - 1) {
            free(r->pieces);
            r->pieces = NULL;
            return false;
        }
        memcpy(piece, first, length);
        if (is_named) {
            memcpy(piece + length, r->names[i], r->name_lengths[i]);
            length += r->name_lengths[i];
            piece[length++] = '"';
        }
        piece[PIECE_BYTES - 1] = (uint8_t)length;
    }
    return r->pieces != NULL;
}

static inline uint8_t *put_piece(const csv_reader *r, uint8_t *out, size_t i)
{
    memcpy(out, r->pieces + i * PIECE_BYTES, PIECE_BYTES);
    return out + piece_length(r, i);
}

/* Write a common record; false if the states must: a field is missing, or too many are there. */
static inline bool write_common(csv_reader *r, const uint8_t *start, const uint8_t *end,
                                size_t fields)
{
    size_t count = r->column_count, text = 0;
    for (size_t i = 0; i < count; i++) {
        size_t field = (size_t)r->columns[i];
        if (field >= fields)
            return false;
        text += r->field_ends[field] - (field ? r->field_ends[field - 1] + 1 : 0);
    }
    if (!reserve(&r->out, text + (count + 1) * PIECE_BYTES + SHORT))
        return false;
    uint8_t *out = r->out.bytes + r->out.length;
    for (size_t i = 0; i < count; i++) {
        size_t field = (size_t)r->columns[i];
        const uint8_t *p = start + (field ? r->field_ends[field - 1] + 1 : 0);
        size_t length = r->field_ends[field] - (size_t)(p - start);
        out = put_piece(r, out, i);
        copy(out, p, length, end - p >= SHORT);
        out += length;
    }
    out = put_piece(r, out, count);
    r->out.length = (size_t)(out - r->out.bytes);
    return true;
}

/* Take common records from p on; give where the first other one begins, or the data's end. */
static const uint8_t *take_common(csv_reader *r, const uint8_t *data, const uint8_t *p,
                                  const uint8_t *end)
{
    if (r->column_count == SIZE_MAX || r->column_count == 0 || r->form == CSV_NOTHING)
        return p;
    if (!r->pieces && !make_pieces(r, r->column_count))
        return p;
    const int64_t base = r->position;
    size_t fields = 0;
    while (r->end < 0 || base + (p - data) < r->end) {
        const uint8_t *next = find_fields(r, p, end, &fields);
        if (!next || next - p <= 1 || *p == '\r' || (uint64_t)(next - p) > r->bytes_max)
            break;
        if ((r->fields_max && fields > r->fields_max) || !write_common(r, p, end, fields))
            break;
        r->records++;
        p = next;
    }
    return p;
}

/* Where a field outside quotes ends, or the data. */
static inline const uint8_t *find_end(const uint8_t *p, const uint8_t *end, uint8_t delimiter)
{
#if defined(__SSE2__)
    for (; end - p >= BLOCK; p += BLOCK) {
        __m128i v = _mm_loadu_si128((const __m128i *)p);
        __m128i ends = _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8((char)delimiter)),
                                    _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('\n')),
                                                 _mm_cmpeq_epi8(v, _mm_set1_epi8('\r'))));
        unsigned found = (unsigned)_mm_movemask_epi8(ends);
        if (found)
            return p + __builtin_ctz(found);
    }
#endif
    while (p < end && *p != delimiter && !ends_line(*p))
        p++;
    return p;
}

bool csv_feed(csv_reader *r, const uint8_t *data, size_t length)
{
    const uint8_t *p = data, *end = data + length;
    const int64_t base = r->position;
    const uint8_t delimiter = r->delimiter;
    while (p < end && !r->done) {
        const uint8_t *run = p;
        switch (r->state) {
        case CSV_AFTER_CR:
            r->state = CSV_START_RECORD;
            if (*p == '\n') {
                p++;
                break;
            }
            /* fall through */
        case CSV_START_RECORD:
            run = p = take_common(r, data, p, end);
            if (p == end)
                break;
            r->record_at = base + (p - data);
            if (r->end >= 0 && r->record_at >= r->end) {
                r->done = true;
                break;
            }
            if (ends_line(*p)) {
                r->state = *p == '\r' ? CSV_AFTER_CR : CSV_START_RECORD;
                p++;
                break;
            }
            /* fall through */
        case CSV_START_FIELD:
            if (*p == r->quote) {
                r->quote_at = base + (p - data);
                r->state = CSV_IN_QUOTES;
                p++;
                break;
            }
            /* fall through */
        case CSV_IN_FIELD:
            p = find_end(p, end, delimiter);
            r->state = CSV_IN_FIELD;
            if (!add_text(r, run, (size_t)(p - run), (size_t)(end - run)))
                return false;
            if (p < end && !take_end(r, *p++))
                return false;
            break;
        case CSV_IN_QUOTES:
            p = memchr(p, r->quote, (size_t)(end - p));
            p = p ? p : end;
            if (end - p > 1 && p[1] == r->quote) { /* two are one */
                if (!add_text(r, run, (size_t)(p - run) + 1, (size_t)(end - run)))
                    return false;
                p += 2;
                break;
            }
            if (!add_text(r, run, (size_t)(p - run), (size_t)(end - run)))
                return false;
            if (p < end) {
                r->state = CSV_AFTER_QUOTE;
                p++;
            }
            break;
        case CSV_AFTER_QUOTE:
            if (*p == r->quote) {
                r->state = CSV_IN_QUOTES;
                if (!add_text(r, p, 1, 1))
                    return false;
                p++;
            } else if (*p == delimiter || ends_line(*p)) {
                if (!take_end(r, *p++))
                    return false;
            } else {
                r->state = CSV_IN_FIELD;
            }
            break;
        }
    }
    r->position = base + (p - data);
    return true;
}

bool csv_finish(csv_reader *r)
{
    if (r->done || r->state == CSV_START_RECORD || r->state == CSV_AFTER_CR)
        return true;
    if (r->state == CSV_IN_QUOTES) {
        snprintf(r->error, sizeof r->error, "the quote at byte %" PRId64 " is never closed",
                 r->quote_at);
        return false;
    }
    return end_record(r, '\n');
}
