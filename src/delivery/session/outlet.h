/* An outlet: how a session writes to its connection, and what it may ask of the connection.
 * Thread: the connection's loop.
 * Memory: a member of the connection, which provides the table; session_disconnected is the last
 * moment a session may use it.
 * Errors: a write that fails closes the connection: OUTLET_CLOSED, and session_disconnected has
 * run.
 * Invariant: at most one push is being written at a time; session_writable follows when it is. */
#ifndef DELIVERY_SESSION_OUTLET_H
#define DELIVERY_SESSION_OUTLET_H

#include "delivery/page.h"
#include "net/deadline.h"

#define OUTLET_PEER_BYTES_MAX 46

enum outlet_result {
    OUTLET_SENT,    /* the socket took all of it */
    OUTLET_BLOCKED, /* the socket takes the rest later; session_writable follows */
    OUTLET_CLOSED,  /* the peer is gone, and the connection is closed */
};

struct outlet;
struct principal;

struct outlet_table {
    /* Takes over the reference. before: bytes that stand before the push and only this connection
     * is sent; may be empty. Not while the outlet is blocked. */
    MUST_CHECK enum outlet_result (*push)(struct outlet *outlet, struct slice before,
                                          struct push *push);
    /* The same for bytes that only this connection is sent; copies what the socket does not take.
     */
    MUST_CHECK enum outlet_result (*push_bytes)(struct outlet *outlet, struct slice bytes);
    /* A push is being written. */
    bool (*is_blocked)(const struct outlet *outlet);
    /* Bytes of the push being written that the socket has not taken. */
    size_t (*unsent_bytes)(const struct outlet *outlet);
    /* Whether anything was not sent yet, by us or by the kernel. */
    bool (*has_unsent)(const struct outlet *outlet);
    /* Lets the socket take more than usual: a peer that does not read still gets its last message.
     */
    void (*lift_unsent_limit)(struct outlet *outlet);
    /* The peer has shown a token, its first or another. Any status but STATUS_OK: the principal has
     * too many connections. */
    MUST_CHECK enum status (*admit)(struct outlet *outlet, const struct principal *principal);
    /* The peer has shown a wrong token. Returns after how many milliseconds it may get the
     * answer. */
    MUST_CHECK uint64_t (*charge_failure)(struct outlet *outlet);
    void (*pause_reading)(struct outlet *outlet);
    void (*resume_reading)(struct outlet *outlet);
    /* The connection's own deadline; session_expired follows when it passes. */
    void (*set_deadline)(struct outlet *outlet, enum deadline_kind kind);
    /* Ends our side, and reads on for a while so that the last message arrives. */
    void (*linger)(struct outlet *outlet);
    void (*close)(struct outlet *outlet);
    /* Closes the connection and discards what was not sent, in the kernel too. */
    void (*reset)(struct outlet *outlet);
    /* The peer's address; empty when it is not known any more. */
    struct slice (*peer)(const struct outlet *outlet, char text[OUTLET_PEER_BYTES_MAX]);
};

struct outlet {
    const struct outlet_table *table;
};

static inline void outlet_close(struct outlet *outlet) {
    outlet->table->close(outlet);
}

static inline bool outlet_is_blocked(const struct outlet *outlet) {
    return outlet->table->is_blocked(outlet);
}

#endif
