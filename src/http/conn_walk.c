#include "http/conn_walk.h"

#include <assert.h>

#include "http/conn.h"

static void count_down(struct conn_walk *walk) {
    if (atomic_fetch_sub(&walk->loops_left, 1) == 1)
        walk->done(walk);
}

static void part_run(struct loop_task *task) {
    const struct conn_walk_part *part = container_of(task, struct conn_walk_part, task);
    struct list *conns = &((struct http_loop *)part->loop->owner)->conns;
    bool goes_on = true;
    for (struct list_node *node = list_first(conns), *next; goes_on && node; node = next) {
        next = list_next(conns, node);
        goes_on = part->walk->visit(part->walk, container_of(node, struct conn, node));
    }
    count_down(part->walk);
}

void conn_walk_post(struct conn_walk *walk) {
    struct http *http = walk->http;
    size_t count = http->loop_count;
    /* One more, so that done does not run before all tasks are posted. */
    atomic_store(&walk->loops_left, count + 1);
    for (size_t i = 0; i < count; i++) {
        struct conn_walk_part *part = &walk->parts[i];
        *part = (struct conn_walk_part){{.run = part_run}, walk, http->loops[i]};
        enum status status = io_loop_post(part->loop, &part->task);
        assert(status == STATUS_OK || status == STATUS_SHUTTING_DOWN);
        if (status != STATUS_OK)
            count_down(walk);
    }
    count_down(walk);
}
