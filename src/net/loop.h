/* An io loop: one thread with its listeners, its tasks and its deadlines. A turn lets deadlines
 * pass, calls the owner's hooks, and waits once for all descriptors.
 * Thread: the loop's, except the functions that end in _post.
 * Memory: the loop owns its descriptors and buffers. Connections belong to the owner of the
 * hooks.
 * Errors: STATUS_SYSTEM_ERROR when the system refuses a descriptor or a thread.
 * Invariant: a loop that drains accepts nothing, and its thread ends when nothing holds the loop
 * any more. */
#ifndef NET_LOOP_H
#define NET_LOOP_H

#include <stdatomic.h>
#include <sys/socket.h>
#include <uv.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mailbox.h"
#include "base/uuid7.h"
#include "net/deadline.h"
#include "net/socket_set.h"

struct io_loop;

/* Work that another thread posts to the loop. */
struct loop_task {
    struct mailbox_item item;
    void (*run)(struct loop_task *task);
};

enum loop_state { LOOP_SERVING, LOOP_DRAINING, LOOP_ENDING };

enum listener_kind { LISTENER_PUBLIC, LISTENER_OPERATOR, LISTENER_COUNT };

struct io_listener {
    struct socket_watch watch; /* fd -1: none */
    struct io_loop *loop;
    struct deadline retry; /* set while an accept that failed pauses the listener */
};

/* How the owner of the connections takes part in a loop; all on the loop's thread. */
struct io_loop_hooks {
    /* A connection was accepted; takes over its socket. */
    void (*accept)(struct io_loop *loop, enum listener_kind kind, int fd,
                   const struct sockaddr *peer);
    /* Listeners are closed: close idle connections, finish the others. */
    void (*drain)(struct io_loop *loop);
    /* Close every connection now. */
    void (*close_all)(struct io_loop *loop);
    /* Before the loop sleeps. True: work is left, so the loop must not sleep. */
    bool (*before_sleep)(struct io_loop *loop);
    /* The thread is about to end. */
    void (*ended)(struct io_loop *loop);
};

/* When clients are asked to reconnect; shared by all loops. */
struct io_backoff {
    uint64_t base_ms;
    atomic_uint_fast64_t spread_ms;
};

struct io_loop_options {
    const struct io_loop_hooks *hooks;
    void *owner; /* of the hooks */
    const struct io_backoff *backoff;
    size_t index;            /* among the loops of the server */
    uint64_t log_ms;         /* when the last event was stored; 0: none */
    int fds[LISTENER_COUNT]; /* taken over; -1: none */
    /* Each loop has its own descriptor table. The loop then closes later_fds, the listening
     * sockets of loops that start after it, in its own table. */
    bool has_own_descriptors;
    const int *later_fds;
    size_t later_fd_count;
};

struct io_loop {
    const struct io_loop_hooks *hooks;
    void *owner;
    const struct io_backoff *backoff;
    size_t index;
    uv_thread_t thread;
    struct io_listener listeners[LISTENER_COUNT];
    struct log_gate accept_log; /* of accepts that failed */
    struct socket_set sockets;  /* every descriptor of the loop */
    struct socket_host host;
    struct socket_watch wake;  /* an eventfd, written when the mailbox gets its first item */
    uv_loop_t lookups;         /* resolves names; idle otherwise */
    uv_prepare_t lookups_keep; /* keeps it alive: a loop that is not alive reads no wake-up */
    struct socket_watch lookup_watch;
    bool reads_before_deadlines; /* deadlines passed long ago, so one turn of reading comes first */
    bool has_work;               /* before_sleep left some: the loop does not sleep */
    struct mailbox mailbox;
    struct clock clock;
    struct step_guard guard;    /* of io_loop_forget_ms */
    struct uuid7_generator ids; /* of requests */
    struct deadline_queue deadlines;
    size_t hold_count;               /* connections and calls that keep the loop alive */
    void (*at_turn_end)(void *user); /* runs at the end of this turn; NULL: none */
    void *at_turn_end_user;
    bool has_own_descriptors;
    const int *later_fds;
    size_t later_fd_count;
    uv_sem_t started; /* the thread runs, and has_own_descriptors does not change any more */
    enum loop_state state;
    struct loop_task drain;
    struct loop_task end;
    bool drain_posted; /* these two belong to the thread that posts them */
    bool end_posted;
    char read_memory[LOOP_READ_BYTES];
    char plain_memory[LOOP_READ_BYTES]; /* decrypted input */
};

/* Every loop must be open before the first one starts: a loop with its own descriptor table knows
 * only the descriptors that were open at its start. The caller defines the kinds of deadlines
 * between open and start. */
MUST_CHECK enum status io_loop_open(struct io_loop *loop, const struct io_loop_options *options);
MUST_CHECK enum status io_loop_start(struct io_loop *loop);
/* Accepts no more; idle connections close, others finish their request. */
void io_loop_drain_post(struct io_loop *loop);
/* Every connection closes now. */
void io_loop_end_post(struct io_loop *loop);
/* Waits for the thread, then closes the loop. */
void io_loop_join(struct io_loop *loop);
/* For a loop without a thread, in tests: one turn, which waits for a socket or a deadline if it may
 * sleep; turns until the loop ends; and its end. */
void io_loop_turn(struct io_loop *loop, bool may_sleep);
void io_loop_run(struct io_loop *loop);
void io_loop_close(struct io_loop *loop);
/* The caller keeps the task's memory until the task has run. A loop that ends runs the tasks it
 * has accepted, and refuses later tasks with STATUS_SHUTTING_DOWN. */
MUST_CHECK enum status io_loop_post(struct io_loop *loop, struct loop_task *task);

/* Calls run once at the end of the turn, however often this is called: the writer is woken once for
 * all groups of a turn. A loop has one such user. */
void io_loop_at_turn_end(struct io_loop *loop, void (*run)(void *user), void *user);

/* The loop of a set that belongs to one. */
static inline struct io_loop *io_loop_of(struct socket_set *set) {
    return container_of(set, struct io_loop, sockets);
}

/* Keeps the loop alive until io_loop_release: for a connection, or for a call under way. */
void io_loop_hold(struct io_loop *loop);
void io_loop_release(struct io_loop *loop);

/* Sets a deadline with its kind's delay, and keeps the timer right. */
void io_loop_deadline(struct io_loop *loop, struct deadline *deadline, enum deadline_kind kind);
/* The same with a delay of its own. */
void io_loop_deadline_in(struct io_loop *loop, struct deadline *deadline, enum deadline_kind kind,
                         uint64_t delay_ms);
/* How long a client should wait before it reconnects. Random, so that clients spread out. */
uint64_t io_loop_backoff_ms(struct io_loop *loop);
/* Revocations and single uses that expired before this time may be forgotten. It is not the wall
 * clock: a clock that was ahead and steps back makes tokens valid again, and their revocations must
 * still hold. So a clock that jumps ahead is believed only after an hour, also across restarts. */
uint64_t io_loop_forget_ms(struct io_loop *loop);

#endif
