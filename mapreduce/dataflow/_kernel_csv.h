/* CSV records towards a map command (twin_csv.py). */
#ifndef MRSTREAM_KERNEL_CSV_H
#define MRSTREAM_KERNEL_CSV_H

#include "_kernel_lines.h"

enum csv_form { CSV_OBJECTS, CSV_ARRAYS, CSV_TABS, CSV_NOTHING };

enum csv_state {
    CSV_START_RECORD,
    CSV_AFTER_CR, /* as START_RECORD, but a LF belongs to the CR before it */
    CSV_START_FIELD,
    CSV_IN_FIELD,
    CSV_IN_QUOTES,
    CSV_AFTER_QUOTE
};

typedef struct {
    enum csv_form form;
    uint8_t delimiter;
    int quote; /* -1: there are none */
    int64_t end; /* records that begin at it or behind are not ours; -1: all are */
    size_t fields_max; /* 0: any number */
    uint64_t bytes_max; /* of a record */
    uint8_t **names; /* of CSV_OBJECTS: what stands before each value, as it is to be written */
    size_t *name_lengths;
    int64_t *columns; /* which fields are written, in this order */
    size_t column_count; /* SIZE_MAX: all of them as they come */

    enum csv_state state;
    bool done;
    int64_t position, record_at, quote_at;
    buffer text; /* the fields of this record, unquoted, one behind the other */
    size_t *field_ends;
    size_t field_count, field_room;
    buffer out;
    uint8_t *pieces; /* what stands before each field and behind the last, at PIECE_BYTES each */
    uint64_t records;
    char error[ERROR_BYTES];
} csv_reader;

/* These give false without memory, or with a text in error. */
bool csv_feed(csv_reader *r, const uint8_t *data, size_t length);
bool csv_finish(csv_reader *r);
void csv_close(csv_reader *r);

#endif
