/* The state of a relay in the store: the position of each topic, the documents that the target
 * refuses, and since when the target fails.
 * Thread: the relay's; `khala doctor` reads it too.
 * Memory: a table of RELAY_HELD_MAX documents, which relay_state_release frees.
 * Errors: without a state that can be read, the relay begins with all documents.
 * Invariant: the state is one property of the store, so a position never passes a document that was
 * neither accepted nor is held. Earlier versions kept the state in a file of the data folder, which
 * is read once and removed when the store has the state. */
#ifndef DELIVERY_RELAY_RELAY_POSITION_H
#define DELIVERY_RELAY_RELAY_POSITION_H

#include "authority/writer.h"
#include "spec/metrics.h"
#include "store/store.h"
#include "topic/position.h"
#include "topic/topic_table.h"

#define RELAY_ERROR_BYTES_MAX 200
/* The prefix of a document key, and the longest id. */
#define RELAY_KEY_BYTES_MAX 319

/* A document that waits because the target refused it. Later frames of its entity wait with it: the
 * next attempt sends the newest document. */
struct relay_held {
    enum document_kind kind;
    char key[RELAY_KEY_BYTES_MAX + 1];
    uint64_t since_ms;
    /* Not 0: the target has what the entity's frames up to here say, so they are not sent. */
    uint64_t settled_seq;
    /* Not stored. */
    bool is_suspect; /* no other document was taken since the target refused this one */
    uint64_t delay_ms;
    uint64_t retry_ns; /* monotonic: the next attempt */
};

struct relay_positions {
    bool is_known[DOCUMENT_KIND_COUNT];
    struct position at[DOCUMENT_KIND_COUNT];
};

struct relay_state {
    struct relay_positions positions;
    struct relay_held *held; /* the oldest first */
    size_t held_count;
    char refusal[RELAY_ERROR_BYTES_MAX]; /* the latest reason for which a document is held */
    uint64_t failing_since_ms;           /* 0: not failing */
    char error[RELAY_ERROR_BYTES_MAX];
};

/* How many documents wait, and the oldest of them. */
struct relay_waiting {
    size_t count;
    const struct relay_held *oldest; /* NULL: none waits */
};

/* Into a state that is new or released. */
void relay_state_load(struct relay_state *state, struct store_session *session, const char *folder,
                      enum label_sink sink);
/* On the writer's thread; the caller waits. Suspects are not part of it. */
MUST_CHECK enum status relay_state_save(const struct relay_state *state, struct writer *writer,
                                        const char *folder, enum label_sink sink);
void relay_state_release(struct relay_state *state);
struct relay_waiting relay_state_waiting(const struct relay_state *state);
/* NULL: the document has no entry. */
struct relay_held *relay_state_find(const struct relay_state *state, struct slice key);
/* NULL: there are too many, or no memory. */
struct relay_held *relay_state_add(struct relay_state *state, enum document_kind kind,
                                   struct slice key);
void relay_state_remove(struct relay_state *state, struct relay_held *held);

#endif
