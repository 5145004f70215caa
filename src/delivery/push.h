/* A push: bytes as they go to a socket, made once and shared by every connection of a loop that
 * is sent the same.
 * Belongs to its loop's thread. Reference-counted: what a socket has not taken yet is all that is
 * held for its connection.
 * STATUS_OUT_OF_MEMORY for a push that cannot be made.
 * The bytes never change. */
#ifndef DELIVERY_PUSH_H
#define DELIVERY_PUSH_H

#include "base/buffer.h"
#include "spec/codes.h"

struct push {
    size_t references;
    size_t size;
    char data[];
};

/* Copies the bytes. The caller has the one reference. */
MUST_CHECK enum status push_make(struct push **push, struct slice bytes);
/* Begins a push that an encoder appends to out. bytes: how many are expected; bytes_max: the limit.
 */
MUST_CHECK enum status push_begin(struct buffer *out, size_t bytes, size_t bytes_max);
/* The appended bytes as a push, in the memory of out, which is empty afterwards. */
struct push *push_end(struct buffer *out);
struct push *push_ref(struct push *push);
void push_unref(struct push *push);

#endif
