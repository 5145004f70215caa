#include "topic/position.h"

#include <assert.h>

#include "base/decimal.h"

/* The largest integer that every JSON reader holds exactly. */
#define POSITION_SEQ_MAX ((UINT64_C(1) << 53) - 1)

enum status topic_epoch_read(struct slice text, struct topic_epoch *epoch) {
    struct topic_epoch read = {{0}};
    if (text.size == 0 || text.size > TOPIC_EPOCH_BYTES_MAX)
        return STATUS_INVALID_CURSOR;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
              c == '-' || c == '.'))
            return STATUS_INVALID_CURSOR;
        read.text[i] = c;
    }
    *epoch = read;
    return STATUS_OK;
}

bool topic_epoch_is_known(const struct topic_epoch *epoch) {
    return epoch->text[0] != '\0';
}

static struct slice without_zero(const struct topic_epoch *epoch) {
    struct slice text = slice_of(epoch->text);
    if (slice_ends(text, SLICE(".0")))
        text.size -= 2;
    return text;
}

bool topic_epoch_continues(const struct topic_epoch *given, const struct topic_epoch *topic) {
    return slice_equal(without_zero(given), without_zero(topic));
}

enum status position_read(struct slice text, struct position *position) {
    const char *at = text.size > 0 ? memchr(text.data, '@', text.size) : NULL;
    struct slice seq = {text.data, at ? (size_t)(at - text.data) : text.size};
    struct position read = {.seq = 0};
    if (!decimal_parse_u64(seq, &read.seq) || read.seq > POSITION_SEQ_MAX)
        return STATUS_INVALID_CURSOR;
    if (at && topic_epoch_read(slice_from(text, seq.size + 1), &read.epoch) != STATUS_OK)
        return STATUS_INVALID_CURSOR;
    *position = read;
    return STATUS_OK;
}

struct slice position_write(uint64_t seq, const char *epoch, char text[POSITION_BYTES_MAX]) {
    char *at = decimal_write_u64(text, seq);
    size_t epoch_size = strlen(epoch);
    assert(epoch_size <= TOPIC_EPOCH_BYTES_MAX);
    *at++ = '@';
    memcpy(at, epoch, epoch_size);
    return (struct slice){text, (size_t)(at - text) + epoch_size};
}

void position_put(struct object_writer *object, struct slice name, uint64_t seq,
                  const struct topic_epoch *epoch) {
    char text[POSITION_BYTES_MAX];
    if (epoch)
        object_text(object, name, position_write(seq, epoch->text, text));
    else
        object_number(object, name, seq);
}
