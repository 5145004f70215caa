/* A read of the store for an exchange: it runs on a thread of the store pool and is answered on
 * the loop.
 * Thread: the callback read belongs to a thread of the store pool; everything else to the
 * exchange's loop.
 * Memory: the read is the exchange's work and lives as long as the exchange. out is bounded.
 * Errors: a refusal of the pool or the store is the status of the answer, and so is the first
 * failure of an append to out.
 * Invariant: an exchange has at most one read under way. */
#ifndef HTTP_STORE_READ_H
#define HTTP_STORE_READ_H

#include "http/exchange.h"
#include "http/query_cursor.h"
#include "net/loop.h"
#include "store/store_pool.h"
#include "topic/position.h"

struct store_read {
    struct exchange_call call;
    struct exchange *exchange;
    void (*read)(struct store_read *read, struct store_session *store);
    void (*answer)(struct store_read *read);
    enum status status; /* set by read; STATUS_OK before */
    enum reason reason; /* why, if the status is STATUS_STALE_CURSOR */
    struct buffer out;
    struct arena arena;
    /* The parameters of the request. Each kind of read uses some of them. */
    enum entity_kind entity_kind;
    struct slice id; /* in the exchange's memory */
    uint64_t after_seq;
    struct topic_epoch epoch; /* the epoch of after_seq; empty: not given */
    bool keeps_epoch;         /* the client names it beside its positions */
    bool names_epoch;         /* set by read: positions are given out with the epoch */
    bool has_since;           /* instead of after_seq */
    uint64_t since_ms;
    uint64_t limit;
    uint64_t now_ms;
    /* For a read of several pages: the entity, the last sequence, and whether pages are left. */
    uint64_t entity_ref;
    uint64_t until_seq;
    bool has_more;
    /* Set by read: another slice must follow before the answer, in the turn of the principal. */
    bool runs_again;
    struct slice content_type;
    /* The handler's state, if it needs more than this. state_free frees it with the read. */
    void *state;
    void (*state_free)(void *state);
};

/* NULL: the exchange was answered with an error. */
struct store_read *store_read_new(struct exchange *exchange, enum entity_kind kind,
                                  void (*read)(struct store_read *read,
                                               struct store_session *store));
/* Starts the read. The default answer is out as JSON, or the status. */
void store_read_post(struct store_read *read);

/* The same for an answer of several pages: sends out, and reads the next page while has_more. */
void store_read_post_pages(struct store_read *read, struct slice content_type);
/* For answers of several pages. True: the read failed or the token has expired, and the exchange
 * was answered, or its answer broken off. The read may be freed then. */
MUST_CHECK bool store_read_breaks_off(struct store_read *read);

/* On a thread of the store pool: loads the entity of kind and id. The id of a topic may be its
 * stream id. A missing entity is the kind's own not_found status. */
MUST_CHECK enum status store_read_entity(struct store_read *read, struct store_session *store,
                                         struct store_entity *entity);

/* On a thread of the store pool: the last event at or before an event cursor. A cursor later than
 * the log's last event comes from another history: STATUS_STALE_CURSOR. One that was made from a
 * time becomes the cursor of the last event instead. */
MUST_CHECK enum status store_read_find_cursor(struct store_read *read, struct store_session *store,
                                              struct query_cursor *query, uint64_t *log_id);

/* Reads a query parameter of min to max. Without the parameter *number does not change. */
MUST_CHECK enum status query_number(const struct exchange *exchange, struct slice name,
                                    uint64_t min, uint64_t max, uint64_t *number);
#define QUERY_TEXT_BYTES_MAX 2048
/* Reads a query parameter that is a text into memory, an empty buffer of QUERY_TEXT_BYTES_MAX.
 * Without the parameter *text does not change. */
MUST_CHECK enum status query_text(const struct exchange *exchange, struct slice name,
                                  struct buffer *memory, struct slice *text);

#endif
