#include "drive.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness.h"

#define ANSWER_BYTES_MAX ((size_t)16 << 20)
#define PIECE_BYTES      65536
#define SILENCE_MS_MAX   30000

void drive_open(struct drive *drive, const struct drive_options *options) {
    drive->options = *options;
    drive->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (drive->epoll < 0 || options->connection_count > DRIVE_CONNECTIONS_MAX)
        bench_fail("cannot make %u connections", options->connection_count);
    for (unsigned i = 0; i < options->connection_count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        drive->conns[i].fd = bench_connect(options->port);
        if (options->greet)
            options->greet(i, drive->conns[i].fd);
        fcntl(drive->conns[i].fd, F_SETFL, O_NONBLOCK);
        buffer_init(&drive->conns[i].answer, ANSWER_BYTES_MAX);
        epoll_ctl(drive->epoll, EPOLL_CTL_ADD, drive->conns[i].fd, &event);
    }
}

static void conn_send(struct drive_conn *conn) {
    while (conn->sent < conn->request.size) {
        ssize_t size = send(conn->fd, conn->request.data + conn->sent,
                            conn->request.size - conn->sent, MSG_NOSIGNAL);
        if (size < 0 && errno == EAGAIN)
            return;
        if (size < 0)
            bench_fail("send: %s", strerror(errno));
        conn->sent += (size_t)size;
    }
}

static void conn_watch(struct drive *drive, unsigned index) {
    struct drive_conn *conn = &drive->conns[index];
    struct epoll_event event = {
        .events = EPOLLIN | (conn->sent < conn->request.size ? EPOLLOUT : 0), .data.u32 = index};
    epoll_ctl(drive->epoll, EPOLL_CTL_MOD, conn->fd, &event);
}

static bool conn_next(struct drive *drive, unsigned index) {
    struct drive_conn *conn = &drive->conns[index];
    conn->sent = 0;
    conn->request = (struct slice){0};
    if (!drive->options.next(drive->options.user, index, &conn->request))
        return false;
    conn_send(conn);
    if (conn->sent < conn->request.size)
        conn_watch(drive, index);
    return true;
}

/* Whether the answer is complete. */
static bool conn_receive(struct drive *drive, unsigned index) {
    struct drive_conn *conn = &drive->conns[index];
    for (;;) {
        if (buffer_reserve(&conn->answer, PIECE_BYTES) != STATUS_OK)
            bench_fail("answer too large");
        ssize_t size = recv(conn->fd, conn->answer.data + conn->answer.size, PIECE_BYTES, 0);
        if (size < 0 && errno == EAGAIN)
            return false;
        if (size <= 0)
            bench_fail("the server closed a connection");
        conn->answer.size += (size_t)size;
        if (drive->options.answer(drive->options.user, index, buffer_slice(&conn->answer))) {
            buffer_clear(&conn->answer);
            return true;
        }
    }
}

double drive_run(struct drive *drive) {
    struct epoll_event events[64];
    unsigned busy = 0;
    double begun = bench_seconds();
    for (unsigned i = 0; i < drive->options.connection_count; i++)
        busy += conn_next(drive, i);
    while (busy > 0) {
        int count = epoll_wait(drive->epoll, events, 64, SILENCE_MS_MAX);
        if (count <= 0 || bench_seconds() - begun > BENCH_SECONDS_MAX)
            bench_fail("no answer in time");
        for (int i = 0; i < count; i++) {
            unsigned index = events[i].data.u32;
            if (events[i].events & EPOLLOUT) {
                conn_send(&drive->conns[index]);
                if (drive->conns[index].sent == drive->conns[index].request.size)
                    conn_watch(drive, index);
            }
            if ((events[i].events & (EPOLLIN | EPOLLHUP)) && conn_receive(drive, index))
                busy -= !conn_next(drive, index);
        }
    }
    return bench_seconds() - begun;
}

void drive_close(struct drive *drive) {
    for (unsigned i = 0; i < drive->options.connection_count; i++) {
        close(drive->conns[i].fd);
        buffer_release(&drive->conns[i].answer);
    }
    close(drive->epoll);
}
