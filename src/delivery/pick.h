/* A pick applies a selection to the frames of one step: leaves out what the reader did not ask for,
 * and of several frames of one document, if it conflates, all but the newest.
 * Thread: the loop's.
 * Memory: on the stack of its step.
 * Errors: STATUS_OUT_OF_MEMORY for the frame that says that a document was removed.
 * Invariant: a reader that was sent everything up to any frame of a step, and continues behind it,
 * gets every document that matches and loses every one that does not, as if each frame had been
 * sent alone. So a frame that is hidden by itself replaces none: the frame with which a document
 * left is sent under its own seq. */
#ifndef DELIVERY_PICK_H
#define DELIVERY_PICK_H

#include "delivery/page.h"
#include "delivery/selection.h"

/* Open addressing; a power of two, larger than the frames of a batch. */
#define PICK_SLOTS 2048
_Static_assert(PICK_SLOTS >= 2 * DELIVERY_FRAMES_MAX, "a search of the slots ends");

struct pick {
    const struct selection *selection;
    struct delivery_batch *batch; /* gets the frames, in the order of their seqs at the end */
    size_t bytes;                 /* of their payloads */
    uint8_t outcomes[DELIVERY_FRAMES_MAX]; /* enum where_outcome of each */
    uint16_t slots[PICK_SLOTS];            /* one more than the index of a frame; 0: free */
};

/* The batch is empty, and outlives the pick. */
void pick_begin(struct pick *pick, const struct selection *selection, struct delivery_batch *batch);
/* Whether that frame can be added, whatever becomes of it. */
bool pick_has_room(const struct pick *pick, const struct frame *frame);
/* Takes over the frame. */
void pick_add(struct pick *pick, struct frame *frame);
/* STATUS_OUT_OF_MEMORY: the batch is empty. */
MUST_CHECK enum status pick_end(struct pick *pick);

#endif
