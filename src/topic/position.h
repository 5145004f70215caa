/* Positions in a topic: a sequence, and the epoch of the topic if the client knows it.
 * Thread: any.
 * Errors: STATUS_INVALID_CURSOR for any other text.
 * Invariant: a position has the same text on every transport: "12" or "12@EPOCH". */
#ifndef TOPIC_POSITION_H
#define TOPIC_POSITION_H

#include <stdint.h>

#include "base/slice.h"
#include "spec/codes.h"
#include "wire/object_writer.h"

#define TOPIC_EPOCH_BYTES_MAX 63
/* The digits, the at sign, the epoch and a NUL. */
#define POSITION_BYTES_MAX (20 + 1 + TOPIC_EPOCH_BYTES_MAX + 1)

/* The lineage of a topic: letters, digits, '-' and '.'. Empty: not known. */
struct topic_epoch {
    char text[TOPIC_EPOCH_BYTES_MAX + 1];
};

struct position {
    uint64_t seq; /* exclusive */
    struct topic_epoch epoch;
};

MUST_CHECK enum status topic_epoch_read(struct slice text, struct topic_epoch *epoch);
bool topic_epoch_is_known(const struct topic_epoch *epoch);
/* Whether a position of the first epoch continues in a topic of the second. An epoch without a
 * number at its end, ".N", means the number 0. Positions that were handed out before topics had
 * numbers have such epochs. */
bool topic_epoch_continues(const struct topic_epoch *given, const struct topic_epoch *topic);

MUST_CHECK enum status position_read(struct slice text, struct position *position);
/* "12@EPOCH". The slice is part of text. */
struct slice position_write(uint64_t seq, const char *epoch, char text[POSITION_BYTES_MAX]);
/* A member: that text, or the number alone if epoch is NULL. */
void position_put(struct object_writer *object, struct slice name, uint64_t seq,
                  const struct topic_epoch *epoch);

#endif
