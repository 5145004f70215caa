/* The connections of one loop: their deadlines, their end with the loop, and the date of answers.
 * Thread: the loop; http_loop_open runs before it starts.
 * Memory: struct http_loop belongs to the caller and outlives every connection.
 * Invariant: the owner of the io loop is the struct http_loop. */
#ifndef HTTP_HTTP_LOOP_H
#define HTTP_HTTP_LOOP_H

#include "http/http.h"

/* The loop is open and not started. Defines the deadlines of its connections. */
void http_loop_open(struct http_loop *loop, struct http *http, struct io_loop *io);

/* After the loop's thread has ended. */
void http_loop_release(struct http_loop *loop);

/* "Sun, 06 Nov 1994 08:49:37 GMT", formatted once a second. Valid until the next call. */
struct slice http_date_at(struct http_date *date, uint64_t wall_ms);

/* Hooks of the io loop. */
void http_loop_drain(struct io_loop *io);
void http_loop_close_all(struct io_loop *io);

#endif
