#include "store/expiry.h"

/* The first event whose cursor is young enough; one after the head when there is none. */
static enum status search_cursors(const struct store_topic *topic, uint64_t before_ms,
                                  void *session, expiry_cursor_cb *cursor_time,
                                  uint64_t *first_seq) {
    uint64_t low = topic->oldest_seq;
    uint64_t high = topic->head_seq + 1;
    uint64_t probe = low;
    while (low < high) {
        uint64_t at_ms = 0;
        enum status status = cursor_time(session, topic->entity_ref, probe, &at_ms);
        if (status != STATUS_OK)
            return status;
        if (at_ms < before_ms)
            low = probe + 1;
        else
            high = probe;
        probe = low + (high - low) / 2;
    }
    *first_seq = low;
    return STATUS_OK;
}

enum status expiry_begin(struct expiry_walk *walk, const struct store_topic *topic,
                         const struct store_expiry_query *query, struct store_expiry *expiry,
                         void *session, expiry_cursor_cb *cursor_time) {
    enum status status = STATUS_OK;
    *expiry = (struct store_expiry){.first_seq = topic->oldest_seq};
    *walk = (struct expiry_walk){.query = *query, .expiry = expiry};
    if (topic->entity_ref > 0 && topic->oldest_seq <= topic->head_seq) {
        /* Pruning events costs the same for any number of them. */
        walk->query.limit = UINT64_MAX;
        status = search_cursors(topic, query->before_ms, session, cursor_time, &expiry->first_seq);
    }
    walk->is_ended = expiry->first_seq > topic->head_seq;
    return status;
}

void expiry_take(struct expiry_walk *walk, uint64_t seq, uint64_t at_ms) {
    if (at_ms < walk->query.before_ms) {
        walk->expiry->first_seq = seq + 1;
        walk->is_ended = ++walk->counted >= walk->query.limit;
    } else if (at_ms <= walk->query.now_ms) {
        walk->expiry->first_at_ms = at_ms;
        walk->is_ended = true;
    }
}
