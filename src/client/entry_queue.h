/* The queue of what an application applies: frames, resets and moves of the position, in order.
 * Belongs to the thread of the client's loop.
 * Owns its entries and copies of their texts.
 * STATUS_OUT_OF_MEMORY: the queue is unchanged.
 * Two moves without a frame between them are one. */
#ifndef CLIENT_ENTRY_QUEUE_H
#define CLIENT_ENTRY_QUEUE_H

#include "base/list.h"
#include "topic/position.h"

enum entry_kind { ENTRY_FRAME, ENTRY_RESET, ENTRY_MOVE };

#define ENTRY_REASON_BYTES_MAX 64

struct entry {
    struct list_node node;
    enum entry_kind kind;
    struct position position; /* behind the entry */
    struct slice json;        /* the frame; the documents of a reset, if it has some */
    char reason[ENTRY_REASON_BYTES_MAX];
    bool is_truncated;
    size_t bytes;
};

struct entry_queue {
    struct list entries;
    size_t frames;
    size_t bytes;
};

void entry_queue_init(struct entry_queue *queue);
void entry_queue_clear(struct entry_queue *queue);
MUST_CHECK enum status entry_queue_push(struct entry_queue *queue, const struct entry *entry);
/* NULL: the queue is empty. */
const struct entry *entry_queue_first(const struct entry_queue *queue);
void entry_queue_drop_first(struct entry_queue *queue);

#endif
