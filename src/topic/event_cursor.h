/* Event cursors: a position in the whole log, base64url(timestamp_ms ":" uuid) without padding.
 * Cursors of version 1 of the protocol, base64(timestamp_ms ":" event_id) with any id, are read
 * only if the caller asks for them.
 * Thread: any.
 * Memory: the caller's.
 * Errors: STATUS_INVALID_CURSOR for a text that is not the canonical text of its pair.
 * Invariant: cursors are ordered as pairs. Texts have another order and are never compared. */
#ifndef TOPIC_EVENT_CURSOR_H
#define TOPIC_EVENT_CURSOR_H

#include "base/base64url.h"
#include "base/uuid7.h"

/* The largest integer that every JSON reader holds exactly. */
#define EVENT_CURSOR_TIMESTAMP_MS_MAX ((UINT64_C(1) << 53) - 1)
/* 16 digits, the colon and the id. */
#define EVENT_CURSOR_DECODED_SIZE_MAX (16 + 1 + UUID_TEXT_SIZE)
#define EVENT_CURSOR_SIZE_MAX         BASE64URL_SIZE(EVENT_CURSOR_DECODED_SIZE_MAX)
/* The same of a legacy cursor, in padded base64. */
#define EVENT_CURSOR_LEGACY_ID_BYTES_MAX     256
#define EVENT_CURSOR_LEGACY_DECODED_SIZE_MAX (16 + 1 + EVENT_CURSOR_LEGACY_ID_BYTES_MAX)
#define EVENT_CURSOR_LEGACY_SIZE_MAX         ((EVENT_CURSOR_LEGACY_DECODED_SIZE_MAX + 2) / 3 * 4)

struct event_cursor {
    uint64_t timestamp_ms;
    struct uuid uuid;
};

/* The cursor of an id that the server made. Its timestamp is the id's: the clock may step
 * back, and pairs must rise with ids. */
struct event_cursor event_cursor_of(const struct uuid *uuid);
/* Negative, zero or positive, as memcmp. */
int event_cursor_compare(const struct event_cursor *a, const struct event_cursor *b);

/* Whether it is later than the last event of a log, whose cursor is last; zero for an empty log. It
 * comes from another history then. */
bool event_cursor_is_ahead(const struct event_cursor *cursor, const struct uuid *last);

/* Writes at most EVENT_CURSOR_SIZE_MAX characters, no NUL, and returns how many. */
size_t event_cursor_encode(const struct event_cursor *cursor, char *text);
/* On a refusal, reason (may be NULL) becomes a static sentence. */
MUST_CHECK enum status event_cursor_decode(struct slice text, struct event_cursor *cursor,
                                           const char **reason);
/* The cursor that a client gives, wherever it gives one. With takes_legacy a text that is no
 * cursor, but base64 of either alphabet, padded or not, of a timestamp, a colon and any id, is the
 * position just before the first event of that millisecond: events may repeat, and none is left
 * out. Such a text has at most EVENT_CURSOR_LEGACY_SIZE_MAX characters. */
MUST_CHECK enum status event_cursor_read(struct slice text, bool takes_legacy,
                                         struct event_cursor *cursor, const char **reason);

#endif
