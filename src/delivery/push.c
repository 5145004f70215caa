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
