#include "http/forward/forward_lines.h"

/* {"index":N, with [ before it in the first line of an array. */
static void note_index(struct forward_lines *lines, struct slice line) {
    static const struct slice start = SLICE("{\"index\":");
    uint64_t index = 0;
    size_t digits = 0;
    if (lines->is_array && slice_starts(line, SLICE("[")))
        line = slice_from(line, 1);
    if (!slice_starts(line, start))
        return;
    line = slice_from(line, start.size);
    for (; digits < line.size && digits < 19; digits++) {
        char byte = line.data[digits];
        if (byte < '0' || byte > '9')
            break;
        index = index * 10 + (uint64_t)(byte - '0');
    }
    if (digits > 0)
        lines->next_index = index + 1;
}

size_t forward_lines_take(struct forward_lines *lines, struct slice text, bool must_go) {
    size_t taken = 0;
    while (taken < text.size) {
        struct slice left = slice_from(text, taken);
        const char *end = memchr(left.data, '\n', left.size);
        if (!end && !must_go)
            break;
        if (!lines->is_inside)
            note_index(lines, left);
        lines->is_inside = !end;
        taken += end ? (size_t)(end - left.data) + 1 : left.size;
    }
    lines->has_passed = lines->has_passed || taken > 0;
    return taken;
}
