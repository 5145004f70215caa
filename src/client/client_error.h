/* Errors that a client gets from the server or makes itself, and the policy for each.
 * Thread: any.
 * Memory: values; they hold their texts, cut at their maximum.
 * Errors: reading an error cannot fail: a body that is not one gives the code of its HTTP status or
 * close.
 * Invariant: the policy is that of spec/client_states.json: the code of the body first, then the
 * number. */
#ifndef CLIENT_CLIENT_ERROR_H
#define CLIENT_CLIENT_ERROR_H

#include <khala/khala.h>

#include "spec/client_states.h"
#include "wire/json.h"

struct http_answer;

#define CLIENT_CODE_BYTES_MAX    64
#define CLIENT_MESSAGE_TEXT_SIZE 256
#define CLIENT_DETAILS_BYTES_MAX 512
#define CLIENT_REQUEST_ID_SIZE   65

struct client_error {
    enum client_policy policy;
    char code[CLIENT_CODE_BYTES_MAX];
    char message[CLIENT_MESSAGE_TEXT_SIZE];
    char details[CLIENT_DETAILS_BYTES_MAX];  /* a JSON object; "" if there is none, or a long one */
    int64_t retry_after_ms;                  /* -1: no hint */
    unsigned http_status;                    /* 0: not of an HTTP answer */
    char request_id[CLIENT_REQUEST_ID_SIZE]; /* "" if there is none */
};

/* The policy of a code, of an HTTP status or of a close code as text. */
enum client_policy client_policy_of(const char *code);
/* An error of the client itself. */
struct client_error client_error_make(enum client_policy policy, const char *code,
                                      const char *message);
/* The error in a body of the Phoenix dialect or of HTTP. close and http_status may be 0. */
struct client_error client_error_read(struct json_value body, unsigned close, unsigned http_status);
/* The error of the body of an HTTP answer. One without the server's own body is from a proxy:
 * retry. */
struct client_error client_error_of_body(unsigned http_status, struct slice text);
/* The first of a list of reason codes; "": there is none. */
void client_error_first_reason(struct json_value reasons, char reason[CLIENT_CODE_BYTES_MAX]);
/* Names the request that had the error. */
void client_error_set_request(struct client_error *error, const char *id);
/* The error of an answer, with the hint and the request of its head. */
struct client_error client_error_of_answer(const struct http_answer *answer);
/* The error for the application, which lives as long as this one. topic may be NULL or "". */
struct khala_error client_error_shown(const struct client_error *error, const char *topic);

#endif
