/* The state of a relay in the store: the position of each topic, and since when the target fails.
 * The relay's thread; `khala doctor` reads it too.
 * Memory: fixed.
 * Errors: without a state that can be read, the relay begins with all documents.
 * The state is one property of the store. Earlier versions kept it in a file of the data folder,
 * which is read once and removed when the store has the state. */
#ifndef DELIVERY_RELAY_RELAY_POSITION_H
#define DELIVERY_RELAY_RELAY_POSITION_H

#include "authority/writer.h"
#include "spec/metrics.h"
#include "store/store.h"
#include "topic/position.h"
#include "topic/topic_table.h"

#define RELAY_ERROR_BYTES_MAX 200

struct relay_state {
    bool has_position[DOCUMENT_KIND_COUNT];
    struct position positions[DOCUMENT_KIND_COUNT];
    uint64_t failing_since_ms; /* 0: not failing */
    char error[RELAY_ERROR_BYTES_MAX];
};

void relay_state_load(struct relay_state *state, struct store_session *session, const char *folder,
                      enum label_sink sink);
/* On the writer's thread; the caller waits. */
MUST_CHECK enum status relay_state_save(const struct relay_state *state, struct writer *writer,
                                        const char *folder, enum label_sink sink);

#endif
