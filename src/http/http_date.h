/* The Date field of answers, made anew only when the second changes.
 * Belongs to one loop. Owns its text, and nothing else.
 * Cannot fail.
 * The text is the form every HTTP date has: Sun, 06 Nov 1994 08:49:37 GMT. */
#ifndef HTTP_HTTP_DATE_H
#define HTTP_HTTP_DATE_H

#include <stdint.h>

#include "base/slice.h"

#define HTTP_DATE_SIZE 29

/* Zeroed: no text yet. */
struct http_date {
    uint64_t second_after; /* that the text is for; 0: none */
    char text[HTTP_DATE_SIZE + 1];
};

/* Valid until the next call. */
struct slice http_date_at(struct http_date *date, uint64_t wall_ms);

#endif
