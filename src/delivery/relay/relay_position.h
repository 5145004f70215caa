/* The file of a relay: the position of each topic, and since when the target fails.
 * Belongs to the relay's thread; `khala doctor` reads it too.
 * Memory: fixed.
 * Errors: a missing or damaged file has no positions; the relay then begins with all documents.
 * A file is replaced as a whole. */
#ifndef DELIVERY_RELAY_RELAY_POSITION_H
#define DELIVERY_RELAY_RELAY_POSITION_H

#include "spec/metrics.h"
#include "topic/position.h"
#include "topic/topic_table.h"

#define RELAY_ERROR_BYTES_MAX 200

struct relay_state {
    bool has_position[DOCUMENT_KIND_COUNT];
    struct position positions[DOCUMENT_KIND_COUNT];
    uint64_t failing_since_ms; /* 0: not failing */
    char error[RELAY_ERROR_BYTES_MAX];
};

void relay_state_load(struct relay_state *state, const char *folder, enum label_sink sink);
MUST_CHECK enum status relay_state_save(const struct relay_state *state, const char *folder,
                                        enum label_sink sink);

#endif
