/* A verb that reads as a subscriber does: with a token, which the operator key is asked for before
 * each connection; the key itself is sent nowhere else.
 * Main thread only. Owns its token, and a client of its own where tokens come from elsewhere.
 * Opening prints what went wrong and answers an exit code; asking answers a status, and where one
 * of the requests was refused its HTTP status and body.
 * No token is used for two connections. */
#ifndef CLI_READER_H
#define CLI_READER_H

#include "cli/remote.h"

struct reader_options {
    const char *operator_url;
    const char *client_build_id;
};

/* Rows for cli_options, beside those of remote.h. */
#define READER_OPTIONS(options)                                                                    \
    {"--operator-url", NULL, &(options)->operator_url}, {                                          \
        "--client-build-id", NULL, &(options)->client_build_id                                     \
    }

struct reader {
    struct remote *remote;
    struct http_client *issuer; /* the remote's own, or of another address */
    const char *client_build_id;
    const char *error; /* why the last asking did not work, for people; "" where nobody knows */
    struct buffer token;
};

/* The remote, which was opened with those options of its own, outlives the reader. */
MUST_CHECK int reader_open(struct reader *reader, struct remote *remote,
                           const struct remote_options *remote_options,
                           const struct reader_options *options);
void reader_close(struct reader *reader);
/* Appends what the compatibility gate asks for to a path with or without a query. */
MUST_CHECK enum status reader_versions(const struct reader *reader, struct buffer *target);
/* Mints, then asks; the request's key is set here. What was refused is in the remote's answer. */
MUST_CHECK enum status reader_exchange(struct reader *reader, struct http_client_request *request,
                                       unsigned *http_status);

#endif
