/* Groups wait in the lanes of a fair queue, one for each principal. Before they are added, the
 * entities that decide about their lanes are read, once for all new groups. A group of a batch
 * whose earlier slice still waits is added behind that slice, in its lane. A commit takes a round
 * of the queue: one turn of each lane, or several rounds if one principal has had the queue to
 * itself. */
#include "authority/writer_queue.h"

#include <assert.h>

#include "authority/append.h"
#include "authority/rules/rules.h"

/* Groups in order, linked as in a mailbox. */
struct group_list {
    struct mailbox_item *first;
    struct mailbox_item **end;
};

static void list_group(struct group_list *list, struct append_group *group) {
    group->posted.item.next = NULL;
    *list->end = &group->posted.item;
    list->end = &group->posted.item.next;
}

void writer_queue_init(struct writer_queue *queue, struct ledger *ledger, size_t group_max,
                       uint64_t bytes_max) {
    queue->ledger = ledger;
    queue->shared_until_ns = 0;
    fair_queue_init(&queue->groups, WRITER_QUANTUM, group_max, bytes_max);
}

void writer_queue_release(struct writer_queue *queue) {
    fair_queue_release(&queue->groups);
}

/* ---- lanes ---- */

/* The requests before it were refused when they were read. NULL: all were. */
static const struct append_request *first_request(const struct append_group *group) {
    for (size_t i = 0; i < group->request_count; i++)
        if (group->requests[i].status == STATUS_OK)
            return &group->requests[i];
    return NULL;
}

static bool is_behind_another(const struct append_group *group) {
    return group->order && group->order->last_waiting;
}

void writer_queue_find_owners(struct writer_queue *queue, struct mailbox_item *first,
                              const struct mailbox_item *end, struct clock_reading now) {
    struct ledger *ledger = queue->ledger;
    const struct lookup_sources sources = {&ledger->cache, &ledger->recent, &ledger->batch.arena};
    size_t count = 0;
    for (struct mailbox_item *item = first; item != end && count < BATCH_REQUESTS_MAX;
         item = item->next) {
        const struct append_group *group = container_of(item, struct append_group, posted.item);
        const struct append_request *request = first_request(group);
        if (!request || request->producer || request->import || is_behind_another(group) ||
            append_owner(request, &ledger->cache))
            continue;
        if (count++ == 0 && ledger_begin(ledger, now) != STATUS_OK)
            return;
        lookups_gather_owner(&ledger->lookups, &sources, request);
    }
    /* The batch asks again for what could not be read, and fails if the store does. */
    enum status status =
        count > 0 ? lookups_fetch(&ledger->lookups, &ledger->cache, ledger->session) : STATUS_OK;
    (void)status;
}

/* ---- turns ---- */

enum status writer_queue_add(struct writer_queue *queue, struct append_group *group,
                             uint64_t now_ns) {
    const struct append_request *request = first_request(group);
    const struct owner *owner = NULL;
    struct principal named = {.expires_at_ms = 0};
    char text[PRINCIPAL_KEY_BYTES_MAX];
    enum status status = STATUS_OK;
    if (is_behind_another(group)) {
        fair_queue_add_behind(&queue->groups, &group->order->last_waiting->waiting,
                              &group->waiting);
    } else if (request && request->import) {
        status = fair_queue_add(&queue->groups, SLICE("import"), &group->waiting);
    } else if (request && request->room_least > STORE_ROOM_FREE) {
        /* Records of what operators do must not wait behind appends, nor be refused for them. */
        status = fair_queue_add(&queue->groups, SLICE("record"), &group->waiting);
    } else if (request && request->producer) {
        status =
            fair_queue_add(&queue->groups, principal_key(request->producer, text), &group->waiting);
    } else {
        owner = request ? append_owner(request, &queue->ledger->cache) : NULL;
        if (owner)
            named.identity = *owner;
        status = fair_queue_add(&queue->groups, principal_key(&named, text), &group->waiting);
    }
    if (status != STATUS_OK)
        return status;
    if (group->order)
        group->order->last_waiting = group;
    if (fair_queue_lanes(&queue->groups) > 1)
        queue->shared_until_ns = now_ns + WRITER_ALONE_NS;
    return STATUS_OK;
}

static void leave(struct writer_queue *queue, struct append_group *group) {
    fair_queue_take(&queue->groups, &group->waiting);
    if (group->order && group->order->last_waiting == group)
        group->order->last_waiting = NULL;
}

bool writer_queue_is_shared(const struct writer_queue *queue, uint64_t now_ns) {
    return now_ns < queue->shared_until_ns;
}

struct mailbox_item *writer_queue_take(struct writer_queue *queue, uint64_t now_ns,
                                       struct mailbox_item **abandoned) {
    struct group_list taken = {.end = &taken.first};
    struct group_list dropped = {.end = &dropped.first};
    bool is_shared = writer_queue_is_shared(queue, now_ns);
    bool is_full = false;
    size_t requests = 0;
    uint64_t bytes = 0;
    while (!is_full && !writer_queue_is_empty(queue) && !(is_shared && taken.first)) {
        struct fair_item *item;
        fair_queue_begin_round(&queue->groups);
        while (!is_full && (item = fair_queue_peek(&queue->groups))) {
            struct append_group *group = container_of(item, struct append_group, waiting);
            if (group->order && atomic_load(&group->order->is_abandoned)) {
                leave(queue, group);
                append_group_refuse(group, STATUS_NOT_ATTEMPTED);
                list_group(&dropped, group);
                continue;
            }
            requests += group->request_count;
            bytes += item->cost - group->request_count * APPEND_EVENT_COST;
            is_full =
                taken.first && (requests > BATCH_REQUESTS_MAX || bytes > BATCH_PAYLOAD_BYTES_MAX);
            if (is_full)
                break;
            leave(queue, group);
            list_group(&taken, group);
        }
    }
    *abandoned = dropped.first;
    return taken.first;
}
