/* Wake-up of other nodes: after a commit the writer announces how far the log is, and nodes that
 * receive the hint read the log after their own position.
 * Thread: fanout_open and fanout_close belong to one thread, all others to any. Each driver except
 * memory has a thread of its own.
 * Memory: one hint in each direction, the newest; the texts of the options are copied.
 * Errors: fanout_open fails only for lack of memory or threads. A server that cannot be reached is
 * a state and is tried again, with growing, jittered delays.
 * Invariant: a hint is a hint. The log is the authority, and a node also reads it at an interval.
 * So a lost, repeated, late or forged hint causes at most one read of the log, and announcing never
 * blocks. */
#ifndef CLUSTER_FANOUT_H
#define CLUSTER_FANOUT_H

#include "base/uuid7.h"
#include "cluster/driver.h"

/* "1 ", the epoch, a blank, and the log id in 20 digits. A text has one size and one form, so that
 * one comparison of sizes bounds the input. */
#define HINT_LOG_ID_BYTES 20
#define HINT_BYTES        (2 + UUID_TEXT_SIZE + 1 + HINT_LOG_ID_BYTES)
#define HINT_LOG_ID_MAX   INT64_MAX

/* The one message between nodes: the log of an epoch has reached a log id. It carries no frame,
 * because other programs can read and forge messages on a shared server. */
struct hint {
    char epoch[UUID_TEXT_SIZE + 1];
    uint64_t log_id; /* 1 to HINT_LOG_ID_MAX */
};

/* Writes HINT_BYTES characters, no NUL. The epoch is a UUIDv7 in lower case. */
void hint_write(const struct hint *hint, char text[HINT_BYTES]);
/* STATUS_INVALID_REQUEST for every text that hint_write cannot have written. */
MUST_CHECK enum status hint_parse(struct slice text, struct hint *hint);

/* The order of the choices of RUNTIME_FANOUT_DRIVER. */
enum fanout_kind {
    FANOUT_MEMORY, /* one node: nothing is sent */
    FANOUT_POSTGRES_NOTIFY,
    FANOUT_NATS,
    FANOUT_REDIS,
    FANOUT_KIND_COUNT
};

enum fanout_state {
    FANOUT_ACTIVE,     /* memory */
    FANOUT_CONNECTING, /* the first attempt is under way */
    FANOUT_CONNECTED,
    FANOUT_RECONNECTING, /* the connection was lost */
    FANOUT_DOWN,         /* no attempt since the start succeeded */
    FANOUT_STATE_COUNT
};

/* The log may have reached the hint's log id. NULL: hints may have been lost, because the
 * connection is new or hints came too fast. A thread of the driver calls it, one call at a time. It
 * may only set a flag and wake the thread that reads the log: then any number of hints during a
 * read causes one more read. */
typedef void fanout_hint_cb(void *user, const struct hint *hint);

struct fanout_options {
    enum fanout_kind kind;
    const char *url;
    const char *channel;     /* the same on all nodes of a store, and no other store's */
    uint64_t log_id;         /* the end of the log at the start */
    void *user;              /* of on_hint */
    fanout_hint_cb *on_hint; /* NULL: hints are only counted */
    /* For tests: replaces the driver of the kind. */
    const struct fanout_driver *driver;
};

struct fanout_status {
    enum fanout_kind kind;
    enum fanout_state state;
    uint64_t lag;       /* log ids announced since the last hint that the server took */
    uint64_t sent;      /* hints that the server took */
    uint64_t received;  /* hints of other nodes */
    uint64_t ignored;   /* texts that are no hint */
    uint64_t connects;  /* connections made */
    uint64_t failures;  /* attempts that failed, and connections lost */
    uint64_t failed_ms; /* time of the last failure, since 1970; 0: none */
    char channel[64];
    char error[FANOUT_ERROR_BYTES_MAX]; /* of the last failure */
};

struct fanout;

const char *fanout_kind_name(enum fanout_kind kind);
const char *fanout_state_name(enum fanout_state state);
/* NULL, or the reason, for people, why this driver cannot use that URL. */
const char *fanout_check_url(enum fanout_kind kind, const char *url);
MUST_CHECK enum status fanout_open(struct fanout **fanout, const struct fanout_options *options);
/* After this on_hint is not called again. NULL is no fanout. */
void fanout_close(struct fanout *fanout);
/* Sets on_hint and its user. After this the old one is not called again. NULL: hints are only
 * counted.
 */
void fanout_listen(struct fanout *fanout, void *user, fanout_hint_cb *on_hint);
/* After a commit. Replaces an earlier hint that was not sent yet. Never blocks. */
void fanout_announce(struct fanout *fanout, const char *epoch, uint64_t log_id);
/* Wakes up the other nodes, although the log has not advanced. Never blocks. */
void fanout_nudge(struct fanout *fanout, const char *epoch);
struct fanout_status fanout_status(struct fanout *fanout);

#endif
