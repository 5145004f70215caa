/* An io loop: one thread, its listeners, its connections and their deadlines.
 * Everything here belongs to the loop's thread, except io_loop_post, which any thread may call.
 * Owns its connections; they return their memory when libuv has let go of their handles.
 * A connection beyond the server's maximum is closed at accept. While draining nothing new is
 * accepted, idle connections close at once, and the thread ends with the last connection and the
 * last thing another thread owes. */
#ifndef IO_LOOP_H
#define IO_LOOP_H

#include <uv.h>

#include "authority/append_read.h"
#include "base/clock.h"
#include "base/mailbox.h"
#include "base/step_guard.h"
#include "base/uuid7.h"
#include "delivery/feeds.h"
#include "delivery/scheduler.h"
#include "http/http_date.h"
#include "io/deadline.h"
#include "server/config.h"
#include "wire/http1.h"
#include "wire/websocket/ws_decoder.h"

#define LOOP_READ_BYTES 65536

struct conn;
struct server;

/* Something another thread wants done on the loop's thread. */
struct loop_task {
    struct mailbox_item item;
    void (*run)(struct loop_task *task);
};

enum loop_state { LOOP_SERVING, LOOP_DRAINING, LOOP_ENDING };

struct io_loop {
    struct server *server;
    const struct config *config;
    uv_loop_t uv;
    uv_thread_t thread;
    uv_tcp_t listener;
    uv_tcp_t operator_listener; /* where operators have an address of their own */
    uv_async_t wake;
    uv_timer_t timer;
    struct mailbox mailbox;
    struct clock clock;
    struct step_guard guard;    /* of the time that things are forgotten by */
    struct uuid7_generator ids; /* of requests */
    struct http_date date;
    struct deadline_queue deadlines;
    struct http1_limits limits;
    struct append_parser reader; /* of the bodies of appends */
    struct feeds feeds;          /* what its connections read */
    struct scheduler scheduler;  /* whose turn it is to be sent some of it */
    struct page_tools page_tools;
    struct ws_shared websockets;
    struct ws_deflater *deflater; /* NULL until a peer wants it */
    uv_prepare_t serve;           /* before the loop sleeps, who is in line is served */
    uv_idle_t busy;               /* active while somebody is left in line: no sleep */
    struct conn *conns;
    size_t conn_count;
    size_t owed_count; /* what other threads owe to exchanges of this loop */
    bool refusing;     /* the last connection was one too many */
    bool accept_fails; /* the last one could not be taken */
    bool has_own_descriptors;
    int listen_fd;
    int operator_fd;
    uv_sem_t begun;   /* the thread runs, with its own table where it wants one */
    bool accept_owed; /* there was no memory to take one; libuv waits until it is taken */
    bool operator_accept_owed;
    bool has_operator_listener;
    enum loop_state state;
    struct loop_task advanced; /* the hub's word that topics did */
    struct loop_task drain;
    struct loop_task end;
    bool drain_posted; /* these two belong to the control loop */
    bool end_posted;
    char read_memory[LOOP_READ_BYTES];
    char plain_memory[LOOP_READ_BYTES]; /* what was read, decrypted */
};

/* Takes over the listening sockets; operator_fd is -1 where there is none. All loops are opened
 * before the first is started: one with descriptors of its own knows only what was open by then. */
MUST_CHECK enum status io_loop_open(struct io_loop *loop, struct server *server, int listen_fd,
                                    int operator_fd);
MUST_CHECK enum status io_loop_start(struct io_loop *loop);
/* Any thread: no more accepts; idle connections close, others finish their request. */
void io_loop_drain_post(struct io_loop *loop);
/* Any thread: every connection closes now. */
void io_loop_end_post(struct io_loop *loop);
void io_loop_join(struct io_loop *loop);
/* Any thread. The task's memory stays the loop's until it has run, which it will: a loop that ends
 * runs what it has, and refuses what comes later with STATUS_SHUTTING_DOWN. */
MUST_CHECK enum status io_loop_post(struct io_loop *loop, struct loop_task *task);

/* For connections: deadlines that also keep the timer right. */
void io_loop_deadline(struct io_loop *loop, struct deadline *deadline, enum deadline_kind kind);
/* The same for one with a delay of its own. */
void io_loop_deadline_in(struct io_loop *loop, struct deadline *deadline, enum deadline_kind kind,
                         uint64_t delay_ms);
/* How long a client had better wait before it comes back; by chance, so that not all do at once. */
uint64_t io_loop_backoff_ms(struct io_loop *loop);
/* The time by which what has expired may be forgotten. A clock that was ahead and comes back makes
 * tokens valid again, and what was revoked or used must not be with them: it is believed when it
 * has been ahead for an hour, of the time before a start too. */
uint64_t io_loop_forget_ms(struct io_loop *loop);
/* For connections: one is gone for good. */
void io_loop_conn_closed(struct io_loop *loop);
/* For exchanges: one thing that was owed is back. */
void io_loop_owed_back(struct io_loop *loop);

#endif
