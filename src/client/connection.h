/* The connection of a client: runs its machine, asks for tokens, and passes messages to topics.
 * Thread: that of the client's loop.
 * Memory: owns its channel and its followers until they are finished.
 * Errors: want of memory counts as a lost connection: the client waits and connects again.
 * Invariant: every follower is in by_name and in followers, or in over after its end. */
#ifndef CLIENT_CONNECTION_H
#define CLIENT_CONNECTION_H

#include "client/channel.h"
#include "client/client_limits.h"

struct connection_hooks {
    void *user;
    void (*ask_token)(void *user, uint64_t ask);
    /* Calls connection_tick no later than that. */
    void (*wait)(void *user, uint64_t at_ms);
    /* The last call of a follower was made: connection_settle is to be called soon. */
    void (*finished)(void *user);
};

struct connection {
    const struct khala_options *options;
    const struct connection_hooks *hooks;
    struct client_net *net;
    struct machine machine;
    struct channel *channel;
    struct follower_link link;
    struct list followers;
    struct list over; /* ended, and to be freed */
    struct map by_name;
    struct client_error error; /* the last reason for an end */
    bool has_error;
    struct buffer token;
    uint64_t asks; /* the number of the last question for a token */
    bool is_asking;
    uint64_t ask_until_ms;
    unsigned attempts;
    unsigned refusals;
    uint64_t retry_at_ms;  /* 0: no wait */
    uint64_t renew_at_ms;  /* 0: the token's life is not known */
    uint64_t renew_set_ms; /* when that was set, and for how long */
    uint64_t renew_wall_ms;
    uint64_t renew_after_ms;
    uint64_t tick_at_ms; /* 0: no ticks */
    uint64_t tick_wall_ms;
    uint64_t tick_mono_ms;
    uint64_t live_since_ms;
    uint64_t heard_at_ms;
    uint64_t silence_ms;
    uint64_t beat_ms;
    uint64_t beat_at_ms;
    uint64_t opened_at_ms;
};

void connection_init(struct connection *connection, const struct khala_options *options,
                     const struct connection_hooks *hooks, struct client_net *net);
/* Call it after the machine was stopped. */
void connection_release(struct connection *connection);
/* Takes the follower. */
void connection_add(struct connection *connection, struct follower *follower);
struct follower *connection_find(struct connection *connection, uint64_t number);
void connection_give(struct connection *connection, enum connection_input input);
/* The answer to a question for a token. The text is NULL if there is none. */
void connection_token(struct connection *connection, uint64_t ask, const char *text,
                      const struct client_error *error);
/* Runs what is due. */
void connection_tick(struct connection *connection);
/* Sends what events have caused and frees finished followers. Call at the end of each event. */
void connection_settle(struct connection *connection);

#endif
