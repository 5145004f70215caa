/* Event cursors: a position in the whole log, base64url(timestamp_ms ":" uuid), unpadded.
 * Any thread. Text goes to and comes from the caller's memory; allocates nothing.
 * A text that is not the one canonical text of its pair is STATUS_INVALID_CURSOR.
 * Order is the order of the pairs. The text's order is not, so texts are never compared. */
#ifndef TOPIC_EVENT_CURSOR_H
#define TOPIC_EVENT_CURSOR_H

#include "base/base64url.h"
#include "base/uuid7.h"

/* What every JSON reader holds exactly. */
#define EVENT_CURSOR_TIMESTAMP_MS_MAX ((UINT64_C(1) << 53) - 1)
/* 16 digits, the colon and the id. */
#define EVENT_CURSOR_DECODED_SIZE_MAX (16 + 1 + UUID_TEXT_SIZE)
#define EVENT_CURSOR_SIZE_MAX         BASE64URL_SIZE(EVENT_CURSOR_DECODED_SIZE_MAX)

struct event_cursor {
    uint64_t timestamp_ms;
    struct uuid uuid;
};

/* The cursor of an id the server minted. Its timestamp is the id's own, not the clock's: the
 * clock may step back, and then the pairs would not rise with the ids. */
struct event_cursor event_cursor_of(const struct uuid *uuid);
/* Below, at or above zero. */
int event_cursor_compare(const struct event_cursor *a, const struct event_cursor *b);

/* Writes at most EVENT_CURSOR_SIZE_MAX characters, no NUL, and returns how many. */
size_t event_cursor_encode(const struct event_cursor *cursor, char *text);
/* reason (may be NULL) becomes a static sentence for people where the text is refused. */
MUST_CHECK enum status event_cursor_decode(struct slice text, struct event_cursor *cursor,
                                           const char **reason);
/* Also takes the standard base64 of older clients, padded or not. */
MUST_CHECK enum status event_cursor_decode_legacy(struct slice text, struct event_cursor *cursor,
                                                  const char **reason);

#endif
