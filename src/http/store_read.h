/* A read of the store on behalf of an exchange: posted to the readers, answered on the loop.
 * Made and answered on the exchange's loop; read runs on a reader's thread.
 * Is the exchange's work: lives as long as it, and so do the parameters it reads. A page of the
 * answer is made by the reader, in out, which is bounded.
 * Whatever the readers or the store refuse is the status of the answer.
 * One read of an exchange is under way at a time. */
#ifndef HTTP_STORE_READ_H
#define HTTP_STORE_READ_H

#include "http/exchange_call.h"
#include "io/loop.h"
#include "io/store_pool.h"

struct store_read {
    struct exchange_call call; /* first */
    struct exchange *exchange;
    void (*read)(struct store_read *read, struct store_session *session);
    void (*answer)(struct store_read *read);
    enum status status; /* set by read; STATUS_OK before */
    struct buffer out;
    struct arena arena;
    /* What is asked for; each kind of read uses some. */
    enum entity_kind entity_kind;
    struct slice id; /* in the exchange's parameters */
    uint64_t after_seq;
    uint64_t limit;
    uint64_t now_ms;
    /* A read of several pages: where it goes on, and where it ends. */
    uint64_t entity_ref;
    uint64_t until_seq;
    bool has_more;
    struct slice content_type;
    /* What only one kind of read needs, which more_free takes back with the read. */
    void *more;
    void (*more_free)(void *more);
};

/* The exchange has been answered when NULL. */
struct store_read *store_read_new(struct exchange *exchange, enum entity_kind kind,
                                  void (*read)(struct store_read *read,
                                               struct store_session *session));
/* Answers out as JSON, or the status; unless answer was set to something else. */
void store_read_post(struct store_read *read);

/* The same for an answer of several pages: each is out, and another is read while has_more. */
void store_read_post_pages(struct store_read *read, struct slice content_type);
/* For answers of pages: a read that failed, or whose token has ended, is answered as that, or
 * broken off where the answer has begun. The read may be gone then. */
MUST_CHECK bool store_read_breaks_off(struct store_read *read);

/* For reads: the entity named by kind and id. Not there: the status the kind has for that. */
MUST_CHECK enum status store_read_entity(struct store_read *read, struct store_session *session,
                                         struct store_entity *entity);

/* For handlers: a query parameter of min to max; the number stays as it is where there is none. */
MUST_CHECK enum status query_number(const struct exchange *exchange, struct slice name,
                                    uint64_t min, uint64_t max, uint64_t *number);
/* Whether the query names an epoch, and it is not the store's. */
MUST_CHECK enum status query_epoch(const struct exchange *exchange, bool *differs);

#endif
