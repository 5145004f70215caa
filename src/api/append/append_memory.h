/* The memory of a loop's appends: its parser, and the memory of ended appends for the next ones.
 * Belongs to the loop's thread; init and release run before and after it.
 * Keeps at most APPEND_WORKS_KEPT works, each with at most APPEND_WORK_KEPT_BYTES in its arena.
 * Errors: NULL when no memory is left.
 * A work that is taken has an empty arena, and its call and group are zero otherwise. */
#ifndef API_APPEND_MEMORY_H
#define API_APPEND_MEMORY_H

#include "authority/append_read.h"
#include "base/buffer.h"
#include "http/exchange_call.h"

/* One append from its request until its answer. */
struct append_work {
    struct append_work *next; /* of the kept ones */
    struct exchange_call call;
    struct append_group group;
    struct append_request request; /* append_read sets all of it */
};

struct append_memory {
    struct append_parser parser;
    struct buffer answer; /* of one append, while it is formed */
    struct append_work *kept;
    size_t kept_count;
};

/* body_bytes_max: the largest JSON text that will be read. */
void append_memory_init(struct append_memory *memory, size_t body_bytes_max);
void append_memory_release(struct append_memory *memory);
struct append_work *append_work_take(struct append_memory *memory);
void append_work_give(struct append_memory *memory, struct append_work *work);

#endif
