/* Any bytes as a cursor, strict and legacy; and as the pair inside one, so that the fuzzer
 * reaches past the base64. What decodes encodes to the same text; nothing else decodes. */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"
#include "topic/event_cursor.h"

static bool check_strict(struct slice text) {
    struct event_cursor cursor;
    const char *reason = NULL;
    char again[EVENT_CURSOR_SIZE_MAX];
    if (event_cursor_decode(text, &cursor, &reason) != STATUS_OK) {
        require(reason != NULL);
        return false;
    }
    require(reason == NULL);
    require(cursor.timestamp_ms <= EVENT_CURSOR_TIMESTAMP_MS_MAX && uuid7_valid(&cursor.uuid));
    require(event_cursor_encode(&cursor, again) == text.size);
    require(memcmp(again, text.data, text.size) == 0);
    require(event_cursor_compare(&cursor, &cursor) == 0);
    return true;
}

/* What is taken as a legacy cursor only has the least id, so that it lies before its millisecond.
 */
static void check_legacy(struct slice text, bool strict_takes_it) {
    struct event_cursor cursor;
    struct event_cursor strict;
    bool taken = event_cursor_read(text, true, &cursor, NULL) == STATUS_OK;
    require(taken || !strict_takes_it);
    require((event_cursor_read(text, false, &strict, NULL) == STATUS_OK) == strict_takes_it);
    if (!taken)
        return;
    const struct uuid least = uuid7_first(0);
    require(cursor.timestamp_ms <= EVENT_CURSOR_TIMESTAMP_MS_MAX);
    if (strict_takes_it)
        require(event_cursor_compare(&cursor, &strict) == 0);
    else
        require(uuid_compare(&cursor.uuid, &least) == 0 &&
                text.size <= EVENT_CURSOR_LEGACY_SIZE_MAX);
}

/* An independent reading of the pair: scan it as C does, print it again, compare. */
static bool pair_is_canonical(struct slice pair) {
    char copy[EVENT_CURSOR_DECODED_SIZE_MAX + 1] = {0};
    char again[sizeof(copy) + 32];
    unsigned long long timestamp_ms = 0;
    int colon = 0;
    if (pair.size == 0 || pair.size > EVENT_CURSOR_DECODED_SIZE_MAX)
        return false;
    memcpy(copy, pair.data, pair.size);
    if (sscanf(copy, "%llu%n", &timestamp_ms, &colon) != 1 || copy[colon] != ':')
        return false;
    snprintf(again, sizeof(again), "%llu%s", timestamp_ms, copy + colon);
    struct uuid uuid;
    return timestamp_ms <= EVENT_CURSOR_TIMESTAMP_MS_MAX && strlen(again) == pair.size &&
           memcmp(again, pair.data, pair.size) == 0 &&
           uuid7_parse(slice_of(copy + colon + 1), &uuid) == STATUS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct slice input = {(const char *)data, size};
    check_legacy(input, check_strict(input));
    char *text = malloc(BASE64URL_SIZE(size) + 1);
    require(text != NULL);
    struct slice wrapped = {text, base64url_encode(data, size, text)};
    bool taken = check_strict(wrapped);
    require(taken == pair_is_canonical(input));
    check_legacy(wrapped, taken);
    free(text);
    return 0;
}
