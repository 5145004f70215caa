/* Notices: JSON bodies that all dialects share.
 * Belongs to the session's loop. Appends to the caller's buffer, all or nothing.
 * Errors: the buffer's own.
 * A notice has the same body in every dialect. */
#ifndef DELIVERY_SESSION_NOTICES_H
#define DELIVERY_SESSION_NOTICES_H

#include "delivery/session/session.h"

/* {"code":"slow_consumer",…} with the topic that is furthest behind and where each may resume. */
MUST_CHECK enum status notice_slow(const struct session *session, struct buffer *out);
/* [{"topic","watermark"}]: the heads of the session's topics. */
MUST_CHECK enum status notice_watermarks(const struct session *session, struct buffer *out);
/* [{"topic","epoch","after","through"}]: a range without frames for each topic, from the position
 * that the client was last sent. A client that misses a message before it sees a gap. */
MUST_CHECK enum status notice_covered(const struct session *session, struct buffer *out);
/* The same as notice_watermarks of the positions of the subscribers, behind which each may resume.
 */
MUST_CHECK enum status notice_positions(const struct session *session, struct buffer *out);
/* The stale_cursor body of one subscriber. */
MUST_CHECK enum status notice_stale(const struct subscriber *subscriber, struct buffer *out);
/* {"code","message","topic","stream_id"}: why a subscriber ends, under the name it was asked for.
 */
MUST_CHECK enum status notice_refused(const struct subscriber *subscriber, enum status why,
                                      struct buffer *out);
/* {"from_seq","truncated"}, or {"snapshot":true,…} for a subscriber that begins with a snapshot. */
MUST_CHECK enum status notice_bootstrap(const struct subscriber *subscriber, struct buffer *out);
/* {"code","message","resume_after":[…]}: why the session ends. retry_after_ms: when to come back;
 * 0: not said. */
MUST_CHECK enum status notice_end(const struct session *session, enum status why,
                                  uint64_t retry_after_ms, struct buffer *out);
/* {"code":"reauth_required",…}: how long the token still lasts. */
MUST_CHECK enum status notice_reauth(uint64_t left_ms, struct buffer *out);
/* "resume_after topic=seq, …" of all subscribers, for the reason of a close; empty if they do
 * not all fit. */
void notice_resume(const struct session *session, char text[124]);

#endif
