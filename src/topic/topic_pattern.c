#include "topic/topic_pattern.h"

bool topic_pattern_match(const char *pattern, struct slice name, struct slice *middle) {
    /* Most rows of a table end here, without a search of the pattern. */
    if (name.size > 0 && *pattern != '*' && *pattern != *name.data)
        return false;
    const char *star = strchr(pattern, '*');
    struct slice prefix = slice_of(pattern);
    struct slice suffix = {"", 0};
    if (star) {
        prefix.size = (size_t)(star - pattern);
        suffix = slice_of(star + 1);
    }
    if (name.size < prefix.size + suffix.size || (!star && name.size != prefix.size))
        return false;
    /* An empty name may have no address; nothing of it may be compared. */
    if (name.size > 0 && !(slice_starts(name, prefix) && slice_ends(name, suffix)))
        return false;
    if (middle)
        *middle = name.size == 0 ? suffix
                                 : (struct slice){name.data + prefix.size,
                                                  name.size - prefix.size - suffix.size};
    return true;
}

size_t topic_pattern_size(const char *pattern, struct slice middle) {
    size_t size = strlen(pattern);
    return strchr(pattern, '*') ? size - 1 + middle.size : size;
}

void topic_pattern_fill(const char *pattern, struct slice middle, char *name) {
    const char *star = strchr(pattern, '*');
    size_t prefix_size = star ? (size_t)(star - pattern) : strlen(pattern);
    memcpy(name, pattern, prefix_size);
    if (!star)
        return;
    if (middle.size > 0)
        memcpy(name + prefix_size, middle.data, middle.size);
    memcpy(name + prefix_size + middle.size, star + 1, strlen(star + 1));
}
