/* lookup ──▶ connect ──▶ handshake ──▶ open ◀──▶ idle
 *               │ ▲          only with TLS
 *               └─┘ the next address of the name
 *
 * A failure of any state is reported by the lost event, after which the connection is closed. Its
 * memory waits for the lookup and for the closed event of its socket. */
#include "net/outbound.h"

#include <assert.h>
#include <http_parser.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "net/transport.h"

#define REASON_BYTES (TLS_MESSAGE_MAX + 64)

enum outbound_state {
    OUTBOUND_LOOKUP,
    OUTBOUND_CONNECT,
    OUTBOUND_HANDSHAKE,
    OUTBOUND_OPEN,
    OUTBOUND_IDLE,
    OUTBOUND_CLOSED,
};

struct outbound {
    struct transport transport;
    struct outbound_group *group;
    struct list_node idle_node;
    struct outbound_target target;
    enum outbound_state state;
    const struct outbound_events *events;
    void *user;
    uint64_t idle_since_ms;
    uv_getaddrinfo_t lookup;
    struct addrinfo *addresses;
    const struct addrinfo *next_address;
    struct tls_context *own_tls; /* where the group has none */
    struct buffer writing;       /* bytes that the transport takes as the socket has room */
    struct buffer waiting;       /* the bytes behind them */
    bool is_writing;             /* the transport's written event is due */
    bool wants_room;
    bool is_looking_up;
    bool is_released; /* the socket's closed event has come */
    char reason[REASON_BYTES];
};

static void set_state(struct outbound *outbound, enum outbound_state state) {
    static const unsigned edges[] = {
        [OUTBOUND_LOOKUP] = 1u << OUTBOUND_CONNECT | 1u << OUTBOUND_CLOSED,
        [OUTBOUND_CONNECT] = 1u << OUTBOUND_CONNECT | 1u << OUTBOUND_HANDSHAKE |
                             1u << OUTBOUND_OPEN | 1u << OUTBOUND_CLOSED,
        [OUTBOUND_HANDSHAKE] = 1u << OUTBOUND_OPEN | 1u << OUTBOUND_CLOSED,
        [OUTBOUND_OPEN] = 1u << OUTBOUND_IDLE | 1u << OUTBOUND_CLOSED,
        [OUTBOUND_IDLE] = 1u << OUTBOUND_OPEN | 1u << OUTBOUND_CLOSED,
    };
    assert(outbound->state != OUTBOUND_CLOSED && edges[outbound->state] & 1u << state);
    if (outbound->state == OUTBOUND_IDLE)
        list_remove(&outbound->idle_node);
    if (state == OUTBOUND_IDLE)
        list_push_front(&outbound->group->idle, &outbound->idle_node);
    outbound->state = state;
}

/* ---- targets ---- */

bool outbound_target_read(struct outbound_target *target, struct slice text) {
    char url[OUTBOUND_HOST_BYTES_MAX + 64];
    struct http_parser_url parts;
    bool has_scheme = text.size > 0 && memmem(text.data, text.size, "://", 3);
    int size = snprintf(url, sizeof(url), "%s%.*s", has_scheme ? "" : "http://", (int)text.size,
                        text.size > 0 ? text.data : "");
    http_parser_url_init(&parts);
    if (size < 0 || (size_t)size >= sizeof(url) ||
        http_parser_parse_url(url, (size_t)size, 0, &parts) != 0 ||
        !(parts.field_set & 1 << UF_SCHEMA) || !(parts.field_set & 1 << UF_HOST))
        return false;
    struct slice scheme = {url + parts.field_data[UF_SCHEMA].off, parts.field_data[UF_SCHEMA].len};
    struct slice host = {url + parts.field_data[UF_HOST].off, parts.field_data[UF_HOST].len};
    bool is_plain = slice_equal(scheme, SLICE("http")) || slice_equal(scheme, SLICE("ws"));
    bool is_secure = slice_equal(scheme, SLICE("https")) || slice_equal(scheme, SLICE("wss"));
    bool has_port = parts.field_set & 1 << UF_PORT;
    bool is_root =
        !(parts.field_set & 1 << UF_PATH) || (has_scheme && parts.field_data[UF_PATH].len == 1);
    if ((!is_plain && !is_secure) || !is_root || host.size >= sizeof(target->host) ||
        parts.field_set & (1 << UF_QUERY | 1 << UF_FRAGMENT | 1 << UF_USERINFO) ||
        (has_port ? parts.port == 0 : !has_scheme))
        return false;
    *target = (struct outbound_target){.port = is_secure ? 443 : 80, .is_secure = is_secure};
    if (has_port)
        target->port = parts.port;
    memcpy(target->host, host.data, host.size);
    return true;
}

static bool is_same(const struct outbound_target *a, const struct outbound_target *b) {
    return a->port == b->port && a->is_secure == b->is_secure && strcmp(a->host, b->host) == 0;
}

/* ---- closing ---- */

static void free_when_returned(struct outbound *outbound) {
    struct outbound_group *group = outbound->group;
    if (outbound->is_looking_up || !outbound->is_released)
        return;
    uv_freeaddrinfo(outbound->addresses);
    tls_context_close(outbound->own_tls);
    buffer_release(&outbound->writing);
    buffer_release(&outbound->waiting);
    free(outbound);
    group->count--;
    group->freed(group->user);
}

static struct outbound *outbound_of(struct transport *transport) {
    return container_of(transport, struct outbound, transport);
}

static void on_closed(struct transport *transport) {
    struct outbound *outbound = outbound_of(transport);
    outbound->is_released = true;
    free_when_returned(outbound);
}

void outbound_close(struct outbound *outbound) {
    if (!outbound)
        return;
    set_state(outbound, OUTBOUND_CLOSED);
    if (outbound->is_looking_up)
        (void)uv_cancel((uv_req_t *)&outbound->lookup);
    transport_close(&outbound->transport);
}

__attribute__((format(printf, 2, 3))) static void lose(struct outbound *outbound,
                                                       const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(outbound->reason, sizeof(outbound->reason), format, arguments);
    va_end(arguments);
    bool has_user = outbound->state != OUTBOUND_IDLE;
    const struct outbound_events *events = outbound->events;
    void *user = outbound->user;
    /* The owner may open another connection in the event, so this one has to be closed before. */
    outbound_close(outbound);
    if (has_user)
        events->lost(user, outbound->reason);
}

/* ---- bytes ---- */

/* The loop reads what the server has sent, and then the end. */
static void break_off(struct outbound *outbound) {
    transport_shut(&outbound->transport);
}

static void write_rest(struct outbound *outbound, size_t done) {
    struct slice rest = slice_from(buffer_slice(&outbound->writing), done);
    outbound->is_writing = true;
    if (!transport_write(&outbound->transport, rest))
        break_off(outbound);
}

enum status outbound_send(struct outbound *outbound, struct slice bytes) {
    size_t held = outbound->writing.size + outbound->waiting.size;
    if (outbound->state != OUTBOUND_OPEN)
        return STATUS_SYSTEM_ERROR;
    if (outbound->is_writing) {
        if (bytes.size > outbound->group->unsent_bytes_max - held)
            return STATUS_PAYLOAD_TOO_LARGE;
        return buffer_append_slice(&outbound->waiting, bytes);
    }
    ssize_t done = transport_try(&outbound->transport, bytes);
    if (transport_took_all(&outbound->transport, done, bytes.size))
        return STATUS_OK;
    if (done < 0) {
        break_off(outbound);
        return STATUS_OK;
    }
    enum status status = buffer_append_slice(&outbound->writing, slice_from(bytes, (size_t)done));
    if (status == STATUS_OK)
        write_rest(outbound, 0);
    else
        break_off(outbound);
    return status;
}

/* The socket has taken all of writing, or has room. */
static void on_written(struct transport *transport, int error) {
    struct outbound *outbound = outbound_of(transport);
    if (error != 0) {
        lose(outbound, "the connection ended: %s", uv_strerror(error));
        return;
    }
    outbound->is_writing = false;
    buffer_release(&outbound->writing);
    if (outbound->waiting.size > 0) {
        outbound->writing = outbound->waiting;
        buffer_init(&outbound->waiting, outbound->group->unsent_bytes_max);
        struct slice bytes = buffer_slice(&outbound->writing);
        ssize_t done = transport_try(transport, bytes);
        if (done < 0) {
            break_off(outbound);
            return;
        }
        if (!transport_took_all(transport, done, bytes.size)) {
            write_rest(outbound, (size_t)done);
            return;
        }
        buffer_release(&outbound->writing);
    } else {
        /* A failure of an append must not outlive the lack of memory. */
        buffer_clear(&outbound->waiting);
    }
    if (!outbound->wants_room)
        return;
    outbound->wants_room = false;
    outbound->events->has_room(outbound->user);
}

bool outbound_is_clear(const struct outbound *outbound) {
    return outbound->state == OUTBOUND_OPEN && !outbound->is_writing;
}

void outbound_want_room(struct outbound *outbound) {
    outbound->wants_room = true;
    if (outbound_is_clear(outbound) && !transport_want_room(&outbound->transport))
        break_off(outbound);
}

void outbound_pause(struct outbound *outbound) {
    transport_read_stop(&outbound->transport);
}

void outbound_resume(struct outbound *outbound) {
    if (!transport_read_start(&outbound->transport))
        lose(outbound, "the loop cannot watch the socket");
}

static void on_received(struct transport *transport, struct slice data) {
    struct outbound *outbound = outbound_of(transport);
    /* A server that sends without a request is not understood. */
    if (outbound->state == OUTBOUND_IDLE)
        outbound_close(outbound);
    else
        outbound->events->received(outbound->user, data);
}

static void on_lost(struct transport *transport) {
    struct outbound *outbound = outbound_of(transport);
    if (outbound->state == OUTBOUND_HANDSHAKE)
        lose(outbound, "no TLS with %s: the server ended the connection", outbound->target.host);
    else
        lose(outbound, "the connection ended");
}

/* ---- connecting ---- */

static void on_opened(struct transport *transport) {
    struct outbound *outbound = outbound_of(transport);
    set_state(outbound, OUTBOUND_OPEN);
    outbound->events->opened(outbound->user);
}

static void on_handshake_failed(struct transport *transport) {
    struct outbound *outbound = outbound_of(transport);
    const char *distrust = transport_distrust(transport);
    if (distrust)
        lose(outbound,
             "the certificate of %s is not trusted: %s; --ca or KHALA_CA_FILE names the authority",
             outbound->target.host, distrust);
    else
        lose(outbound, "no TLS with %s: %s", outbound->target.host, tls_failure());
}

static void connect_next(struct outbound *outbound, int error);

static void on_connected(struct transport *transport, int error) {
    struct outbound *outbound = outbound_of(transport);
    if (error != 0) {
        connect_next(outbound, error);
        return;
    }
    transport_set_nodelay(transport);
    if (!outbound->target.is_secure) {
        if (transport_read_start(transport))
            on_opened(transport);
        else
            lose(outbound, "the loop cannot watch the socket");
        return;
    }
    struct tls_message message = {""};
    struct tls_context *tls = outbound->group->tls;
    set_state(outbound, OUTBOUND_HANDSHAKE);
    if (!tls && tls_context_open_client(&outbound->own_tls, outbound->group->ca_file, &message) !=
                    STATUS_OK) {
        lose(outbound, "%s", *message.text ? message.text : "there is no memory for TLS");
        return;
    }
    if (transport_secure_to(transport, tls ? tls : outbound->own_tls, outbound->target.host) !=
            STATUS_OK ||
        !transport_read_start(transport))
        lose(outbound, "no TLS with %s: it could not start", outbound->target.host);
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

/* error: of the address before, as libuv's. */
static void connect_next(struct outbound *outbound, int error) {
    set_state(outbound, OUTBOUND_CONNECT);
    while (outbound->next_address) {
        const struct addrinfo *address = outbound->next_address;
        outbound->next_address = address->ai_next;
        error = transport_connect(&outbound->transport, address->ai_addr);
        if (error == 0)
            return;
    }
    lose(outbound, "cannot connect to %s port %u: %s; does the server run there?",
         outbound->target.host, outbound->target.port, strerror(-error));
}

static void on_found(uv_getaddrinfo_t *lookup, int error, struct addrinfo *found) {
    struct outbound *outbound = lookup->data;
    outbound->is_looking_up = false;
    outbound->addresses = found;
    outbound->next_address = found;
    clock_tick(outbound->group->set->host->clock);
    if (outbound->state == OUTBOUND_CLOSED)
        free_when_returned(outbound);
    else if (error != 0)
        lose(outbound, "%s: %s", outbound->target.host, uv_strerror(error));
    else
        connect_next(outbound, UV_EADDRNOTAVAIL);
}

static bool begin_connect(struct outbound *outbound) {
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const struct outbound_target *target = &outbound->target;
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } address;
    char port[8];
    bool is_address = uv_ip4_addr(target->host, target->port, &address.four) == 0 ||
                      uv_ip6_addr(target->host, target->port, &address.six) == 0;
    if (is_address && transport_connect(&outbound->transport, &address.any) == 0) {
        set_state(outbound, OUTBOUND_CONNECT);
        return true;
    }
    /* An address that failed at once fails again below, by an event. */
    (void)snprintf(port, sizeof(port), "%u", (unsigned)target->port);
    outbound->lookup.data = outbound;
    outbound->is_looking_up = uv_getaddrinfo(outbound->group->set->host->lookups, &outbound->lookup,
                                             on_found, target->host, port, &hints) == 0;
    return outbound->is_looking_up;
}

void outbound_group_init(struct outbound_group *group, const struct outbound_group *options) {
    *group = *options;
    group->count = 0;
    list_init(&group->idle);
}

enum status outbound_open(struct outbound **outbound, struct outbound_group *group,
                          const struct outbound_target *target,
                          const struct outbound_events *events, void *user) {
    struct outbound *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->group = group;
    made->target = *target;
    made->events = events;
    made->user = user;
    transport_init(&made->transport, group->set, &transport_events);
    buffer_init(&made->writing, group->unsent_bytes_max);
    buffer_init(&made->waiting, group->unsent_bytes_max);
    if (!begin_connect(made)) {
        free(made);
        return STATUS_OUT_OF_MEMORY;
    }
    group->count++;
    *outbound = made;
    return STATUS_OK;
}

/* ---- kept connections ---- */

void outbound_keep(struct outbound *outbound) {
    /* Reading shows when the server closes. */
    if (!outbound_is_clear(outbound) || !transport_is_clear(&outbound->transport) ||
        !transport_read_start(&outbound->transport)) {
        outbound_close(outbound);
        return;
    }
    set_state(outbound, OUTBOUND_IDLE);
    outbound->wants_room = false;
    outbound->idle_since_ms = clock_mono_ms(outbound->group->set->host->clock);
}

struct outbound *outbound_reuse(struct outbound_group *group, const struct outbound_target *target,
                                const struct outbound_events *events, void *user) {
    struct list_node *node;
    while ((node = list_first(&group->idle))) {
        struct outbound *outbound = container_of(node, struct outbound, idle_node);
        if (!is_same(&outbound->target, target)) {
            outbound_close(outbound);
            continue;
        }
        set_state(outbound, OUTBOUND_OPEN);
        outbound->events = events;
        outbound->user = user;
        return outbound;
    }
    return NULL;
}

void outbound_close_idle(struct outbound_group *group, uint64_t idle_ms) {
    uint64_t now_ms = clock_mono_ms(group->set->host->clock);
    struct list_node *node;
    while ((node = list_last(&group->idle))) {
        struct outbound *outbound = container_of(node, struct outbound, idle_node);
        if (now_ms - outbound->idle_since_ms < idle_ms)
            return;
        outbound_close(outbound);
    }
}
