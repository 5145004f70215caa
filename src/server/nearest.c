#include "server/nearest.h"

#include "base/slice.h"

#define SEPARATORS "_-"

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static struct slice bounded(const char *text) {
    return (struct slice){text, strnlen(text, NEAREST_BYTES_MAX)};
}

/* Single characters to add, drop or change to make one of the other: a row of the usual table at a
 * time. */
static size_t edits(struct slice a, struct slice b) {
    size_t row[NEAREST_BYTES_MAX + 1];
    for (size_t j = 0; j <= b.size; j++)
        row[j] = j;
    for (size_t i = 0; i < a.size; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b.size; j++) {
            size_t changed = diagonal + (a.data[i] != b.data[j]);
            diagonal = row[j + 1];
            row[j + 1] = least(changed, least(row[j], row[j + 1]) + 1);
        }
    }
    return row[b.size];
}

static bool next_word(struct slice *rest, struct slice *word) {
    size_t size = 0;
    while (rest->size > 0 && strchr(SEPARATORS, rest->data[0]))
        *rest = slice_from(*rest, 1);
    while (size < rest->size && !strchr(SEPARATORS, rest->data[size]))
        size++;
    *word = (struct slice){rest->data, size};
    *rest = slice_from(*rest, size);
    return size > 0;
}

/* The sum of the distances from each word of a to the closest word of b. */
static size_t words_apart(struct slice a, struct slice b) {
    struct slice word, other;
    size_t sum = 0;
    while (next_word(&a, &word)) {
        struct slice rest = b;
        size_t fewest = word.size;
        while (next_word(&rest, &other))
            fewest = least(fewest, edits(word, other));
        sum += fewest;
    }
    return sum;
}

/* How far a slip may lead: a third of what is the name's own, without a first word that both have.
 */
static size_t distance_max(struct slice written, struct slice tried) {
    struct slice rest = written, other_rest = tried, word, other;
    size_t size = least(written.size, tried.size);
    bool is_shared = next_word(&rest, &word) && next_word(&other_rest, &other) && rest.size > 0 &&
                     slice_equal(word, other);
    return (is_shared ? size - word.size : size) / 3;
}

void nearest_try(struct nearest *nearest, const char *name) {
    struct slice written = bounded(nearest->written);
    struct slice tried = bounded(name);
    size_t distance =
        least(edits(written, tried), words_apart(written, tried) + words_apart(tried, written));
    /* Only an equal name has distance 0. */
    if (distance == 0 && !slice_equal(written, tried))
        distance = 1;
    if (distance <= distance_max(written, tried) &&
        (!nearest->name || distance < nearest->distance)) {
        nearest->name = name;
        nearest->distance = distance;
    }
}
