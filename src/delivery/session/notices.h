/* Notices: the messages beside the frames, whose JSON bodies all dialects share.
 * Thread: the loop of the session.
 * Memory: appends to the caller's buffer, all or nothing.
 * Errors: the buffer's own.
 * Invariant: a notice has the same body in every dialect. */
#ifndef DELIVERY_SESSION_NOTICES_H
#define DELIVERY_SESSION_NOTICES_H

#include "delivery/session/session.h"

/* ---- whole notices, for the table of a dialect ---- */

/* The stale_cursor body of one subscriber. */
MUST_CHECK enum status notice_stale(struct subscriber *subscriber, struct buffer *out);
/* The part of the snapshot that is here. */
MUST_CHECK enum status notice_snapshot(struct subscriber *subscriber, struct buffer *out);
/* {"code","message","topic","stream_id"}: why a subscriber ends, under the name it was asked for.
 */
MUST_CHECK enum status notice_refused(struct subscriber *subscriber, enum status why,
                                      struct buffer *out);
/* {"code":"reauth_required",…}: how long the token still lasts. */
MUST_CHECK enum status notice_reauth(struct session *session, uint64_t left_ms, struct buffer *out);
/* {"code":"slow_consumer",…} with the topic that is furthest behind and where each may resume; the
 * last message. */
MUST_CHECK enum status notice_slow(struct session *session, struct buffer *out);
/* The server ends: notice_end with the time to come back. */
MUST_CHECK enum status notice_leaving(struct session *session, uint64_t retry_after_ms,
                                      struct buffer *out);

/* Why the session ends. */
struct notice_ending {
    enum status why;
    enum close_code code;
    uint64_t retry_after_ms; /* when to come back; 0: not said */
};

/* {"code","message","resume_after":[…]}; the last message. */
MUST_CHECK enum status notice_end(struct session *session, const struct notice_ending *ending,
                                  struct buffer *out);

/* ---- bodies, and pieces of them ---- */

/* [{"topic","watermark"}]: the heads of the session's topics. */
enum status notice_watermarks(const struct session *session, struct buffer *out);
/* [{"topic","epoch","after","through"}]: a range without frames for each topic, from the position
 * that the client was last sent. A client that misses a message before it sees a gap. */
enum status notice_covered(const struct session *session, struct buffer *out);
/* {"from_seq","truncated"}, or {"snapshot":true,…} for a subscriber that begins with a snapshot. */
enum status notice_bootstrap(const struct subscriber *subscriber, struct buffer *out);
/* "resume_after topic=seq, …" of all subscribers, for the reason of a close; empty if they do
 * not all fit. */
void notice_resume(const struct session *session, char text[124]);

#endif
