/* Writes the payload of sync:subscribe for a group of followers.
 * Belongs to the thread of the client's loop.
 * Appends to the caller's buffer; allocates nothing else.
 * Errors: the buffer's own; the caller discards the buffer then.
 * All followers of a group have the replay and the start of the first. */
#ifndef CLIENT_SUBSCRIBE_REQUEST_H
#define CLIENT_SUBSCRIBE_REQUEST_H

#include "client/follower.h"

MUST_CHECK enum status subscribe_request_write(struct buffer *out, struct follower **group,
                                               size_t count);

#endif
