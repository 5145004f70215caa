/* The connections of one loop: their deadlines, and their end with the loop.
 * Belongs to the loop's thread; http_loop_open runs before it starts.
 * Memory: struct http_loop belongs to the caller and outlives every connection.
 * Errors: none.
 * The owner of the io loop is the struct http_loop. */
#ifndef HTTP_HTTP_LOOP_H
#define HTTP_HTTP_LOOP_H

#include "http/http.h"

/* The loop is open and not started. Defines the deadlines of its connections. */
void http_loop_open(struct http_loop *loop, struct http *http, struct io_loop *io);

/* After the loop's thread has ended. */
void http_loop_release(struct http_loop *loop);

/* Hooks of the io loop. */
void http_loop_drain(struct io_loop *io);
void http_loop_close_all(struct io_loop *io);

#endif
