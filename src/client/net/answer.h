/* Reads one HTTP answer as it arrives: its status, the headers that a client needs, its body.
 * Belongs to one thread at a time; does no I/O.
 * Holds the body, up to its maximum, until answer_release; or passes it on piece by piece.
 * STATUS_INVALID_MESSAGE for bytes that are not an answer, and the errors of the buffer or of
 * piece. After the head of an upgrade, the bytes that follow are not read. */
#ifndef CLIENT_NET_ANSWER_H
#define CLIENT_NET_ANSWER_H

#include <http_parser.h>

#include "base/buffer.h"

enum answer_header {
    ANSWER_RETRY_AFTER,
    ANSWER_REQUEST_ID,
    ANSWER_CONTENT_TYPE,
    ANSWER_WS_ACCEPT,
    ANSWER_HEADER_COUNT,
    ANSWER_OTHER = ANSWER_HEADER_COUNT,
};

#define ANSWER_HEADER_BYTES_MAX 128

struct answer {
    http_parser parser;
    struct buffer body;
    void *user;
    /* Takes the body instead of the buffer. May be NULL. */
    enum status (*piece)(void *user, struct slice piece);
    enum status failure;
    bool is_complete;
    bool keeps_connection;    /* after the end: another request may follow */
    bool is_value;            /* the last bytes were of a value */
    enum answer_header named; /* by the field that was read last */
    struct {
        char text[ANSWER_HEADER_BYTES_MAX];
        size_t size;
    } field, headers[ANSWER_HEADER_COUNT];
};

void answer_init(struct answer *answer, size_t body_bytes_max);
void answer_release(struct answer *answer);
/* Sets how many bytes were used: fewer than given at the end of the answer. */
MUST_CHECK enum status answer_feed(struct answer *answer, struct slice data, size_t *used);
/* The connection ended, which may complete the answer. */
MUST_CHECK enum status answer_end(struct answer *answer);
unsigned answer_status(const struct answer *answer);
bool answer_is_upgrade(const struct answer *answer);
/* The value, cut at its maximum; "" if there was none. */
const char *answer_header(const struct answer *answer, enum answer_header header);

#endif
