/* The requests of a channel that wait for their reply.
 * Belongs to the thread of the client's loop.
 * Owns the requests in the list; one that was made and not added belongs to its maker.
 * NULL of channel_push_make: no memory, or too many requests without a reply.
 * References ascend, so the first request of the list is the oldest. */
#ifndef CLIENT_CHANNEL_PUSH_H
#define CLIENT_CHANNEL_PUSH_H

#include <stdint.h>

#include "base/list.h"
#include "base/slice.h"

#define PUSH_REF_BYTES 24

enum push_kind { PUSH_JOIN, PUSH_REFRESH, PUSH_SUBSCRIBE, PUSH_UNSUBSCRIBE };

struct push {
    struct list_node node;
    char ref[PUSH_REF_BYTES];
    enum push_kind kind;
    uint64_t at_ms;
    size_t count;
    uint64_t numbers[]; /* of the followers that it subscribes; 0: settled */
};

struct push_list {
    struct list pushes;
    size_t count;
    uint64_t ref; /* the last one */
};

void channel_push_list_init(struct push_list *list);
void channel_push_list_clear(struct push_list *list);
/* The next reference as text. */
struct slice channel_push_next_ref(struct push_list *list, char ref[PUSH_REF_BYTES]);
/* With room for so many followers, and none yet. */
struct push *channel_push_make(struct push_list *list, enum push_kind kind, size_t count,
                               uint64_t now_ms);
void channel_push_add(struct push_list *list, struct push *push);
/* Removes the request with this reference, which the caller frees; NULL if there is none. */
struct push *channel_push_take(struct push_list *list, struct slice ref);
/* Whether a request has waited longer than that. */
bool channel_push_is_late(const struct push_list *list, uint64_t now_ms, uint64_t wait_ms_max);
bool channel_push_has(const struct push *push, uint64_t number);

#endif
