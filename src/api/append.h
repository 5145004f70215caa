/* Appends: the memory that a loop keeps for them, and the form of their answers. append.c also has
 * the handlers of the endpoints that append one event.
 * Thread: append_memory belongs to its loop; init and release run before and after the loop. The
 * answers are written by any thread.
 * Memory: a loop keeps at most APPEND_WORKS_KEPT works, each with at most APPEND_WORK_KEPT_BYTES
 * in its arena. Answers are appended to the caller's buffer.
 * Errors: NULL when no memory is left; the buffer keeps the failure of an append to it.
 * Invariant: a refusal has all that a client needs to correct its request: the actual sequence,
 * how long to wait, the state, the setting, or the largest size. */
#ifndef API_APPEND_H
#define API_APPEND_H

#include "api/api.h"
#include "authority/append_read.h"
#include "base/buffer.h"
#include "http/exchange.h"

/* One append from its request until its answer. */
struct append_work {
    struct append_work *next; /* the next kept one */
    struct exchange_call call;
    struct append_group group;
    struct append_request request; /* append_read sets all of it */
};

struct append_memory {
    struct append_parser parser;
    struct buffer answer; /* used while the answer to one append is formed */
    struct append_work *kept;
    size_t kept_count;
};

static inline struct append_memory *api_appends(const struct exchange *exchange) {
    return &exchange->http->api->appends[exchange->loop->index];
}

/* body_bytes_max: the largest JSON text that will be read. */
void append_memory_init(struct append_memory *memory, size_t body_bytes_max);
void append_memory_release(struct append_memory *memory);

/* 201 if an entity was created, 200 for other successes, otherwise the HTTP status of the refusal.
 */
unsigned append_http_status(const struct append_request *request);
/* The sentence for people. It is in text if it is made here. NULL: the status's own. */
#define APPEND_MESSAGE_BYTES_MAX 256
const char *append_message(const struct append_request *request,
                           char text[APPEND_MESSAGE_BYTES_MAX]);
/* The topic that was refused; absent if it is unknown. */
struct slice append_refused_topic(const struct append_request *request);
/* A JSON object with the details of the refusal, or nothing. */
void append_write_details(struct buffer *out, const struct append_request *request);
/* The answer to one item of a batch: {"index","status","event"?,"deduplicated"?,"hint"?,
 * "error"?}. */
MUST_CHECK enum status append_write_item(struct buffer *out, struct exchange *exchange,
                                         uint64_t index, const struct append_request *request);

#endif
