/* Two lines: a granted name and a topic. A '*' never reads another's run, no grant opens what is
 * shared, and the answer without a grant is never wider than with the exact one. The same bytes as
 * a list of origins and an origin. */
#include "auth/grant.h"
#include "auth/origin.h"
#include "fuzz.h"
#include "topic/stream_id.h"

/* The topic's own name or its stream id, and no pattern. */
static bool is_name_of(struct slice name, struct slice topic) {
    struct slice stream;
    struct arena arena;
    if (memchr(name.data, '*', name.size))
        return false;
    arena_init(&arena, 1 << 20);
    bool is_stream = topic_stream(&arena, topic, &stream) == STATUS_OK && slice_equal(name, stream);
    arena_release(&arena);
    return is_stream || slice_equal(name, topic);
}

static void check_grant(struct slice name, struct slice topic) {
    static const struct owner other = {.user_id = {"v", 1}};
    struct slice id;
    const struct principal with = {
        .identity.user_id = SLICE("u"), .scopes = (1u << SCOPE_COUNT) - 1, .topics = {&name, 1}};
    const struct principal streams = {
        .identity.user_id = SLICE("u"), .scopes = (1u << SCOPE_COUNT) - 1, .streams = {&name, 1}};
    const struct principal without = {.identity.user_id = SLICE("u"), .scopes = with.scopes};
    struct grant one = grant_check(&with, topic, &other);
    struct grant two = grant_check(&streams, topic, &other);
    struct grant none = grant_check(&without, topic, &other);
    bool is_entity = grant_entity_of(topic, &id) != ENTITY_NONE;
    require((one.status == STATUS_OK) == (one.view != GRANT_VIEW_NONE));
    require((two.status == STATUS_OK) == (two.view != GRANT_VIEW_NONE));
    if (one.view == GRANT_VIEW_ALL)
        require(is_name_of(name, topic));
    if (two.view == GRANT_VIEW_ALL)
        require(slice_starts(name, SLICE("runtime.")) && memchr(topic.data, ':', topic.size));
    if (is_entity) {
        require(id.size > 0 && id.size < topic.size);
        require(none.status != STATUS_OK);
        require(one.status != STATUS_OK || is_name_of(name, topic));
    }
}

static void check_origin(struct slice list, struct slice origin) {
    bool allowed = origin_is_allowed(list, origin);
    if (allowed)
        require(list.size > 0 && origin.size > 0);
    if (allowed && origin_list_check(origin) && !slice_equal(origin, SLICE("*")))
        require(origin_is_allowed(origin, origin));
    require(!origin_is_allowed((struct slice){"", 0}, origin));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *line = size > 0 ? memchr(data, '\n', size) : NULL;
    if (!line)
        return 0;
    struct slice first = {(const char *)data, (size_t)(line - (const char *)data)};
    struct slice second = {line + 1, size - first.size - 1};
    if (first.size == 0)
        return 0;
    check_grant(first, second);
    check_origin(first, second);
    return 0;
}
