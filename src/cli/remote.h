/* The connection of a verb to a running server: its address, the operator key, one request.
 * Thread: main.
 * Memory: owns its client and the body of the last answer; remote_close also after an error.
 * Errors: opening and requests print their error and return an exit code.
 * Invariant: an answer of 4xx is "no", one of 5xx or no answer is "unreachable". */
#ifndef CLI_REMOTE_H
#define CLI_REMOTE_H

#include <khala/khala.h>
#include <stdio.h>

#include "base/buffer.h"
#include "cli/cli.h"
#include "client/blocking_http.h"
#include "http/admit/operator_key.h"
#include "wire/json.h"

/* A token is longer than an operator key. */
#define REMOTE_KEY_BYTES_MAX 8192

/* The options every such verb takes, to be filled by cli_options. */
struct remote_options {
    const char *url;
    const char *key;
    const char *data_dir;
    const char *ca_file;
    bool is_client; /* the verb uses the routes of clients, not those of operators */
};

/* The rows of cli_options for them. */
#define REMOTE_OPTION_ROWS(options)                                                                \
    {"--url", NULL, &(options).url}, {"--key", NULL, &(options).key},                              \
        {"--data-dir", NULL, &(options).data_dir}, {                                               \
        "--ca", NULL, &(options).ca_file                                                           \
    }

#define REMOTE_URL_BYTES_MAX 512
/* --url, KHALA_OPERATOR_URL for a verb that uses operator routes, KHALA_URL, or the address that
 * the settings would bind, which is written to bound. */
const char *remote_url(const struct remote_options *options, char bound[REMOTE_URL_BYTES_MAX]);
/* Whether --url or KHALA_URL names the server. */
bool remote_is_named(const struct remote_options *options);
/* --ca, KHALA_CA_FILE, or NULL for the system's authorities. */
const char *remote_ca_file(const struct remote_options *options);

/* The operator key, or a token: --key, KHALA_OPERATOR_KEY, or the file of the data folder. Prints
 * its error and returns an exit code. */
MUST_CHECK int remote_key(const struct remote_options *options, char key[REMOTE_KEY_BYTES_MAX + 1]);

struct remote {
    struct blocking_http *client;
    char key[REMOTE_KEY_BYTES_MAX + 1]; /* the operator key, or a token */
    struct buffer answer;               /* the body of the last answer */
};

MUST_CHECK int remote_open(struct remote *remote, const struct remote_options *options);
void remote_close(struct remote *remote);
/* Sends a request and collects the answer's body; without body (data NULL) it is a GET. */
MUST_CHECK int remote_ask(struct remote *remote, const char *target, struct slice body,
                          unsigned *http_status);
/* Opens the remote and sends its one request. An answer other than 200 is refused, and its error
 * printed. */
MUST_CHECK int remote_query(struct remote *remote, const struct remote_options *options,
                            const char *target, struct slice body);
/* remote_ask for any request whose key and on_body are set here if absent. */
MUST_CHECK int remote_exchange(struct remote *remote, struct blocking_request *request,
                               unsigned *http_status);
/* Prints the server's error from the answer, with --json as it came; returns the exit code for that
 * HTTP status. */
int remote_refused(struct remote *remote, unsigned http_status);

/* A copy of an error of libkhala. */
struct remote_error {
    unsigned http_status; /* 0: not of an HTTP answer */
    bool is_final;        /* the server refuses for good */
    char code[64];
    char message[512];
    char details[512]; /* "" if there are none */
};

void remote_error_set(struct remote_error *error, const struct khala_error *given);
/* Prints it and returns its exit code. */
int remote_error_print(const struct remote_error *error);

/* Prints a string without its quotes and escapes, and another value as its JSON. */
void remote_print_text(FILE *out, struct json_value value);
/* Prints a string without its quotes if it has no escapes. Otherwise prints it as JSON, which a
 * terminal never takes for a command. */
void remote_print_plain(struct json_value value);

/* Appends a path segment or query value, percent-encoded. */
void remote_encode(struct buffer *out, const char *text);
/* Appends a parameter to the query of a request's target; nothing if value is NULL. */
void remote_add_parameter(struct buffer *target, const char *name, const char *value);

#endif
