/* Follows the whole log over an event stream, by event cursors.
 * Thread: any for log_follower_make; that of the client's loop for the others.
 * Memory: owns its texts and its decoder; its request belongs to the requester.
 * Errors: want of memory counts as a lost connection: the follower waits and connects again.
 * Invariant: the position never passes an event that the application got, so nothing is missed or
 * repeated. */
#ifndef CLIENT_LOG_FOLLOWER_H
#define CLIENT_LOG_FOLLOWER_H

#include "client/requester.h"
#include "wire/sse.h"

/* The way of the log followers to their client. */
struct log_link {
    struct requester *requester;
    const struct khala_options *options;
    void *user;
    void (*wait)(void *user, uint64_t at_ms);
    uint64_t (*next_number)(void *user);
};

struct log_follower {
    struct command command;
    struct list_node node;
    struct khala_follow_log follow; /* its texts are in texts */
    uint64_t number;
    const struct log_link *link;
    struct buffer position; /* a cursor; empty: none */
    bool has_start;         /* begins where follow says, since it has no position yet */
    struct sse_decoder decoder;
    struct buffer refusal;   /* the body of an answer that is not a stream */
    uint64_t request_number; /* 0: no request */
    unsigned attempts;
    unsigned refusals;
    int64_t hint_ms; /* -1: the server gave none */
    uint64_t retry_at_ms;
    bool is_expired; /* the token of the connection */
    bool is_over;
    char texts[];
};

/* NULL: no memory. */
struct log_follower *log_follower_make(const struct khala_follow_log *follow, uint64_t number);
/* Takes the follower. */
void log_follower_start(struct list *followers, struct log_follower *follower,
                        const struct log_link *link);
void log_follower_end(const struct list *followers, uint64_t number);
void log_followers_tick(const struct list *followers);
/* Ends every follower. */
void log_followers_stop(struct list *followers);

#endif
