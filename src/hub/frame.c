#include "hub/frame.h"

#include <assert.h>
#include <stdlib.h>

/* The texts of a frame besides those around its payload. */
#define TEXTS_MAX 5

bool frame_form_of(struct slice name, enum frame_form *form) {
    static const struct slice names[FRAME_FORM_COUNT] = {
        [FRAME_FULL] = SLICE("full"),
        [FRAME_LEAN] = SLICE("lean"),
    };
    for (size_t i = 0; i < FRAME_FORM_COUNT; i++) {
        if (slice_equal(name, names[i])) {
            *form = (enum frame_form)i;
            return true;
        }
    }
    return false;
}

static void list_texts(struct frame_content *content, struct slice *texts[TEXTS_MAX]) {
    texts[0] = &content->kind;
    texts[1] = &content->document_key;
    texts[2] = &content->owner.user_id;
    texts[3] = &content->owner.guest_scope;
    texts[4] = &content->owner.org_id;
}

/* Copies a text and moves the end of the copied texts. */
static struct slice put(char **end, struct slice text) {
    struct slice copy = {text.data ? *end : NULL, text.size};
    if (text.data && text.size > 0)
        memcpy(*end, text.data, text.size);
    *end += text.size;
    return copy;
}

enum status frame_make(struct frame **frame, const struct frame_content *content,
                       const struct frame_text *text) {
    struct frame_content copy = *content;
    struct slice *texts[TEXTS_MAX];
    size_t text_size = text->head.size + content->payload.size + text->tail.size;
    size_t size = sizeof(**frame) + text_size;
    assert(text->lean_begin <= text->head.size);
    list_texts(&copy, texts);
    for (size_t i = 0; i < TEXTS_MAX; i++)
        size += texts[i]->size;
    struct frame *made = malloc(size);
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    char *end = made->texts;
    (void)put(&end, text->head);
    copy.payload = put(&end, content->payload);
    made->forms[FRAME_LEAN] = (struct slice){made->texts + text->lean_begin,
                                             (size_t)(end - made->texts) - text->lean_begin};
    (void)put(&end, text->tail);
    made->forms[FRAME_FULL] = (struct slice){made->texts, text_size};
    for (size_t i = 0; i < TEXTS_MAX; i++)
        *texts[i] = put(&end, *texts[i]);
    made->content = copy;
    made->committed_ns = 0;
    made->bytes = size;
    atomic_init(&made->references, 1);
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
    if (before == 1)
        free(frame);
}
