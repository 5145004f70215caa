/* The Date header field of answers.
 * Belongs to one loop.
 * Memory: the struct holds the text.
 * Errors: none.
 * The text has the form "Sun, 06 Nov 1994 08:49:37 GMT". It is formatted once a second. */
#ifndef HTTP_HTTP_DATE_H
#define HTTP_HTTP_DATE_H

#include <stdint.h>

#include "base/slice.h"

#define HTTP_DATE_SIZE 29

/* A struct of zeroes has no text yet. */
struct http_date {
    uint64_t second_after; /* the second after that of the text; 0: no text */
    char text[HTTP_DATE_SIZE + 1];
};

/* Valid until the next call. */
struct slice http_date_at(struct http_date *date, uint64_t wall_ms);

#endif
