#include "topic/topic_name.h"

#include "base/utf8.h"
#include "base/visible.h"

enum status topic_name_check(struct slice topic) {
    if (topic.size == 0 || topic.size > TOPIC_NAME_BYTES_MAX)
        return STATUS_INVALID_TOPIC;
    if (!utf8_valid(topic) || utf8_has_control(topic))
        return STATUS_INVALID_TOPIC;
    return STATUS_OK;
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
