#include "topic/topic_name.h"

#include <stdint.h>

#include "base/utf8.h"
#include "topic/topic_pattern.h"

/* For valid UTF-8 only: there 0xc2 leads U+0080 to U+00BF, of which C1 is the first half. */
static bool has_control_character(struct slice text) {
    for (size_t i = 0; i < text.size; i++) {
        uint8_t byte = (uint8_t)text.data[i];
        if (byte < 0x20 || byte == 0x7f)
            return true;
        if (byte == 0xc2 && (uint8_t)text.data[i + 1] < 0xa0)
            return true;
    }
    return false;
}

enum status topic_name_check(struct slice topic) {
    if (topic.size == 0 || topic.size > TOPIC_NAME_BYTES_MAX)
        return STATUS_INVALID_TOPIC;
    if (!utf8_valid(topic) || has_control_character(topic))
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
