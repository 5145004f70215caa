#include "topic/topic_pattern.h"

bool topic_pattern_match(const char *pattern, struct slice name, struct slice *middle) {
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
