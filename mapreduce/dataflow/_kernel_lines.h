/* Lines towards a map command and from a command to an output file (twin_lines.py). */
#ifndef MRSTREAM_KERNEL_LINES_H
#define MRSTREAM_KERNEL_LINES_H

#include "_kernel.h"

typedef struct { /* bytes that grow */
    uint8_t *bytes;
    size_t length, size;
} buffer;

enum line_form {
    LINE_PLAIN,
    LINE_OFFSET_LINE,
    LINE_KEY_VALUE,
    LINE_VALUE,
    LINE_OFFSET,
    LINE_KEY
};

typedef struct {
    enum line_form form;
    uint8_t *separator;
    size_t separator_length;
    uint8_t key_end;
    int64_t end;            /* lines that begin behind it are not ours; -1: all are */
    uint64_t bytes_max;     /* lines this long, their end counted, are dropped; 0: none */
    bool skipping;          /* the line we are in belongs to the split before */
    int bom_matched;        /* bytes of a byte order mark held back; -1: not looked for */

    uint64_t dropped_bytes; /* of the mark, at the start of the line we are in */
    int64_t line_at;        /* where the line we are in, or the next one, begins */
    int64_t position;
    uint64_t line_bytes;    /* of it so far, its end not counted */
    bool in_line, after_cr, key_found, done;
    bool ending;            /* with bytes_max: after a CR, before it is known whether LF follows */
    buffer line;            /* with bytes_max: what we have of the line */
    buffer out;
    uint64_t records;
} line_feeder;

/* These give false without memory; what they made lies in out. */
bool feeder_feed(line_feeder *f, const uint8_t *data, size_t length);
bool feeder_finish(line_feeder *f);
/* Is every byte of data to be given as it is? If so it is counted as given. */
bool feeder_passes(line_feeder *f, const uint8_t *data, size_t length);
void feeder_close(line_feeder *f);

typedef struct {
    bool key_only;
    uint8_t *separator, *out_separator;
    size_t separator_length, out_separator_length;
    int64_t key_fields;
    bool same_separator;
    bool after_cr;
    bool in_line;  /* an earlier feed began a line */
    int64_t found; /* separators of that line so far */
    buffer held;   /* its last bytes, if they may be the beginning of a separator */
    buffer out;
    uint64_t records;
} line_rewriter;

uint64_t count_byte(const uint8_t *p, size_t length, uint8_t byte);

bool rewriter_feed(line_rewriter *r, const uint8_t *data, size_t length);
bool rewriter_finish(line_rewriter *r);
void rewriter_close(line_rewriter *r);

#endif
