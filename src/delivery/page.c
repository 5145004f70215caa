#include "delivery/page.h"

#include <assert.h>
#include <stdlib.h>

#include "delivery/selection.h"

/* ---- pushes ---- */

enum status push_make(struct push **push, struct slice bytes) {
    struct push *made = malloc(sizeof(*made) + bytes.size);
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->references = 1;
    made->size = bytes.size;
    if (bytes.size > 0)
        memcpy(made->data, bytes.data, bytes.size);
    *push = made;
    return STATUS_OK;
}

enum status push_begin(struct buffer *out, size_t bytes, size_t bytes_max) {
    size_t capacity = sizeof(struct push) + (bytes < bytes_max ? bytes : bytes_max);
    char *memory = malloc(capacity);
    if (!memory)
        return STATUS_OUT_OF_MEMORY;
    buffer_init(out, sizeof(struct push) + bytes_max);
    out->data = memory;
    out->size = sizeof(struct push);
    out->capacity = capacity;
    return STATUS_OK;
}

struct push *push_end(struct buffer *out) {
    /* If the smaller block cannot be had, the larger one serves. */
    char *memory = realloc(out->data, out->size);
    struct push *made = (struct push *)(memory ? memory : out->data);
    made->references = 1;
    made->size = out->size - sizeof(*made);
    buffer_init(out, out->size_max);
    return made;
}

struct push *push_ref(struct push *push) {
    assert(push->references > 0);
    push->references++;
    return push;
}

void push_unref(struct push *push) {
    assert(push->references > 0);
    if (--push->references == 0)
        free(push);
}

/* ---- pages ---- */

/* What a dialect adds to the text of the frames: members, headers and numbers. More than this costs
 * a copy. */
#define PAGE_OWN_BYTES       1024
#define PAGE_FRAME_OWN_BYTES 160

enum status page_make(struct page **page, struct slice topic, uint64_t head_seq,
                      struct delivery_batch *batch) {
    struct page *made = malloc(sizeof(*made) + topic.size);
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    assert(batch->count <= batch->through_seq - batch->after_seq);
    memcpy(made->topic_text, topic.data, topic.size);
    made->topic = (struct slice){made->topic_text, topic.size};
    made->head_seq = head_seq;
    made->epoch = (struct topic_epoch){{0}};
    size_t events = delivery_batch_events(batch);
    made->is_whole = batch->selection ? batch->is_selected_whole
                                      : events == batch->through_seq - batch->after_seq;
    /* Frames of which none was folded are the same for both, and so is a single one. */
    made->readers = batch->is_folded ? PAGE_READER_FOLDING : PAGE_READER_PLAIN;
    if (events == batch->count && (batch->is_folded || batch->count <= 1))
        made->readers = PAGE_READER_PLAIN | PAGE_READER_FOLDING;
    made->batch.count_max = batch->count_max;
    made->batch.bytes_max = batch->bytes_max;
    made->batch.after_seq = batch->after_seq;
    made->batch.through_seq = batch->through_seq;
    made->batch.through_cursor = batch->through_cursor;
    made->batch.is_folded = batch->is_folded;
    made->batch.readable = batch->readable;
    made->batch.selection = selection_ref(batch->selection);
    made->batch.count = batch->count;
    memcpy(made->batch.frames, batch->frames, batch->count * sizeof(struct frame *));
    memset(made->encodings, 0, sizeof(made->encodings));
    made->feed_node = (struct hlist_node){0};
    made->age_node = (struct list_node){0};
    batch->count = 0;
    *page = made;
    return STATUS_OK;
}

void page_free(struct page *page) {
    delivery_batch_release(&page->batch);
    selection_unref(page->batch.selection);
    for (size_t i = 0; i < PAGE_FORMS_MAX && page->encodings[i].form; i++)
        push_unref(page->encodings[i].push);
    free(page);
}

bool page_suits(const struct page *page, const struct principal *principal, enum grant_view view) {
    const struct delivery_batch *batch = &page->batch;
    if (!page->is_whole)
        return false;
    for (size_t i = 0; view != GRANT_VIEW_ALL && i < batch->count; i++)
        if (!grant_may_read(principal, view, &batch->frames[i]->content.owner))
            return false;
    return true;
}

enum status page_push(struct page *page, const struct page_form *form, void *user,
                      struct push **push) {
    size_t at = 0;
    while (at < PAGE_FORMS_MAX && page->encodings[at].form && page->encodings[at].form != form)
        at++;
    if (at < PAGE_FORMS_MAX && page->encodings[at].form) {
        *push = push_ref(page->encodings[at].push);
        return STATUS_OK;
    }
    /* The text of the frames, with some bytes of a dialect for each of them and for the whole. */
    size_t bytes = PAGE_OWN_BYTES + page->batch.count * PAGE_FRAME_OWN_BYTES;
    for (size_t i = 0; i < page->batch.count; i++)
        bytes += page->batch.frames[i]->forms[FRAME_FULL].size;
    struct buffer out;
    enum status status = push_begin(&out, bytes, form->bytes_max);
    if (status != STATUS_OK)
        return status;
    status = form->encode(page, form, user, &out);
    if (status != STATUS_OK) {
        buffer_release(&out);
        return status;
    }
    *push = push_end(&out);
    if (at < PAGE_FORMS_MAX)
        page->encodings[at] = (struct page_encoding){form, push_ref(*push)};
    return STATUS_OK;
}

size_t delivery_batch_events(const struct delivery_batch *batch) {
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++)
        count += (size_t)(batch->frames[i]->content.seq - batch->frames[i]->first_seq) + 1;
    return count;
}

void delivery_batch_release(struct delivery_batch *batch) {
    for (size_t i = 0; i < batch->count; i++)
        frame_unref(batch->frames[i]);
    batch->count = 0;
}
