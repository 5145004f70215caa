/* Any bytes as the name of a new entity. A name that may be created is displayed as it is, holds no
 * wildcard, is no step of a path, and stays itself in a topic name and as an exact grant. */
#include "auth/grant.h"
#include "base/utf8.h"
#include "base/visible.h"
#include "fuzz.h"
#include "topic/topic_name.h"

static void check_display(struct slice name) {
    for (struct slice left = name; left.size > 0;) {
        struct visible shown = visible_next(left, VISIBLE_TEXT);
        bool is_quoted = left.data[0] == '"' || left.data[0] == '\\';
        require(is_quoted ||
                (shown.size == shown.consumed && memcmp(shown.bytes, left.data, shown.size) == 0));
        left = slice_from(left, shown.consumed);
    }
}

/* The topic of a run with this name: a grant of that topic opens it, and no pattern does. */
static void check_grant(struct slice id) {
    static const struct owner other = {.user_id = {"v", 1}};
    const struct slice pattern = SLICE("run:*:events");
    struct arena arena;
    struct slice topic;
    arena_init(&arena, 1 << 20);
    require(topic_name_make(&arena, TOPIC_RUN_EVENTS, id, &topic) == STATUS_OK);
    struct principal principal = {
        .identity.user_id = SLICE("u"), .scopes = SCOPE_RUN_EVENTS, .topics = {&topic, 1}};
    bool is_exact = !memchr(id.data, '*', id.size) && topic.size <= TOPIC_NAME_BYTES_MAX;
    if (topic_name_check(topic) == STATUS_OK)
        require((grant_check(&principal, topic, &other).status == STATUS_OK) == is_exact);
    principal.topics.names = &pattern;
    require(grant_check(&principal, topic, &other).status != STATUS_OK);
    arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct slice name = {(const char *)data, size};
    if (size == 0 || size > TOPIC_NAME_BYTES_MAX || !utf8_valid(name))
        return 0;
    check_grant(name);
    if (entity_name_problem(name))
        return 0;
    require(!utf8_has_control(name) && !utf8_has_outer_space(name));
    require(!memchr(data, '*', size) && !(data[0] == '.' && size == 1));
    require(!slice_equal(name, SLICE("..")));
    check_display(name);
    return 0;
}
