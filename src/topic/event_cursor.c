#include "topic/event_cursor.h"

#include <assert.h>

#include "base/decimal.h"

struct event_cursor event_cursor_of(const struct uuid *uuid) {
    assert(uuid7_valid(uuid));
    return (struct event_cursor){uuid7_timestamp_ms(uuid), *uuid};
}

int event_cursor_compare(const struct event_cursor *a, const struct event_cursor *b) {
    if (a->timestamp_ms != b->timestamp_ms)
        return a->timestamp_ms < b->timestamp_ms ? -1 : 1;
    return uuid_compare(&a->uuid, &b->uuid);
}

bool event_cursor_is_ahead(const struct event_cursor *cursor, const struct uuid *last) {
    static const struct uuid none;
    if (uuid_compare(last, &none) == 0)
        return cursor->timestamp_ms > 0;
    struct event_cursor end = event_cursor_of(last);
    return event_cursor_compare(cursor, &end) > 0;
}

size_t event_cursor_encode(const struct event_cursor *cursor, char *text) {
    assert(cursor->timestamp_ms <= EVENT_CURSOR_TIMESTAMP_MS_MAX);
    assert(uuid7_valid(&cursor->uuid));
    char decoded[EVENT_CURSOR_DECODED_SIZE_MAX];
    char *at = decimal_write_u64(decoded, cursor->timestamp_ms);
    *at++ = ':';
    uuid_format(&cursor->uuid, at);
    at += UUID_TEXT_SIZE;
    return base64url_encode(decoded, (size_t)(at - decoded), text);
}

/* NULL for a timestamp, else the reason why the text is none. */
static const char *parse_timestamp(struct slice text, uint64_t *timestamp_ms) {
    if (text.size == 0)
        return "the timestamp is missing";
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] < '0' || text.data[i] > '9')
            return "the timestamp is not made of digits";
    if (text.data[0] == '0' && text.size > 1)
        return "the timestamp has a leading zero";
    uint64_t number = 0;
    if (!decimal_parse_u64(text, &number) || number > EVENT_CURSOR_TIMESTAMP_MS_MAX)
        return "the timestamp is above 9007199254740991";
    *timestamp_ms = number;
    return NULL;
}

/* NULL for a cursor, else the reason why the text is none. */
static const char *parse_cursor(struct slice text, struct event_cursor *cursor) {
    char decoded[EVENT_CURSOR_DECODED_SIZE_MAX];
    size_t size = 0;
    if (text.size == 0)
        return "the cursor is empty";
    enum status status = base64url_decode(text, decoded, sizeof(decoded), &size);
    if (status == STATUS_PAYLOAD_TOO_LARGE)
        return "the cursor is too long";
    if (status != STATUS_OK)
        return "the cursor is not canonical unpadded base64url";
    const char *colon = memchr(decoded, ':', size);
    if (!colon)
        return "there is no colon between timestamp and id";
    struct slice digits = {decoded, (size_t)(colon - decoded)};
    const char *fault = parse_timestamp(digits, &cursor->timestamp_ms);
    if (fault)
        return fault;
    const struct slice id = slice_from((struct slice){decoded, size}, digits.size + 1);
    return uuid7_parse(id, &cursor->uuid) == STATUS_OK ? NULL : "the id is not a lower-case UUIDv7";
}

enum status event_cursor_decode(struct slice text, struct event_cursor *cursor,
                                const char **reason) {
    struct event_cursor decoded;
    const char *fault = parse_cursor(text, &decoded);
    if (fault) {
        if (reason)
            *reason = fault;
        return STATUS_INVALID_CURSOR;
    }
    *cursor = decoded;
    return STATUS_OK;
}

/* Base64 of either alphabet, padded or not, of a timestamp and any id. */
static bool parse_legacy(struct slice text, struct event_cursor *cursor) {
    char normal[EVENT_CURSOR_LEGACY_SIZE_MAX];
    char decoded[EVENT_CURSOR_LEGACY_DECODED_SIZE_MAX];
    size_t size = 0;
    if (text.size == 0 || text.size > sizeof(normal))
        return false;
    if (text.size % 4 == 0)
        for (int padding = 0; padding < 2 && slice_ends(text, SLICE("=")); padding++)
            text.size--;
    for (size_t i = 0; i < text.size; i++)
        normal[i] = text.data[i] == '+' ? '-' : text.data[i] == '/' ? '_' : text.data[i];
    if (base64url_decode((struct slice){normal, text.size}, decoded, sizeof(decoded), &size) !=
        STATUS_OK)
        return false;
    const char *colon = memchr(decoded, ':', size);
    if (!colon)
        return false;
    struct slice digits = {decoded, (size_t)(colon - decoded)};
    size_t id_bytes = size - digits.size - 1;
    if (id_bytes == 0 || id_bytes > EVENT_CURSOR_LEGACY_ID_BYTES_MAX)
        return false;
    cursor->uuid = uuid7_first(0);
    return parse_timestamp(digits, &cursor->timestamp_ms) == NULL;
}

enum status event_cursor_read(struct slice text, bool takes_legacy, struct event_cursor *cursor,
                              const char **reason) {
    struct event_cursor legacy;
    enum status status = event_cursor_decode(text, cursor, reason);
    if (status == STATUS_OK || !takes_legacy || !parse_legacy(text, &legacy))
        return status;
    *cursor = legacy;
    return STATUS_OK;
}
