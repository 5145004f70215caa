#include "delivery/page.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"

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
    made->batch.count_max = batch->count_max;
    made->batch.bytes_max = batch->bytes_max;
    made->batch.after_seq = batch->after_seq;
    made->batch.through_seq = batch->through_seq;
    made->batch.through_cursor = batch->through_cursor;
    made->batch.count = batch->count;
    memcpy(made->batch.frames, batch->frames, batch->count * sizeof(struct frame *));
    memset(made->pushes, 0, sizeof(made->pushes));
    made->feed_node = (struct hlist_node){0};
    made->age_node = (struct list_node){0};
    batch->count = 0;
    *page = made;
    return STATUS_OK;
}

void page_free(struct page *page) {
    delivery_batch_release(&page->batch);
    for (size_t i = 0; i < PAGE_FORMS_MAX; i++)
        if (page->pushes[i])
            push_unref(page->pushes[i]);
    free(page);
}

bool page_suits(const struct page *page, const struct principal *principal, enum grant_view view) {
    const struct delivery_batch *batch = &page->batch;
    if (batch->count != batch->through_seq - batch->after_seq)
        return false;
    for (size_t i = 0; view != GRANT_VIEW_ALL && i < batch->count; i++)
        if (!grant_may_read(principal, view, &batch->frames[i]->content.owner))
            return false;
    return true;
}

void page_tools_init(struct page_tools *tools, void *user) {
    tools->user = user;
    buffer_init(&tools->scratch, PAGE_SCRATCH_KEPT_BYTES);
}

void page_tools_release(struct page_tools *tools) {
    buffer_release(&tools->scratch);
}

static enum status encode(const struct page *page, const struct page_form *form,
                          struct page_tools *tools, struct push **push) {
    struct buffer *out = &tools->scratch;
    if (out->capacity > form->bytes_max)
        buffer_release(out);
    out->size_max = form->bytes_max;
    enum status status = form->encode(page, tools->user, out);
    if (status == STATUS_OK)
        status = push_make(push, buffer_slice(out));
    buffer_clear(out);
    if (out->capacity > PAGE_SCRATCH_KEPT_BYTES)
        buffer_release(out);
    return status;
}

enum status page_push(struct page *page, const struct page_form *form, struct page_tools *tools,
                      struct push **push) {
    assert(form->index < PAGE_FORMS_MAX);
    struct push **slot = &page->pushes[form->index];
    enum status status = *slot ? STATUS_OK : encode(page, form, tools, slot);
    if (status == STATUS_OK)
        *push = push_ref(*slot);
    return status;
}
