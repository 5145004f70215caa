#include "hub/frame.h"

#include <assert.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/limits.h"

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

/* ---- memory ---- */

struct frame_block {
    atomic_uint references; /* of its frames, and of the room that fills it */
    size_t used;
    alignas(max_align_t) char memory[FRAME_BLOCK_BYTES];
};

static void block_unref(struct frame_block *block) {
    unsigned before = atomic_fetch_sub_explicit(&block->references, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before == 1)
        free(block);
}

void frame_room_release(struct frame_room *room) {
    if (room->block)
        block_unref(room->block);
    room->block = NULL;
}

/* A frame that would fill a large part of a block gets its own memory. */
static bool is_large(size_t size) {
    return size > FRAME_BLOCK_BYTES / 4;
}

static size_t aligned(size_t size) {
    return (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
}

static struct frame *take_memory(struct frame_room *room, size_t size) {
    struct frame_block *block = room->block;
    if (!block || FRAME_BLOCK_BYTES - block->used < size) {
        frame_room_release(room);
        block = malloc(sizeof(*block));
        if (!block)
            return NULL;
        block->used = 0;
        atomic_init(&block->references, 1);
        room->block = block;
    }
    struct frame *frame = (struct frame *)(void *)(block->memory + block->used);
    block->used += size;
    atomic_fetch_add_explicit(&block->references, 1, memory_order_relaxed);
    frame->block = block;
    return frame;
}

static struct frame *allocate(struct frame_room *room, size_t size) {
    if (room && !is_large(size))
        return take_memory(room, aligned(size));
    struct frame *frame = malloc(size);
    if (frame)
        frame->block = NULL;
    return frame;
}

/* ---- frames ---- */

enum status frame_make(struct frame_room *room, const struct frame_content *content,
                       const struct frame_text *text, struct frame **frame) {
    struct frame_content copy = *content;
    struct slice *texts[TEXTS_MAX];
    size_t text_size = text->head.size + content->payload.size + text->tail.size;
    size_t size = sizeof(**frame) + text_size;
    assert(text->lean_begin <= text->head.size);
    list_texts(&copy, texts);
    for (size_t i = 0; i < TEXTS_MAX; i++)
        size += texts[i]->size;
    struct frame *made = allocate(room, size);
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

/* A text inside the frame, in the copy. */
static void move_text(struct slice *text, const struct frame *frame, struct frame *copy) {
    if (text->data)
        text->data = copy->texts + (text->data - frame->texts);
}

struct frame *frame_copy(const struct frame *frame) {
    struct slice *texts[TEXTS_MAX];
    struct frame *copy = malloc(frame->bytes);
    if (!copy)
        return NULL;
    copy->content = frame->content;
    copy->committed_ns = frame->committed_ns;
    copy->block = NULL;
    copy->bytes = frame->bytes;
    memcpy(copy->texts, frame->texts, frame->bytes - sizeof(*frame));
    atomic_init(&copy->references, 1);
    list_texts(&copy->content, texts);
    for (size_t i = 0; i < TEXTS_MAX; i++)
        move_text(texts[i], frame, copy);
    move_text(&copy->content.payload, frame, copy);
    for (size_t i = 0; i < FRAME_FORM_COUNT; i++) {
        copy->forms[i] = frame->forms[i];
        move_text(&copy->forms[i], frame, copy);
    }
    return copy;
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
    if (frame->block)
        block_unref(frame->block);
    else
        free(frame);
}
