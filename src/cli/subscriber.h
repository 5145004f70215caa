/* A client of libkhala for the verbs that read like a subscriber. It mints its tokens with the
 * operator key, which goes to the operator address only.
 * Thread: main, which runs the loop; callbacks of the client come from subscriber_run.
 * Memory: owns its clients and its loop.
 * Errors: opening prints its error and returns an exit code. An error of the client ends the run.
 * Invariant: no token is used for two connections. */
#ifndef CLI_SUBSCRIBER_H
#define CLI_SUBSCRIBER_H

#include <khala/khala.h>
#include <uv.h>

#include "cli/remote.h"

struct subscriber_options {
    struct remote_options remote;
    const char *operator_url;
    const char *client_build_id;
    bool replay_all; /* tokens may replay everything that the log has */
};

/* The parameters of the compatibility gate, without the build id at their end. */
#define SUBSCRIBER_VERSIONS "protocol_version=khala.ws.v1&schema_version=1&client_build_id="

const char *subscriber_build_id(const struct subscriber_options *options);

struct subscriber {
    struct khala *client;
    struct khala *issuer; /* mints tokens; the client, or one of its own */
    uv_loop_t loop;
    uv_signal_t signals[2];
    uv_prepare_t prepare; /* flushes standard output before the loop waits */
    char key[REMOTE_KEY_BYTES_MAX + 1];
    bool replay_all;
    bool is_over;
    bool has_error;
    struct remote_error error; /* the one that ended the run */
    struct remote_error mint_error;
    void (*before_wait)(struct subscriber *subscriber); /* may be NULL */
};

/* client has the callbacks, whose user is the subscriber; its address, loop and tokens are set
 * here. */
MUST_CHECK int subscriber_open(struct subscriber *subscriber,
                               const struct subscriber_options *options,
                               const struct khala_options *client);
/* Runs until a signal or subscriber_end, and releases everything. Prints the error that ended it
 * and returns the exit code. */
MUST_CHECK int subscriber_run(struct subscriber *subscriber);
/* Ends the run; without an error it is a success. Call from a callback. */
void subscriber_end(struct subscriber *subscriber, const struct khala_error *error);

#endif
