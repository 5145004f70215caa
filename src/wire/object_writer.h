/* Writes a JSON object member by member, so that a shape reads as the list of its members. Names
 * need no escapes.
 * Thread: any.
 * Memory: the caller's buffer.
 * Errors: the buffer keeps the first one. object_end returns it, and then leaves the buffer
 * unchanged.
 * Invariant: members are written in the order of the calls: calls sorted by name write canonical
 * JSON. */
#ifndef WIRE_OBJECT_WRITER_H
#define WIRE_OBJECT_WRITER_H

#include "base/buffer.h"
#include "base/sha256.h"

struct object_writer {
    struct buffer *out; /* keeps the first failure */
    size_t begin;
};

struct object_writer object_begin(struct buffer *out);
MUST_CHECK enum status object_end(struct object_writer *object);
/* Ends an object inside another text, whose own end returns the failure. */
void object_close(struct object_writer *object);

/* Writes null when data is NULL. */
void object_text(struct object_writer *object, struct slice name, struct slice text);
/* Writes JSON unchanged. */
void object_json(struct object_writer *object, struct slice name, struct slice json);
void object_number(struct object_writer *object, struct slice name, uint64_t number);
/* "sha256:" and hex. */
void object_hash(struct object_writer *object, struct slice name,
                 const uint8_t digest[SHA256_BYTES]);
/* Write no member when data is NULL. */
void object_text_given(struct object_writer *object, struct slice name, struct slice text);
void object_json_given(struct object_writer *object, struct slice name, struct slice json);

#endif
