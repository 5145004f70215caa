/* Folded frames: frames of events that are delivered as one, and the list of them that a topic
 * keeps, so that readers of the same events share them.
 * Thread: any; a list is used under the lock of its topic.
 * Memory: a folded frame has its own memory, as any frame. A list has references, up to
 * HUB_FOLDED_FRAMES_MAX of them, and the caller bounds the bytes.
 * Errors: none; without memory frames stay as they are, and a list without them.
 * Invariant: a folded frame stands for every event from first_seq to its seq, all of one entity and
 * owner. It has the members of the last event, except its payload, and those that would not be true
 * of the joined payload: the hash, the key and the version. The frames of a list follow each other.
 */
#ifndef HUB_FOLDED_H
#define HUB_FOLDED_H

#include "hub/frame.h"

struct fold_limits {
    size_t frames_max;        /* frames that are made; at least 1 */
    size_t bytes_max;         /* for their payloads; the first frame is made at any size */
    size_t payload_bytes_max; /* for a joined payload */
};

/* Folds frames in the order of their seqs, in place. *made: how many there are afterwards, at the
 * beginning. Returns how many frames they were made of, whose references they have; the others are
 * where they were. */
size_t frames_fold(struct frame **frames, size_t count, const struct fold_limits *limits,
                   size_t *made);

struct folded_list {
    struct frame **frames;
    size_t count;
    size_t capacity;
    size_t bytes;
    bool is_used; /* since frames last found no place in it */
};

void folded_release(struct folded_list *list);
/* The index of the frame that begins there; count: none does. */
size_t folded_find(const struct folded_list *list, uint64_t first_seq);
/* Adds frames that follow each other, with references of its own, if they continue the list or come
 * before it, and folds the frames that meet there. Others begin it anew, unless readers still use
 * it. */
void folded_add(struct folded_list *list, struct frame *const *frames, size_t count,
                size_t bytes_max, size_t payload_bytes_max);

#endif
