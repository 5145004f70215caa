/* Of the frames of one document the newest that is not hidden takes the place of those before it.
 * So a document that came and went within the step is told as removed, although the reader may
 * never have had it. Leaving that out would be wrong for a reader that stopped in the middle of a
 * step and resumes there: the removal before its position may have been replaced by frames behind
 * it. */
#include "delivery/pick.h"

#include <assert.h>
#include <stdlib.h>

#include "base/siphash.h"

void pick_begin(struct pick *pick, const struct selection *selection,
                struct delivery_batch *batch) {
    assert(batch->count == 0 && batch->count_max <= DELIVERY_FRAMES_MAX);
    pick->selection = selection;
    pick->batch = batch;
    pick->bytes = 0;
    /* The other arrays are read only where a frame is. */
    if (selection->conflate_ms > 0)
        memset(pick->slots, 0, sizeof(pick->slots));
}

bool pick_has_room(const struct pick *pick, const struct frame *frame) {
    const struct delivery_batch *batch = pick->batch;
    return batch->count == 0 || (batch->count < batch->count_max &&
                                 pick->bytes + frame->content.payload.size <= batch->bytes_max);
}

/* The slot of the document: that of its frame, or a free one. */
static uint16_t *slot_of(struct pick *pick, struct slice document_key) {
    size_t at = siphash(siphash_process_key(), document_key) % PICK_SLOTS;
    while (
        pick->slots[at] > 0 &&
        !slice_equal(pick->batch->frames[pick->slots[at] - 1]->content.document_key, document_key))
        at = (at + 1) % PICK_SLOTS;
    return &pick->slots[at];
}

void pick_add(struct pick *pick, struct frame *frame) {
    const struct selection *selection = pick->selection;
    struct delivery_batch *batch = pick->batch;
    enum where_outcome outcome = WHERE_WHOLE;
    if (selection->has_where)
        outcome = where_judge(&selection->where, frame->content.fields);
    if (outcome == WHERE_HIDDEN) {
        frame_unref(frame);
        return;
    }
    uint16_t *slot = selection->conflate_ms > 0 ? slot_of(pick, frame->content.document_key) : NULL;
    size_t index = slot && *slot > 0 ? *slot - 1u : batch->count;
    if (index == batch->count) {
        assert(batch->count < batch->count_max);
        batch->count++;
    } else {
        pick->bytes -= batch->frames[index]->content.payload.size;
        frame_unref(batch->frames[index]);
    }
    if (slot)
        *slot = (uint16_t)(index + 1);
    batch->frames[index] = frame;
    pick->outcomes[index] = (uint8_t)outcome;
    pick->bytes += frame->content.payload.size;
}

static int compare_seqs(const void *a, const void *b) {
    const struct frame *const *first = a;
    const struct frame *const *second = b;
    uint64_t first_seq = (*first)->content.seq, second_seq = (*second)->content.seq;
    return first_seq < second_seq ? -1 : first_seq > second_seq;
}

enum status pick_end(struct pick *pick) {
    struct delivery_batch *batch = pick->batch;
    enum status status = STATUS_OK;
    size_t kept = 0;
    for (size_t i = 0; i < batch->count; i++) {
        struct frame *frame = batch->frames[i];
        if (pick->outcomes[i] == WHERE_REMOVED) {
            frame = frame_removed(batch->frames[i]);
            frame_unref(batch->frames[i]);
        }
        if (frame)
            batch->frames[kept++] = frame;
        else
            status = STATUS_OUT_OF_MEMORY;
    }
    batch->count = kept;
    if (pick->selection->conflate_ms > 0)
        qsort(batch->frames, kept, sizeof(struct frame *), compare_seqs);
    if (status != STATUS_OK)
        delivery_batch_release(batch);
    return status;
}
