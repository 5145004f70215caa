#include "hub/frame.h"

#include <assert.h>
#include <stdlib.h>

struct frame_text {
    size_t size;
    char data[];
};

/* Marks a form that was encoded once and not stored. */
static struct frame_text encoded_once;

#define TEXTS_MAX 7
/* The bytes that a form adds to the texts: names, numbers, ids. */
#define FORM_FIXED_BYTES 256
#define FORMS_RESERVED   2

static void list_texts(struct frame_content *content, struct slice *texts[TEXTS_MAX]) {
    texts[0] = &content->topic;
    texts[1] = &content->kind;
    texts[2] = &content->document_key;
    texts[3] = &content->payload;
    texts[4] = &content->owner.user_id;
    texts[5] = &content->owner.guest_scope;
    texts[6] = &content->owner.org_id;
}

enum status frame_make(struct frame **frame, const struct frame_content *content) {
    struct frame_content copy = *content;
    struct slice *texts[TEXTS_MAX];
    size_t size = sizeof(**frame);
    list_texts(&copy, texts);
    for (size_t i = 0; i < TEXTS_MAX; i++)
        size += texts[i]->size;
    struct frame *made = malloc(size);
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    char *at = made->texts;
    for (size_t i = 0; i < TEXTS_MAX; i++) {
        if (!texts[i]->data)
            continue;
        memcpy(at, texts[i]->data, texts[i]->size);
        texts[i]->data = at;
        at += texts[i]->size;
    }
    made->content = copy;
    made->committed_ns = 0;
    made->bytes = size + FORMS_RESERVED * (size - sizeof(*made) + FORM_FIXED_BYTES);
    atomic_init(&made->references, 1);
    for (size_t i = 0; i < FRAME_FORMS_MAX; i++)
        atomic_init(&made->forms[i], NULL);
    *frame = made;
    return STATUS_OK;
}

struct frame *frame_ref(struct frame *frame) {
    atomic_fetch_add_explicit(&frame->references, 1, memory_order_relaxed);
    return frame;
}

void frame_unref(struct frame *frame) {
    unsigned before = atomic_fetch_sub_explicit(&frame->references, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before > 1)
        return;
    for (size_t i = 0; i < FRAME_FORMS_MAX; i++) {
        struct frame_text *text = atomic_load_explicit(&frame->forms[i], memory_order_relaxed);
        if (text != &encoded_once)
            free(text);
    }
    free(frame);
}

static enum status text_make(const struct frame *frame, const struct frame_form *form,
                             struct frame_text **text) {
    struct buffer out;
    buffer_init(&out, form->bytes_max);
    enum status status = form->encode(&frame->content, &out);
    if (status == STATUS_OK) {
        *text = malloc(sizeof(**text) + out.size);
        status = *text ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    }
    if (status == STATUS_OK) {
        (*text)->size = out.size;
        memcpy((*text)->data, out.data, out.size);
    }
    buffer_release(&out);
    return status;
}

enum status frame_encoded(struct frame *frame, const struct frame_form *form, struct slice *text) {
    assert(form->index < FRAME_FORMS_MAX);
    _Atomic(struct frame_text *) *slot = &frame->forms[form->index];
    struct frame_text *there = atomic_load_explicit(slot, memory_order_acquire);
    struct frame_text *made = NULL;
    while (!there || there == &encoded_once) {
        enum status status = made ? STATUS_OK : text_make(frame, form, &made);
        if (status != STATUS_OK)
            return status;
        if (atomic_compare_exchange_strong_explicit(slot, &there, made, memory_order_acq_rel,
                                                    memory_order_acquire)) {
            there = made;
            made = NULL;
        }
    }
    /* Another thread may have stored its text first. All callers use that one. */
    free(made);
    *text = (struct slice){there->data, there->size};
    return STATUS_OK;
}

enum status frame_append(struct frame *frame, const struct frame_form *form, struct buffer *out) {
    assert(form->index < FRAME_FORMS_MAX);
    struct frame_text *there = NULL;
    struct slice text;
    if (atomic_compare_exchange_strong_explicit(&frame->forms[form->index], &there, &encoded_once,
                                                memory_order_relaxed, memory_order_relaxed))
        return form->encode(&frame->content, out);
    enum status status = frame_encoded(frame, form, &text);
    return status == STATUS_OK ? buffer_append_slice(out, text) : status;
}
