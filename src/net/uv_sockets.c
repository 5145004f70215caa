#include "net/uv_sockets.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/list.h"

static void on_ready(uv_poll_t *poll, int error, int events) {
    struct uv_sockets *sockets = poll->data;
    (void)error;
    (void)events;
    socket_set_wait(&sockets->set, 0);
}

static void on_prepare(uv_prepare_t *prepare) {
    struct uv_sockets *sockets = prepare->data;
    uv_prepare_stop(prepare);
    (void)socket_set_run_closed(&sockets->set);
}

static void on_dropped(struct socket_host *host) {
    struct uv_sockets *sockets = container_of(host, struct uv_sockets, host);
    uv_prepare_start(&sockets->prepare, on_prepare);
}

enum status uv_sockets_open(struct uv_sockets *sockets, uv_loop_t *loop) {
    *sockets = (struct uv_sockets){.memory = malloc(2 * (size_t)LOOP_READ_BYTES)};
    if (!sockets->memory)
        return STATUS_OUT_OF_MEMORY;
    clock_init(&sockets->clock);
    sockets->host = (struct socket_host){.clock = &sockets->clock,
                                         .input = sockets->memory,
                                         .plaintext = sockets->memory + LOOP_READ_BYTES,
                                         .lookups = loop,
                                         .dropped = on_dropped};
    enum status status = socket_set_open(&sockets->set, &sockets->host);
    if (status != STATUS_OK)
        goto out;
    sockets->poll.data = sockets->prepare.data = sockets;
    if (uv_poll_init(loop, &sockets->poll, sockets->set.epoll) != 0) {
        socket_set_close(&sockets->set);
        status = STATUS_SYSTEM_ERROR;
        goto out;
    }
    /* Libuv documents no failure of these two. */
    uv_prepare_init(loop, &sockets->prepare);
    int error = uv_poll_start(&sockets->poll, UV_READABLE, on_ready);
    assert(error == 0);
    (void)error;
out:
    if (status != STATUS_OK)
        free(sockets->memory);
    return status;
}

static void on_closed(uv_handle_t *handle) {
    struct uv_sockets *sockets = handle->data;
    if (--sockets->handle_count > 0)
        return;
    socket_set_close(&sockets->set);
    free(sockets->memory);
    sockets->closed(sockets->user);
}

void uv_sockets_close(struct uv_sockets *sockets, void (*closed)(void *user), void *user) {
    sockets->closed = closed;
    sockets->user = user;
    sockets->handle_count = 2;
    uv_close((uv_handle_t *)&sockets->poll, on_closed);
    uv_close((uv_handle_t *)&sockets->prepare, on_closed);
}
