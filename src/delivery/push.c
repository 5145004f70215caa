#include "delivery/push.h"

#include <assert.h>
#include <stdlib.h>

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
