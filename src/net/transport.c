#include "net/transport.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "base/metrics.h"

struct secure {
    struct tls tls;
    struct buffer sending;  /* ciphertext the socket is taking */
    struct slice plaintext; /* follows it, not encrypted yet */
    size_t batch_bytes;     /* the most plaintext that sending holds */
    bool reports_written;   /* the written event is due when all of that is sent */
    bool is_ending;         /* our side ends when all of that is sent */
    bool has_ended;         /* the peer announced that it sends no more */
    bool has_input;         /* the peer has sent bytes */
    bool was_open;          /* the handshake was counted */
    bool is_client;         /* this node opened the connection */
    uint32_t read_bytes;    /* that the next read takes */
    uint64_t control_ms;    /* when the peer was last granted a control message */
};

/* Each record costs about a microsecond, whatever its size. A connection with small records reads
 * fewer bytes in a turn, and goes on in the next one; one with large records soon reads full input.
 */
#define RECORDS_PER_TURN      16
#define SECURE_READ_BYTES_MIN 256
#define SECURE_READ_BYTES     4096
#define CONTROL_MS            1000 /* grants one control message (TLS_CONTROL_MAX) */

/* Allocated while the socket is full, or connects. */
struct sending {
    struct slice remaining;
    /* All bytes are sent, or the socket is connected. error: a libuv error, or 0. */
    void (*done)(struct transport *transport, int error);
    int error;      /* of a connection that was refused at once */
    bool is_ending; /* our side ends behind these bytes */
};

static void on_secure_write(struct transport *transport, int error);
static bool shut_down(struct transport *transport);
static bool flush(struct transport *transport);

static bool is_closed(const struct transport *transport) {
    return transport->watch.fd < 0;
}

/* ---- the socket ---- */

static bool want(struct transport *transport, uint8_t bits) {
    return socket_set_want(transport->set, &transport->watch, bits);
}

static bool want_also(struct transport *transport, uint8_t bits) {
    return want(transport, transport->watch.wanted | bits);
}

/* Fewer bits never fail. */
static void want_no(struct transport *transport, uint8_t bits) {
    (void)want(transport, (uint8_t)(transport->watch.wanted & ~bits));
}

static ssize_t no_wait(ssize_t written) {
    return written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : written;
}

static ssize_t socket_send(struct transport *transport, struct slice bytes) {
    ssize_t written;
    do
        written = send(transport->watch.fd, bytes.data, bytes.size, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (written < 0 && errno == EINTR);
    transport->has_written = transport->has_written || written > 0;
    return no_wait(written);
}

/* One call and one segment: a second one would cost the peer as much as the first. */
static ssize_t socket_send_both(struct transport *transport, struct slice first,
                                struct slice second) {
    struct iovec pieces[2] = {{(void *)first.data, first.size}, {(void *)second.data, second.size}};
    const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    ssize_t written;
    do
        written = sendmsg(transport->watch.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (written < 0 && errno == EINTR);
    transport->has_written = transport->has_written || written > 0;
    return no_wait(written);
}

static ssize_t socket_try(struct transport *transport, struct slice bytes) {
    if (is_closed(transport))
        return -1;
    return transport->sending ? 0 : socket_send(transport, bytes);
}

/* Calls done when the socket has taken the bytes. */
static bool socket_write(struct transport *transport, struct slice bytes,
                         void (*done)(struct transport *transport, int error)) {
    assert(!transport->sending);
    struct sending *sending = malloc(sizeof(*sending));
    if (!sending)
        return false;
    *sending = (struct sending){.remaining = bytes, .done = done};
    if (want_also(transport, EPOLLOUT)) {
        transport->sending = sending;
        return true;
    }
    free(sending);
    return false;
}

static void socket_sent(struct transport *transport, int error) {
    struct sending sending = *transport->sending;
    free(transport->sending);
    transport->sending = NULL;
    if (!transport->wants_room)
        want_no(transport, EPOLLOUT);
    clock_tick(transport->set->host->clock);
    sending.done(transport, error);
    if (!is_closed(transport) && sending.is_ending && shutdown(transport->watch.fd, SHUT_WR) != 0)
        transport->events->lost(transport);
}

static void socket_writable(struct transport *transport) {
    struct sending *sending = transport->sending;
    if (!sending) {
        bool wants_room = transport->wants_room;
        transport->wants_room = false;
        want_no(transport, EPOLLOUT);
        if (wants_room)
            transport->events->written(transport, 0);
        return;
    }
    ssize_t written = sending->remaining.size > 0 ? socket_send(transport, sending->remaining) : 0;
    if (written < 0) {
        socket_sent(transport, -errno);
        return;
    }
    if (written > 0)
        sending->remaining = slice_from(sending->remaining, (size_t)written);
    if (sending->remaining.size == 0)
        socket_sent(transport, sending->error);
}

/* ---- life ---- */

static void on_ready(struct socket_watch *watch, uint32_t events);
static void on_closed(struct socket_watch *watch);

static const struct socket_events watch_events = {on_ready, on_closed};

void transport_init(struct transport *transport, struct socket_set *set,
                    const struct transport_events *events) {
    *transport = (struct transport){
        .watch = {.events = &watch_events, .fd = -1}, .set = set, .events = events};
}

void transport_open(struct transport *transport, int fd) {
    transport->watch.fd = fd;
}

static void on_connected(struct transport *transport, int error) {
    socklen_t size = sizeof(error);
    if (error == 0 && getsockopt(transport->watch.fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0)
        error = -error;
    transport->events->connected(transport, error);
}

int transport_connect(struct transport *transport, const struct sockaddr *address) {
    socklen_t size =
        address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    socket_set_forget(transport->set, &transport->watch);
    transport->watch.fd = fd;
    int error = connect(fd, address, size) == 0 || errno == EINPROGRESS ? 0 : -errno;
    /* A socket that failed at once is ready at once. */
    if (!socket_write(transport, (struct slice){NULL, 0}, on_connected))
        return UV_ENOMEM;
    transport->sending->error = error;
    return 0;
}

void transport_drop_at_reset(struct transport *transport, bool drops) {
    /* If the socket cannot be watched, a later read or write finds the reset. */
    if (drops)
        (void)want_also(transport, EPOLLHUP);
    else
        want_no(transport, EPOLLHUP);
}

void transport_set_nodelay(struct transport *transport) {
    int on = 1;
    (void)setsockopt(transport->watch.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static enum status begin_secure(struct transport *transport, struct tls_context *context,
                                const char *host) {
    struct secure *secure = calloc(1, sizeof(*secure));
    if (!secure)
        return STATUS_OUT_OF_MEMORY;
    buffer_init(&secure->sending, TLS_OUT_BYTES_MAX);
    secure->read_bytes = SECURE_READ_BYTES;
    secure->control_ms = clock_mono_ms(transport->set->host->clock);
    enum status status =
        host ? tls_init_to(&secure->tls, context, host) : tls_init(&secure->tls, context);
    if (status != STATUS_OK)
        goto out;
    transport->secure = secure;
    secure = NULL;
out:
    if (secure)
        tls_release(&secure->tls);
    free(secure);
    return status;
}

enum status transport_secure(struct transport *transport, struct tls_context *context) {
    return begin_secure(transport, context, NULL);
}

enum status transport_secure_to(struct transport *transport, struct tls_context *context,
                                const char *host) {
    enum status status = begin_secure(transport, context, host);
    if (status != STATUS_OK)
        return status;
    transport->secure->is_client = true;
    return flush(transport) ? STATUS_OK : STATUS_SYSTEM_ERROR;
}

const char *transport_distrust(const struct transport *transport) {
    return transport->secure ? tls_distrust(&transport->secure->tls) : NULL;
}

/* Handshakes of clients with this server. */
static void count_handshake(const struct secure *secure, enum label_outcome outcome) {
    if (!secure->is_client)
        metrics_add(METRIC_TLS_HANDSHAKES, METRIC_LABELS(outcome), 1);
}

void transport_close(struct transport *transport) {
    struct secure *secure = transport->secure;
    if (secure && !secure->was_open && secure->has_input)
        count_handshake(secure, LABEL_OUTCOME_FAILED);
    /* A close alert after half a batch would be garbage. */
    if (secure && transport_is_clear(transport)) {
        tls_end(&secure->tls);
        if (secure->tls.out.size > 0)
            (void)socket_try(transport, buffer_slice(&secure->tls.out));
    }
    free(transport->sending);
    transport->sending = NULL;
    socket_set_drop(transport->set, &transport->watch);
}

static void on_closed(struct socket_watch *watch) {
    struct transport *transport = container_of(watch, struct transport, watch);
    struct secure *secure = transport->secure;
    if (secure) {
        tls_release(&secure->tls);
        buffer_release(&secure->sending);
        free(secure);
    }
    transport->secure = NULL;
    transport->events->closed(transport);
}

bool transport_peer_address(const struct transport *transport, struct sockaddr_storage *address) {
    socklen_t size = sizeof(*address);
    return getpeername(transport->watch.fd, (struct sockaddr *)address, &size) == 0;
}

struct slice transport_peer(const struct transport *transport,
                            char text[TRANSPORT_PEER_BYTES_MAX]) {
    struct sockaddr_storage address;
    text[0] = '\0';
    if (transport_peer_address(transport, &address))
        (void)uv_ip_name((const struct sockaddr *)&address, text, TRANSPORT_PEER_BYTES_MAX);
    return slice_of(text);
}

bool transport_is_open(const struct transport *transport) {
    return !transport->secure || transport->secure->was_open;
}

/* ---- writing ---- */

bool transport_is_clear(const struct transport *transport) {
    const struct secure *secure = transport->secure;
    return !secure || (secure->sending.size == 0 && secure->tls.out.size == 0);
}

bool transport_want_room(struct transport *transport) {
    transport->wants_room = true;
    return want_also(transport, EPOLLOUT);
}

bool transport_took_all(const struct transport *transport, ssize_t done, size_t size) {
    return done == (ssize_t)size && transport_is_clear(transport);
}

/* Gives the encrypted bytes to the socket. False: the peer is gone. */
static bool flush(struct transport *transport) {
    struct secure *secure = transport->secure;
    struct buffer *out = &secure->tls.out;
    if (secure->sending.size > 0 || out->size == 0)
        return true;
    ssize_t done = socket_try(transport, buffer_slice(out));
    if (done < 0)
        return false;
    if ((size_t)done == out->size) {
        buffer_release(out);
        return true;
    }
    secure->sending = *out;
    buffer_init(out, TLS_OUT_BYTES_MAX);
    return socket_write(transport, slice_from(buffer_slice(&secure->sending), (size_t)done),
                        on_secure_write);
}

/* Encrypts and writes batches for as long as the socket takes them. False: the peer is gone. */
static bool pump(struct transport *transport) {
    struct secure *secure = transport->secure;
    if (!flush(transport))
        return false;
    while (transport_is_clear(transport) && secure->plaintext.size > 0) {
        size_t size = secure->plaintext.size;
        if (size > TLS_BATCH_BYTES_MAX)
            size = TLS_BATCH_BYTES_MAX;
        if (tls_send(&secure->tls, (struct slice){secure->plaintext.data, size}) != STATUS_OK)
            return false;
        secure->plaintext = slice_from(secure->plaintext, size);
        secure->batch_bytes = size;
        if (!flush(transport))
            return false;
    }
    return true;
}

static void on_secure_write(struct transport *transport, int error) {
    struct secure *secure = transport->secure;
    buffer_release(&secure->sending);
    if (error != 0 || !pump(transport)) {
        transport->events->lost(transport);
        return;
    }
    if (!transport_is_clear(transport))
        return;
    bool reports_written = secure->reports_written;
    secure->reports_written = false;
    if (reports_written)
        transport->events->written(transport, 0);
    if (!is_closed(transport) && secure->is_ending) {
        secure->is_ending = false;
        if (!shut_down(transport))
            transport->events->lost(transport);
    }
}

static void on_plain_write(struct transport *transport, int error) {
    transport->events->written(transport, error);
}

ssize_t transport_try(struct transport *transport, struct slice bytes) {
    struct secure *secure = transport->secure;
    if (!secure)
        return socket_try(transport, bytes);
    if (!transport_is_clear(transport))
        return 0;
    assert(secure->plaintext.size == 0 && !secure->reports_written);
    secure->plaintext = bytes;
    bool is_connected = pump(transport);
    size_t taken = bytes.size - secure->plaintext.size;
    secure->plaintext = (struct slice){NULL, 0};
    return is_connected ? (ssize_t)taken : -1;
}

ssize_t transport_try_both(struct transport *transport, struct slice first, struct slice second) {
    if (!transport->secure && !transport->sending && !is_closed(transport))
        return socket_send_both(transport, first, second);
    ssize_t done = transport_try(transport, first);
    if (!transport_took_all(transport, done, first.size))
        return done;
    ssize_t more = transport_try(transport, second);
    return more < 0 ? more : done + more;
}

bool transport_write(struct transport *transport, struct slice remaining) {
    struct secure *secure = transport->secure;
    if (!secure)
        return socket_write(transport, remaining, on_plain_write);
    assert(!transport_is_clear(transport));
    secure->plaintext = remaining;
    secure->reports_written = true;
    return true;
}

size_t transport_unsent_bytes(const struct transport *transport) {
    const struct secure *secure = transport->secure;
    size_t queued = transport->sending ? transport->sending->remaining.size : 0;
    if (!secure)
        return queued;
    /* The bytes that TLS adds do not count. */
    return secure->plaintext.size + (queued < secure->batch_bytes ? queued : secure->batch_bytes);
}

/* ---- reading ---- */

/* The peer sent no TLS, or no version that the server accepts. It gets the alert. */
static void handshake_failed(struct transport *transport) {
    if (!transport->secure->is_client)
        log_event(LOG_DEBUG, "tls.handshake_failed", log_str("reason", tls_failure()));
    transport->events->handshake_failed(transport);
}

/* The peer may still wait for an answer. As on a plain connection, the end is reported to a reader
 * only, and after the bytes that came before it. */
static void ended(struct transport *transport) {
    transport->secure->has_ended = true;
    (void)shutdown(transport->watch.fd, SHUT_RD);
}

static void grant_control(struct secure *secure, uint64_t now_ms) {
    uint64_t granted = (now_ms - secure->control_ms) / CONTROL_MS;
    unsigned missing = TLS_CONTROL_MAX - secure->tls.control_left;
    secure->control_ms += granted * CONTROL_MS;
    secure->tls.control_left += granted < missing ? (unsigned)granted : missing;
}

static void fit_next_read(struct secure *secure, size_t input_bytes) {
    uint32_t bytes = secure->read_bytes;
    if (secure->tls.records > RECORDS_PER_TURN && bytes > SECURE_READ_BYTES_MIN)
        secure->read_bytes = bytes / 2;
    else if (secure->tls.records <= RECORDS_PER_TURN / 2 && input_bytes == bytes)
        secure->read_bytes = bytes < LOOP_READ_BYTES / 2 ? bytes * 2 : LOOP_READ_BYTES;
}

static void on_secure_read(struct transport *transport, struct slice input) {
    struct secure *secure = transport->secure;
    char *memory = transport->set->host->plaintext;
    size_t size;
    if (secure->has_ended)
        return;
    secure->has_input = true;
    grant_control(secure, clock_mono_ms(transport->set->host->clock));
    enum tls_step step = tls_receive(&secure->tls, input, memory, LOOP_READ_BYTES, &size);
    fit_next_read(secure, input.size);
    if (secure->tls.is_flooding) {
        metrics_add(METRIC_TLS_FLOODS, METRIC_PLAIN, 1);
        log_event(LOG_DEBUG, "tls.flood");
    }
    if (!flush(transport)) {
        transport->events->lost(transport);
        return;
    }
    if (!secure->was_open && tls_is_open(&secure->tls)) {
        secure->was_open = true;
        count_handshake(secure, LABEL_OUTCOME_OK);
        transport->events->opened(transport);
    }
    if (size > 0 && !is_closed(transport))
        transport->events->received(transport, (struct slice){memory, size});
    if (is_closed(transport) || step == TLS_STEP_MORE)
        return;
    if (step == TLS_STEP_ENDED)
        ended(transport);
    else if (secure->was_open)
        transport->events->lost(transport);
    else
        handshake_failed(transport);
}

/* One read in each turn: a peer that sends without end must not keep the loop from the others. With
 * a record that started earlier, a read of TLS then decrypts to no more than a plain read. */
static void socket_readable(struct transport *transport) {
    char *memory = transport->set->host->input;
    size_t bytes_max = transport->read_bytes_max - (transport->secure ? TLS_RECORD_BYTES : 0);
    /* The kernel discards the bytes itself, which costs little, however many there are. */
    int discards = transport->is_lingering ? MSG_TRUNC : 0;
    if (bytes_max > transport->set->read_share && !discards)
        bytes_max = transport->set->read_share;
    if (transport->secure && bytes_max > transport->secure->read_bytes && !discards)
        bytes_max = transport->secure->read_bytes;
    ssize_t size = recv(transport->watch.fd, memory, bytes_max, MSG_DONTWAIT | discards);
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    clock_tick(transport->set->host->clock);
    struct slice input = {memory, size > 0 ? (size_t)size : 0};
    if (size <= 0)
        want_no(transport, EPOLLIN);
    if (size == 0)
        transport->events->ended(transport);
    else if (size < 0)
        transport->events->lost(transport);
    else if (transport->secure && !transport->is_lingering)
        on_secure_read(transport, input);
    else
        transport->events->received(transport, input);
}

static void on_ready(struct socket_watch *watch, uint32_t events) {
    struct transport *transport = container_of(watch, struct transport, watch);
    bool is_broken = events & (EPOLLHUP | EPOLLERR);
    if (is_broken && watch->wanted & EPOLLHUP) {
        transport->events->lost(transport);
        return;
    }
    if ((is_broken || events & EPOLLIN) && watch->wanted & EPOLLIN)
        socket_readable(transport);
    if (!is_closed(transport) && (is_broken || events & EPOLLOUT) && watch->wanted & EPOLLOUT)
        socket_writable(transport);
}

bool transport_read_start_within(struct transport *transport, size_t bytes_max) {
    assert(bytes_max >= TRANSPORT_READ_BYTES_MIN && bytes_max <= LOOP_READ_BYTES);
    transport->read_bytes_max = (uint32_t)bytes_max;
    return want_also(transport, EPOLLIN);
}

bool transport_read_start(struct transport *transport) {
    return transport_read_start_within(transport, LOOP_READ_BYTES);
}

void transport_read_stop(struct transport *transport) {
    want_no(transport, EPOLLIN);
}

/* ---- the end ---- */

static bool shut_down(struct transport *transport) {
    if (transport->secure) {
        tls_end(&transport->secure->tls);
        if (!flush(transport))
            return false;
    }
    if (transport->sending) {
        transport->sending->is_ending = true;
        return true;
    }
    return shutdown(transport->watch.fd, SHUT_WR) == 0;
}

void transport_shut(struct transport *transport) {
    if (!is_closed(transport))
        (void)shutdown(transport->watch.fd, SHUT_RDWR);
}

bool transport_end(struct transport *transport) {
    transport->is_lingering = true;
    bool is_clear = transport_is_clear(transport);
    /* Bytes that are not encrypted yet come first. */
    if (!is_clear)
        transport->secure->is_ending = true;
    return (!is_clear || shut_down(transport)) && transport_read_start(transport);
}

/* ---- options and states of the socket ---- */

void transport_set_unsent_max(struct transport *transport, unsigned bytes) {
    int fd = transport->watch.fd;
    if (fd >= 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof(bytes));
}

void transport_reset_on_close(struct transport *transport) {
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    int fd = transport->watch.fd;
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

static bool has_bytes(const struct transport *transport, unsigned long request) {
    int bytes = 0;
    int fd = transport->watch.fd;
    return fd >= 0 && ioctl(fd, request, &bytes) == 0 && bytes > 0;
}

bool transport_has_unsent(const struct transport *transport) {
    return transport_unsent_bytes(transport) > 0 || has_bytes(transport, SIOCOUTQNSD);
}

size_t transport_unread_bytes(const struct transport *transport) {
    int bytes = 0;
    int fd = transport->watch.fd;
    bool is_known = fd >= 0 && ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
    return transport_unsent_bytes(transport) + (is_known ? (size_t)bytes : 0);
}

bool transport_has_input(const struct transport *transport) {
    return has_bytes(transport, FIONREAD);
}

bool transport_check_peer(struct transport *transport, uint64_t timeout_ms) {
    struct tcp_info info;
    socklen_t size = sizeof(info);
    if (!transport->has_written || is_closed(transport))
        return false;
    if (getsockopt(transport->watch.fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return false;
    bool is_silent = (info.tcpi_retransmits > 0 || info.tcpi_probes > 0) &&
                     (transport->silent_checks == 0 ||
                      info.tcpi_last_ack_recv >= timeout_ms / TRANSPORT_PEER_CHECKS);
    transport->silent_checks = is_silent ? transport->silent_checks + 1 : 0;
    transport->has_written = is_silent || transport_unread_bytes(transport) > 0;
    return transport->silent_checks > TRANSPORT_PEER_CHECKS;
}

enum transport_peer_state transport_peer_state(const struct transport *transport) {
    struct pollfd socket = {.fd = transport->watch.fd, .events = POLLRDHUP};
    /* A call that a signal interrupts reports nothing; the next one does. */
    (void)poll(&socket, 1, 0);
    if (socket.fd < 0 || (socket.revents & (POLLERR | POLLHUP)))
        return TRANSPORT_PEER_GONE;
    return socket.revents & POLLRDHUP ? TRANSPORT_PEER_ENDED : TRANSPORT_PEER_PRESENT;
}
