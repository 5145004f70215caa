/* A bounded JSON scanner (RFC 8259): validates text and hands out slices of it, without a tree. The
 * names avoid those of jansson (json_string, JSON_STRING), which the tests link as well.
 * Thread: any.
 * Memory: values point into the text and live as long as it does; decoded and written text goes
 * into the caller's buffer.
 * Errors: INVALID_JSON, INVALID_UTF8, JSON_TOO_DEEP, PAYLOAD_TOO_LARGE, JSON_DUPLICATE_KEY;
 * INVALID_REQUEST for another kind of value.
 * Invariant: a struct json_value is always validated text without white space around it. */
#ifndef WIRE_JSON_H
#define WIRE_JSON_H

#include <stdint.h>

#include "base/buffer.h"
#include "base/slice.h"
#include "spec/codes.h"

/* The scanner recurses once a level; no limit may be above this. */
#define JSON_DEPTH_MAX 128
/* The largest integer that every reader of JSON keeps exact: 2^53 - 1. */
#define JSON_INTEGER_MAX 9007199254740991u

struct json_limits {
    size_t bytes_max;
    unsigned depth_max; /* 0: scalars only; 1: arrays and objects of scalars; … */
};

enum json_kind {
    JSON_KIND_NULL,
    JSON_KIND_FALSE,
    JSON_KIND_TRUE,
    JSON_KIND_NUMBER,
    JSON_KIND_STRING,
    JSON_KIND_ARRAY,
    JSON_KIND_OBJECT,
};

struct json_value {
    enum json_kind kind;
    struct slice raw;
};

/* A whole text: one value, white space around it, nothing else. */
MUST_CHECK enum status json_parse(struct slice text, const struct json_limits *limits,
                                  struct json_value *value);

/* A member wanted of an object, named by its decoded key. */
struct json_field {
    struct slice name;
    struct json_value value;
    bool present;
};

/* Validates a whole text that must be an object and fills the wanted members, in one pass.
 * Other members are validated and skipped; a wanted one given twice is refused. On any error no
 * field is present. */
MUST_CHECK enum status json_read_object(struct slice text, const struct json_limits *limits,
                                        struct json_field *fields, size_t count);
/* The same for a value validated before. */
MUST_CHECK enum status json_read_members(struct json_value object, struct json_field *fields,
                                         size_t count);

/* Walks an array or an object. Each step reads the value it passes once. */
struct json_iterator {
    const char *at;
    const char *end;
};

struct json_iterator json_iterate(struct json_value container);
bool json_next_element(struct json_iterator *iterator, struct json_value *value);
bool json_next_member(struct json_iterator *iterator, struct json_value *name,
                      struct json_value *value);

/* Progress of the search for a value's end; zero at the start of each value. */
struct json_scan {
    size_t offset;
    unsigned depth;
    bool begun;
    bool quoted;
};

/* Reads one value from the front of a text that arrives in pieces. text begins where the value
 * (or the white space before it) does, and is longer at each call. OK with *used 0: the value is
 * not complete yet. OK with *used > 0: validated, ended there, and scan is ready for the next.
 * A number or literal is complete only when a byte follows it. Linear however small the pieces;
 * *used never exceeds bytes_max. */
MUST_CHECK enum status json_scan(struct json_scan *scan, struct slice text,
                                 const struct json_limits *limits, struct json_value *value,
                                 size_t *used);

/* The text of a string without escapes; false for one with escapes and for other kinds. */
bool json_string_slice(struct json_value value, struct slice *text);
/* Appends the decoded string, all or nothing. */
MUST_CHECK enum status json_string_decode(struct json_value value, struct buffer *out);
/* Whether it is a string that decodes to text. */
bool json_string_is(struct json_value value, struct slice text);
/* False unless a plain integer of 0 to max: no sign, no fraction, no exponent. */
bool json_u64(struct json_value value, uint64_t max, uint64_t *number);
/* False unless true or false. */
bool json_bool(struct json_value value, bool *flag);

/* Appends a quoted string with the fewest escapes, all or nothing; text is valid UTF-8. */
enum status json_write_string(struct buffer *out, struct slice text);
/* The same for encoders that reserve their memory once: json_put_string writes at most
 * json_string_bytes bytes and returns their end. An absent text is null. */
size_t json_string_bytes(struct slice text);
char *json_put_string(char *at, struct slice text);

#endif
