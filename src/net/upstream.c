#include "net/upstream.h"

#include <assert.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/decimal.h"
#include "base/limits.h"
#include "base/metrics.h"

/* Shorter than the time after which a server closes an idle connection by default, so that a
 * request rarely meets a connection that is closing. */
#define IDLE_MS 20000
/* A server may answer before it closes. The loop reads that answer first. */
#define BROKEN_MS 50

enum upstream_state {
    UPSTREAM_CONNECTING, /* also while the name is resolved, or TLS is negotiated */
    UPSTREAM_BUSY,       /* a request uses it */
    UPSTREAM_IDLE,
    UPSTREAM_CLOSED, /* the memory is freed when the transport and the lookup are done */
};

struct upstream {
    struct transport transport;
    struct upstreams *all;
    struct list_node node;      /* of all open ones */
    struct list_node idle_node; /* of the idle ones */
    struct upstream_address address;
    enum upstream_state state;
    void *user;
    struct deadline deadline;
    uv_getaddrinfo_t lookup;
    struct buffer unsent; /* of the request that was closed */
    bool is_looking_up;
    bool is_closed; /* the transport */
};

/* ---- addresses ---- */

static bool read_port(struct slice text, uint16_t *port) {
    uint64_t number;
    if (!decimal_parse_u64(text, &number) || number == 0 || number > UINT16_MAX)
        return false;
    *port = (uint16_t)number;
    return true;
}

bool upstream_address_read(struct slice text, struct upstream_address *address) {
    static const struct slice plain = SLICE("http://"), secure = SLICE("https://");
    *address = (struct upstream_address){.is_secure = slice_starts(text, secure)};
    if (address->is_secure)
        text = slice_from(text, secure.size);
    else if (slice_starts(text, plain))
        text = slice_from(text, plain.size);
    const char *colon = text.size > 0 ? memrchr(text.data, ':', text.size) : NULL;
    if (!colon)
        return false;
    struct slice host = {text.data, (size_t)(colon - text.data)};
    if (host.size > 2 && host.data[0] == '[' && host.data[host.size - 1] == ']')
        host = (struct slice){host.data + 1, host.size - 2};
    if (host.size == 0 || host.size >= sizeof(address->host) || memchr(host.data, '\0', host.size))
        return false;
    memcpy(address->host, host.data, host.size);
    return read_port(slice_from(text, (size_t)(colon - text.data) + 1), &address->port);
}

static bool is_same(const struct upstream_address *a, const struct upstream_address *b) {
    return a->port == b->port && a->is_secure == b->is_secure && strcmp(a->host, b->host) == 0;
}

/* ---- closing ---- */

static struct upstream *upstream_of(struct transport *transport) {
    return container_of(transport, struct upstream, transport);
}

static void free_when_returned(struct upstream *upstream) {
    struct upstreams *all = upstream->all;
    if (upstream->is_looking_up || !upstream->is_closed)
        return;
    buffer_release(&upstream->unsent);
    free(upstream);
    all->count--;
    metrics_sub(METRIC_FORWARD_CONNECTIONS, METRIC_PLAIN, 1);
    if (all->events->freed)
        all->events->freed(all);
    io_loop_release(all->loop);
}

static void on_closed(struct transport *transport) {
    struct upstream *upstream = upstream_of(transport);
    upstream->is_closed = true;
    free_when_returned(upstream);
}

void upstream_close(struct upstream *upstream, struct buffer *unsent) {
    assert(upstream->state != UPSTREAM_CLOSED);
    if (upstream->state == UPSTREAM_IDLE)
        list_remove(&upstream->idle_node);
    upstream->state = UPSTREAM_CLOSED;
    upstream->user = NULL;
    list_remove(&upstream->node);
    deadline_drop(&upstream->deadline);
    if (unsent) {
        upstream->unsent = *unsent;
        buffer_init(unsent, unsent->size_max);
    }
    if (upstream->is_looking_up)
        (void)uv_cancel((uv_req_t *)&upstream->lookup);
    transport_close(&upstream->transport);
}

static void lose(struct upstream *upstream, const char *reason) {
    /* A kept connection has no user. */
    if (upstream->state != UPSTREAM_IDLE)
        upstream->all->events->lost(upstream, reason);
    if (upstream->state != UPSTREAM_CLOSED)
        upstream_close(upstream, NULL);
}

/* ---- the socket ---- */

static void on_opened(struct transport *transport) {
    struct upstream *upstream = upstream_of(transport);
    upstream->state = UPSTREAM_BUSY;
    upstream->all->events->opened(upstream);
}

static void on_received(struct transport *transport, struct slice input) {
    struct upstream *upstream = upstream_of(transport);
    /* A server that sends without a request is not understood. */
    if (upstream->state == UPSTREAM_IDLE)
        upstream_close(upstream, NULL);
    else
        upstream->all->events->received(upstream, input);
}

static void on_written(struct transport *transport, int error) {
    struct upstream *upstream = upstream_of(transport);
    if (error != 0)
        lose(upstream, uv_strerror(error));
    else
        upstream->all->events->written(upstream);
}

static void on_lost(struct transport *transport) {
    lose(upstream_of(transport), "the connection was closed");
}

static void on_handshake_failed(struct transport *transport) {
    lose(upstream_of(transport), tls_failure());
}

static void start(struct upstream *upstream) {
    struct upstreams *all = upstream->all;
    transport_set_nodelay(&upstream->transport);
    if (!upstream->address.is_secure) {
        if (transport_read_start(&upstream->transport))
            on_opened(&upstream->transport);
        else
            lose(upstream, "the socket cannot be read");
        return;
    }
    if (!all->tls)
        lose(upstream, "TLS is not available");
    else if (transport_secure_to(&upstream->transport, all->tls, upstream->address.host) !=
                 STATUS_OK ||
             !transport_read_start(&upstream->transport))
        lose(upstream, "TLS could not start");
}

static void on_connected(struct transport *transport, int error) {
    struct upstream *upstream = upstream_of(transport);
    if (error != 0)
        lose(upstream, uv_strerror(error));
    else
        start(upstream);
}

static const struct transport_events transport_events = {
    .connected = on_connected,
    .opened = on_opened,
    .received = on_received,
    .written = on_written,
    .ended = on_lost,
    .lost = on_lost,
    .handshake_failed = on_handshake_failed,
    .closed = on_closed,
};

static void on_found(uv_getaddrinfo_t *lookup, int error, struct addrinfo *found) {
    struct upstream *upstream = lookup->data;
    upstream->is_looking_up = false;
    if (upstream->state == UPSTREAM_CLOSED) {
        free_when_returned(upstream);
    } else {
        clock_tick(&upstream->all->loop->clock);
        if (error == 0)
            error = transport_connect(&upstream->transport, found->ai_addr);
        if (error != 0)
            lose(upstream, uv_strerror(error));
    }
    uv_freeaddrinfo(found);
}

static int look_up(struct upstream *upstream) {
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char port[8];
    (void)snprintf(port, sizeof(port), "%u", (unsigned)upstream->address.port);
    upstream->lookup.data = upstream;
    int error = uv_getaddrinfo(&upstream->all->loop->lookups, &upstream->lookup, on_found,
                               upstream->address.host, port, &hints);
    upstream->is_looking_up = error == 0;
    return error;
}

static int begin_connect(struct upstream *upstream) {
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } address;
    const struct upstream_address *to = &upstream->address;
    if (uv_ip4_addr(to->host, to->port, &address.four) == 0 ||
        uv_ip6_addr(to->host, to->port, &address.six) == 0)
        return transport_connect(&upstream->transport, &address.any);
    return look_up(upstream);
}

/* ---- the connections of a loop ---- */

/* A kept connection was not used, or a socket took no bytes. */
static void on_deadline(struct deadline *deadline) {
    lose(container_of(deadline, struct upstream, deadline), "the socket takes no bytes");
}

void upstreams_init(struct upstreams *upstreams, struct io_loop *loop,
                    const struct upstream_events *events, struct tls_context *tls) {
    *upstreams = (struct upstreams){.loop = loop, .events = events, .tls = tls};
    list_init(&upstreams->open);
    list_init(&upstreams->idle);
    deadline_queue_define(&loop->deadlines, DEADLINE_UPSTREAM, IDLE_MS, on_deadline);
}

void upstreams_drain(struct upstreams *upstreams) {
    struct list_node *node;
    while ((node = list_first(&upstreams->idle)))
        upstream_close(container_of(node, struct upstream, idle_node), NULL);
}

void upstreams_close_all(struct upstreams *upstreams) {
    struct list_node *node;
    while ((node = list_first(&upstreams->open)))
        lose(container_of(node, struct upstream, node), "the server ends");
}

struct upstream *upstream_reuse(struct upstreams *upstreams, const struct upstream_address *address,
                                void *user) {
    for (struct list_node *node = list_first(&upstreams->idle), *next; node; node = next) {
        struct upstream *upstream = container_of(node, struct upstream, idle_node);
        next = list_next(&upstreams->idle, node);
        if (!is_same(&upstream->address, address)) {
            upstream_close(upstream, NULL);
            continue;
        }
        list_remove(&upstream->idle_node);
        deadline_drop(&upstream->deadline);
        upstream->state = UPSTREAM_BUSY;
        upstream->user = user;
        return upstream;
    }
    return NULL;
}

struct upstream *upstream_open(struct upstreams *upstreams, const struct upstream_address *address,
                               void *user) {
    struct upstream *upstream =
        upstreams->count < FORWARD_CONNECTIONS_MAX ? calloc(1, sizeof(*upstream)) : NULL;
    if (!upstream)
        return NULL;
    upstream->all = upstreams;
    upstream->address = *address;
    upstream->user = user;
    upstream->state = UPSTREAM_CONNECTING;
    transport_init(&upstream->transport, &upstreams->loop->sockets, &transport_events);
    buffer_init(&upstream->unsent, FORWARD_REQUESTS_BYTES_MAX);
    upstreams->count++;
    metrics_add(METRIC_FORWARD_CONNECTIONS, METRIC_PLAIN, 1);
    list_push_back(&upstreams->open, &upstream->node);
    io_loop_hold(upstreams->loop);
    if (begin_connect(upstream) == 0)
        return upstream;
    upstream_close(upstream, NULL);
    return NULL;
}

void *upstream_user(const struct upstream *upstream) {
    return upstream->user;
}

bool upstream_send(struct upstream *upstream, struct slice bytes) {
    ssize_t done = transport_try(&upstream->transport, bytes);
    if (transport_took_all(&upstream->transport, done, bytes.size))
        return true;
    if (done < 0 || !transport_write(&upstream->transport, slice_from(bytes, (size_t)done)))
        io_loop_deadline_in(upstream->all->loop, &upstream->deadline, DEADLINE_UPSTREAM, BROKEN_MS);
    return false;
}

void upstream_pause(struct upstream *upstream) {
    transport_read_stop(&upstream->transport);
}

void upstream_resume(struct upstream *upstream) {
    if (!transport_read_start(&upstream->transport))
        lose(upstream, "the socket cannot be read");
}

void upstream_keep(struct upstream *upstream) {
    struct upstreams *all = upstream->all;
    if (all->loop->state != LOOP_SERVING || !transport_is_clear(&upstream->transport)) {
        upstream_close(upstream, NULL);
        return;
    }
    upstream->state = UPSTREAM_IDLE;
    upstream->user = NULL;
    list_push_front(&all->idle, &upstream->idle_node);
    io_loop_deadline(all->loop, &upstream->deadline, DEADLINE_UPSTREAM);
    /* Reading shows when the server closes. */
    if (!transport_read_start(&upstream->transport))
        upstream_close(upstream, NULL);
}
