#include "topic/topic_name.h"

#include "base/utf8.h"
#include "topic/topic_pattern.h"

enum status topic_name_check(struct slice topic) {
    if (topic.size == 0 || topic.size > TOPIC_NAME_BYTES_MAX)
        return STATUS_INVALID_TOPIC;
    if (!utf8_valid(topic) || utf8_has_control(topic))
        return STATUS_INVALID_TOPIC;
    return STATUS_OK;
}

bool topic_is_projection_owned(struct slice topic) {
    static const char *const owned[] = {"run:*", "worker:*", "fleet:*", "runtime.*"};
    for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
        if (topic_pattern_match(owned[i], topic, NULL))
            return true;
    return false;
}
