/* The messages of a Phoenix channel: pages as pushes, one sync:update_batch a page or a sync:frame
 * for each frame of it, and the replies to requests, which may come later.
 * Thread: the session's loop; the run of a request's lookup belongs to the store pool.
 * Memory: the state is the session's. A request is freed by its call's free, which refusing it does
 * too.
 * Errors: the buffer's own. A reply that cannot be written ends the session.
 * Invariant: pages have a null join_ref, so that they are the same bytes for every client, and each
 * names the range it covers. A reply names the join and the message it answers. */
#ifndef DIALECT_PHOENIX_PHOENIX_MESSAGE_H
#define DIALECT_PHOENIX_PHOENIX_MESSAGE_H

#include "auth/compatibility.h"
#include "delivery/page.h"
#include "delivery/session/session.h"
#include "wire/phoenix.h"

/* ---- pages ---- */

#define PHOENIX_CHANNEL SLICE("sync:v1")

/* What a subscription gets of each frame. */
enum phoenix_updates {
    PHOENIX_UPDATES_FULL,
    PHOENIX_UPDATES_LEAN, /* form: "lean" */
    PHOENIX_UPDATES_NONE, /* frames: true: sync:frame instead */
    PHOENIX_UPDATES_COUNT,
};

/* Pages as pushes: by enum phoenix_updates, plain and compressed. */
extern const struct page_form phoenix_forms[PHOENIX_UPDATES_COUNT][2];

/* The part of a topic that a batch covers: (after, through] of that epoch. */
struct phoenix_range {
    struct slice topic;
    const char *epoch;
    uint64_t after;
    uint64_t through;
    uint64_t head;
};

/* The payload of an empty sync:update_batch, the last one of a replay. */
enum status phoenix_empty_batch(const struct phoenix_range *range, enum frame_form form,
                                struct buffer *out);

/* ---- sessions and requests ---- */

struct phoenix {
    struct uuid subscription_id;
    struct compatibility_claim *claim; /* as in the socket's query; NULL while the gate is open */
    bool is_joined;
    uint8_t join_ref_size;
    char join_ref[]; /* the last join's */
};

MUST_CHECK enum status phoenix_send_push(struct session *session, struct slice event,
                                         struct slice payload);
/* A notice as a push, for the table of the dialect. */
MUST_CHECK enum status phoenix_send_notice(struct session *session, struct buffer *out,
                                           const char *event, struct slice payload);
MUST_CHECK enum status phoenix_send_reply(struct session *session, const struct phoenix_address *to,
                                          bool ok, struct slice response);
/* Replies with an error of that status and with that body. */
MUST_CHECK enum status phoenix_send_error_body(struct session *session,
                                               const struct phoenix_address *to, enum status error,
                                               struct slice body);
/* The same with a body of the code and the message of the status. */
MUST_CHECK enum status phoenix_send_error(struct session *session, const struct phoenix_address *to,
                                          enum status error);
/* The same with another message; NULL: that of the status. */
MUST_CHECK enum status phoenix_send_fault(struct session *session, const struct phoenix_address *to,
                                          enum status error, const char *message);
/* Sends the replies that were written with that status; any but STATUS_OK ends the session. */
void phoenix_flush(struct session *session, enum status status);

/* A request whose reply comes later; the beginning of a larger struct. */
struct phoenix_request {
    struct session_lookup call;
    const struct principal *principal; /* the session's, while the session waits for this */
    enum status status;                /* the run's result */
    bool has_join_ref;
    bool has_ref;
    size_t join_ref_size;
    size_t ref_size;
    char join_ref[PHOENIX_REF_BYTES_MAX];
    char ref[PHOENIX_REF_BYTES_MAX];
};

void phoenix_request_init(struct phoenix_request *request, const struct session *session,
                          const struct phoenix_address *to);
struct phoenix_address phoenix_request_address(const struct phoenix_request *request);
/* Replies with the error, and frees the request. message: NULL: that of the status. */
void phoenix_request_refuse(struct session *session, struct phoenix_request *request,
                            enum status error, const char *message);

#endif
