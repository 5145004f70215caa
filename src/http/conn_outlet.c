#include "http/conn_outlet.h"

#include <assert.h>

#include "base/limits.h"
#include "http/admit/admission.h"

static struct conn *conn_of(struct outlet *outlet) {
    return container_of(outlet, struct conn, outlet);
}

static const struct conn *const_conn_of(const struct outlet *outlet) {
    return container_of(outlet, struct conn, outlet);
}

/* Lets the socket take the bytes of the push after the first done bytes. */
static enum outlet_result push_remaining(struct conn *conn, struct push *push, size_t done) {
    conn->pushed = push;
    if (transport_write(&conn->transport, slice_from((struct slice){push->data, push->size}, done)))
        return OUTLET_BLOCKED;
    conn_close(conn);
    return OUTLET_CLOSED;
}

/* Returns how many bytes were written; negative: the peer is gone, and the connection is closed. */
static ssize_t push_now(struct conn *conn, struct slice before, struct slice bytes) {
    assert(conn->state == CONN_PUSHING && !conn->pushed);
    ssize_t done = before.size > 0 ? transport_try_both(&conn->transport, before, bytes)
                                   : transport_try(&conn->transport, bytes);
    if (done < 0)
        conn_close(conn);
    return done;
}

/* The socket took only a part of the bytes before the push: all that is left becomes a push of this
 * connection. */
static enum outlet_result push_joined(struct conn *conn, struct slice before, struct push *push) {
    struct buffer joined;
    enum status status = push_begin(&joined, before.size + push->size, before.size + push->size);
    if (status == STATUS_OK) {
        buffer_append_slice(&joined, before);
        status = buffer_append(&joined, push->data, push->size);
    }
    push_unref(push);
    if (status == STATUS_OK)
        return push_remaining(conn, push_end(&joined), 0);
    conn_close(conn);
    return OUTLET_CLOSED;
}

static enum outlet_result outlet_push(struct outlet *outlet, struct slice before,
                                      struct push *push) {
    struct conn *conn = conn_of(outlet);
    ssize_t done = push_now(conn, before, (struct slice){push->data, push->size});
    if (done >= 0 && (size_t)done < before.size)
        return push_joined(conn, slice_from(before, (size_t)done), push);
    if (done >= 0 && !transport_took_all(&conn->transport, done, before.size + push->size))
        return push_remaining(conn, push, (size_t)done - before.size);
    push_unref(push);
    return done < 0 ? OUTLET_CLOSED : OUTLET_SENT;
}

static enum outlet_result outlet_push_bytes(struct outlet *outlet, struct slice bytes) {
    struct conn *conn = conn_of(outlet);
    struct push *remaining;
    ssize_t done = push_now(conn, (struct slice){NULL, 0}, bytes);
    if (done < 0)
        return OUTLET_CLOSED;
    if (transport_took_all(&conn->transport, done, bytes.size))
        return OUTLET_SENT;
    if (push_make(&remaining, slice_from(bytes, (size_t)done)) == STATUS_OK)
        return push_remaining(conn, remaining, 0);
    conn_close(conn);
    return OUTLET_CLOSED;
}

static bool outlet_has_push(const struct outlet *outlet) {
    return const_conn_of(outlet)->pushed != NULL;
}

static size_t outlet_unsent_bytes(const struct outlet *outlet) {
    return transport_unsent_bytes(&const_conn_of(outlet)->transport);
}

static bool outlet_has_unsent(const struct outlet *outlet) {
    return conn_has_unsent(const_conn_of(outlet));
}

static void outlet_lift_unsent_limit(struct outlet *outlet) {
    transport_set_unsent_max(&conn_of(outlet)->transport, UINT32_MAX);
}

static enum status outlet_admit(struct outlet *outlet, const struct principal *principal) {
    return admission_admit(conn_of(outlet), principal);
}

static uint64_t outlet_charge_failure(struct outlet *outlet) {
    return admission_charge_failure(conn_of(outlet), true);
}

static void outlet_pause_reading(struct outlet *outlet) {
    transport_read_stop(&conn_of(outlet)->transport);
}

static void outlet_resume_reading(struct outlet *outlet) {
    struct conn *conn = conn_of(outlet);
    if (conn->state == CONN_PUSHING && !transport_read_start(&conn->transport))
        conn_close(conn);
}

static void outlet_set_deadline(struct outlet *outlet, enum deadline_kind kind) {
    struct conn *conn = conn_of(outlet);
    io_loop_deadline(conn_io(conn), &conn->deadline, kind);
}

static void outlet_linger(struct outlet *outlet) {
    conn_linger(conn_of(outlet));
}

static void outlet_close_conn(struct outlet *outlet) {
    conn_close(conn_of(outlet));
}

static void outlet_reset(struct outlet *outlet) {
    conn_reset(conn_of(outlet));
}

static struct slice outlet_peer(const struct outlet *outlet, char text[OUTLET_PEER_BYTES_MAX]) {
    _Static_assert(OUTLET_PEER_BYTES_MAX >= TRANSPORT_PEER_BYTES_MAX, "an address fits");
    return transport_peer(&const_conn_of(outlet)->transport, text);
}

static const struct outlet_table outlet_table = {
    .push = outlet_push,
    .push_bytes = outlet_push_bytes,
    .is_blocked = outlet_has_push,
    .unsent_bytes = outlet_unsent_bytes,
    .has_unsent = outlet_has_unsent,
    .lift_unsent_limit = outlet_lift_unsent_limit,
    .admit = outlet_admit,
    .charge_failure = outlet_charge_failure,
    .pause_reading = outlet_pause_reading,
    .resume_reading = outlet_resume_reading,
    .set_deadline = outlet_set_deadline,
    .linger = outlet_linger,
    .close = outlet_close_conn,
    .reset = outlet_reset,
    .peer = outlet_peer,
};

void conn_attach(struct conn *conn, struct session *session) {
    conn_start_session(conn, session);
    transport_set_unsent_max(&conn->transport, CONN_UNSENT_BYTES_MAX);
}

struct outlet *conn_outlet(struct conn *conn) {
    conn->outlet.table = &outlet_table;
    return &conn->outlet;
}
