#include "client/channel_push.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/client_limits.h"

void channel_push_list_init(struct push_list *list) {
    *list = (struct push_list){.count = 0};
    list_init(&list->pushes);
}

void channel_push_list_clear(struct push_list *list) {
    struct list_node *node;
    while ((node = list_pop_front(&list->pushes)))
        free(container_of(node, struct push, node));
    list->count = 0;
}

struct slice channel_push_next_ref(struct push_list *list, char ref[PUSH_REF_BYTES]) {
    int size = snprintf(ref, PUSH_REF_BYTES, "%" PRIu64, ++list->ref);
    return (struct slice){ref, (size_t)size};
}

struct push *channel_push_make(struct push_list *list, enum push_kind kind, size_t count,
                               uint64_t now_ms) {
    struct push *push = calloc(1, sizeof(*push) + count * sizeof(push->numbers[0]));
    if (!push || list->count >= CLIENT_PUSHES_MAX) {
        free(push);
        return NULL;
    }
    (void)channel_push_next_ref(list, push->ref);
    push->kind = kind;
    push->at_ms = now_ms;
    return push;
}

void channel_push_add(struct push_list *list, struct push *push) {
    list_push_back(&list->pushes, &push->node);
    list->count++;
}

struct push *channel_push_take(struct push_list *list, struct slice ref) {
    struct list_node *node = list_first(&list->pushes);
    for (; node; node = list_next(&list->pushes, node)) {
        struct push *push = container_of(node, struct push, node);
        if (!slice_equal(ref, slice_of(push->ref)))
            continue;
        list_remove(node);
        list->count--;
        return push;
    }
    return NULL;
}

bool channel_push_is_late(const struct push_list *list, uint64_t now_ms, uint64_t wait_ms_max) {
    struct list_node *first = list_first(&list->pushes);
    return first && now_ms - container_of(first, struct push, node)->at_ms > wait_ms_max;
}

bool channel_push_has(const struct push *push, uint64_t number) {
    for (size_t i = 0; i < push->count; i++)
        if (push->numbers[i] == number)
            return true;
    return false;
}
