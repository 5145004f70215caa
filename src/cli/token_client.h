/* Requests of the verbs that read like a subscriber: each one mints a token with the operator key
 * first and then sends the token. The key goes to the operator address only.
 * Main thread only. Owns its token, and the issuer's client when that has an address of its own.
 * Opening prints its error and returns an exit code. An exchange returns a status; when the server
 * refused one of the two requests, also the HTTP status and the body.
 * No token is used for two connections. */
#ifndef CLI_TOKEN_CLIENT_H
#define CLI_TOKEN_CLIENT_H

#include "cli/remote.h"

struct token_client_options {
    const char *operator_url;
    const char *client_build_id;
    bool replay_all; /* tokens may replay everything that the log has */
};

struct token_client {
    struct remote *remote;
    struct exchange *issuer; /* mints tokens; the remote's client, or one of its own */
    const char *client_build_id;
    const char *error; /* why the last exchange failed, for people; "" when unknown */
    struct buffer token;
    bool replay_all;
};

/* The remote was opened with remote_options and outlives the client. */
MUST_CHECK int token_client_open(struct token_client *client, struct remote *remote,
                                 const struct remote_options *remote_options,
                                 const struct token_client_options *options);
void token_client_close(struct token_client *client);
/* Appends the parameters of the compatibility gate to a path with or without a query. */
MUST_CHECK enum status token_client_append_versions(const struct token_client *client,
                                                    struct buffer *target);
/* Mints a token, sets it as the request's key and sends the request. After a refusal the remote's
 * answer holds the body. */
MUST_CHECK enum status token_client_exchange(struct token_client *client,
                                             struct exchange_request *request,
                                             unsigned *http_status);

#endif
