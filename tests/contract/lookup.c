#include "lookup.h"

#include "test.h"

#define ARENA_BYTES_MAX 16777216

static enum status look_up(struct store_session *writer, struct store_event_lookup lookup,
                           uint64_t *log_id) {
    struct arena arena;
    struct store_prefetch prefetch = {.events = &lookup, .event_count = 1};
    arena_init(&arena, ARENA_BYTES_MAX);
    lookup.arena = &arena;
    assert_ok(store_prefetch(writer, &prefetch));
    if (lookup.status == STATUS_OK)
        *log_id = lookup.event.log_id;
    arena_release(&arena);
    return lookup.status;
}

enum status lookup_event_id(struct store_session *writer, const struct uuid *event_id,
                            uint64_t *log_id) {
    return look_up(writer,
                   (struct store_event_lookup){.by = STORE_EVENT_BY_ID, .event_id = *event_id},
                   log_id);
}

enum status lookup_key(struct store_session *writer, uint64_t entity_ref, struct slice key,
                       uint64_t *log_id) {
    return look_up(
        writer,
        (struct store_event_lookup){.by = STORE_EVENT_BY_KEY, .entity_ref = entity_ref, .key = key},
        log_id);
}
