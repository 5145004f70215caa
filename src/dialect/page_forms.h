/* The forms of pages: how each dialect encodes frames for all its clients at once.
 * Belongs to a loop's thread; an encoder's user is the struct delivery_loop.
 * Memory: the forms are static; encoders append to the caller's buffer.
 * Errors: the buffer's own, and the compressor's.
 * A page in one form is the same bytes for every client. */
#ifndef DIALECT_PAGE_FORMS_H
#define DIALECT_PAGE_FORMS_H

#include "delivery/page.h"

/* Event streams; is_chunked: as chunks of HTTP/1.1. */
const struct page_form *sse_form(enum frame_form form, bool is_chunked);
const struct page_form *log_sse_form(bool is_chunked);
/* WebSockets; compress: for clients that agreed on it. */
const struct page_form *topic_ws_form(enum frame_form form, bool compress);
const struct page_form *audit_ws_form(bool compress);

#endif
