#include "topic/topic_name.h"

#include <assert.h>

#include "base/utf8.h"
#include "base/visible.h"
#include "topic/topic_table.h"

enum status topic_name_check(struct slice topic) {
    if (topic.size == 0 || topic.size > TOPIC_NAME_BYTES_MAX)
        return STATUS_INVALID_TOPIC;
    if (!utf8_valid(topic) || utf8_has_control(topic))
        return STATUS_INVALID_TOPIC;
    return STATUS_OK;
}

bool topic_is_projection_owned(struct slice topic) {
    return topic_kind_of(topic, NULL) != TOPIC_APPLICATION;
}

struct slice topic_name(enum topic_kind kind) {
    const char *pattern = topic_row(kind)->pattern;
    assert(!strchr(pattern, '*'));
    return slice_of(pattern);
}

enum status topic_name_make(struct arena *arena, enum topic_kind kind, struct slice id,
                            struct slice *name) {
    const char *pattern = topic_row(kind)->pattern;
    size_t size = topic_pattern_size(pattern, id);
    char *text = arena_alloc(arena, size);
    *name = (struct slice){text, text ? size : 0};
    if (!text)
        return STATUS_OUT_OF_MEMORY;
    topic_pattern_fill(pattern, id, text);
    return STATUS_OK;
}

enum status topic_name_of_entity(struct arena *arena, enum entity_kind kind, struct slice id,
                                 struct slice *name) {
    return topic_name_make(arena, entity_row(kind)->topic, id, name);
}

const char *entity_name_problem(struct slice name) {
    if (name.size == 0)
        return "The name of a run, worker, topic or owner must not be empty.";
    if (memchr(name.data, '*', name.size))
        return "The name of a run, worker, topic or owner must not contain '*', the wildcard of "
               "grants.";
    if (slice_equal(name, SLICE(".")) || slice_equal(name, SLICE("..")))
        return "The name of a run, worker, topic or owner must not be '.' or '..', which paths "
               "use.";
    if (utf8_has_control(name))
        return "The name of a run, worker, topic or owner must not contain control characters.";
    if (visible_has_deceptive(name))
        return "The name of a run, worker, topic or owner must not contain characters that "
               "reorder or hide text.";
    if (utf8_has_outer_space(name))
        return "The name of a run, worker, topic or owner must not begin or end with white space.";
    return NULL;
}
