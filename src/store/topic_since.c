/* The time of an event is that of its cursor, which never falls. The time of a journal row is when
 * it was published, by a clock that may step back. Its event's place in the log is compared too,
 * and the earlier of the two positions is used. */
#include "store/topic_since.h"

struct since_search {
    struct store_session *session;
    const struct store_topic *topic;
    uint64_t at_ms;
    uint64_t log_id; /* of the last event before at_ms */
    bool by_log;     /* journal rows: compare their events, not their times */
    bool is_before;  /* the row that was read is before at_ms */
};

static enum status look_at_event(void *user, const struct store_event *event) {
    struct since_search *search = user;
    search->is_before = uuid7_timestamp_ms(&event->cursor) < search->at_ms;
    return STATUS_OK;
}

static enum status look_at_row(void *user, const struct store_journal_row *row,
                               const struct store_event *event) {
    struct since_search *search = user;
    (void)event;
    search->is_before =
        search->by_log ? row->log_id <= search->log_id : row->published_at_ms < search->at_ms;
    return STATUS_OK;
}

/* A row that is missing counts as late: the search goes on before it. */
static enum status look_at(struct since_search *search, uint64_t seq) {
    const struct store_topic *topic = search->topic;
    search->is_before = false;
    if (topic->entity_ref > 0)
        return store_walk_entity_events(search->session, topic->entity_ref, seq - 1, 1, search,
                                        look_at_event);
    return store_walk_journal(search->session, topic->ref, seq - 1, 1, search, look_at_row);
}

/* The first frame from low on that is not before at_ms; one after the head when there is none. */
static enum status find_first(struct since_search *search, uint64_t low, uint64_t *first_seq) {
    uint64_t high = search->topic->head_seq + 1;
    while (low < high) {
        uint64_t probe = low + (high - low) / 2;
        enum status status = look_at(search, probe);
        if (status != STATUS_OK)
            return status;
        if (search->is_before)
            low = probe + 1;
        else
            high = probe;
    }
    *first_seq = low;
    return STATUS_OK;
}

static enum status find_row(struct since_search *search, uint64_t *first_seq) {
    const struct uuid first = uuid7_first(search->at_ms);
    const struct event_cursor cursor = event_cursor_of(&first);
    const struct store_topic *topic = search->topic;
    struct store_state state;
    uint64_t by_time = 0, by_log = 0;
    enum status status = store_read_state(search->session, &state);
    if (status == STATUS_OK)
        status = store_find_cursor(search->session, &cursor, &search->log_id);
    if (status == STATUS_OK)
        status = find_first(search, topic->oldest_seq, &by_time);
    search->by_log = true;
    if (status == STATUS_OK)
        status = find_first(search, topic->oldest_seq, &by_log);
    if (status != STATUS_OK)
        return status;
    *first_seq = by_time < by_log ? by_time : by_log;
    /* No row is left from before at_ms, so rows of at_ms or later may have been pruned. Without a
     * later event there are none. */
    bool has_later = *first_seq <= topic->head_seq || search->log_id < state.log_id;
    if (*first_seq == topic->oldest_seq && topic->oldest_seq > 1 && has_later)
        *first_seq = topic->oldest_seq - 1;
    return STATUS_OK;
}

enum status topic_since_find(struct store_session *session, const struct store_topic *topic,
                             uint64_t at_ms, uint64_t *after_seq) {
    struct since_search search = {.session = session, .topic = topic, .at_ms = at_ms};
    uint64_t first_seq = 0;
    /* The log keeps the events below the floor of their topic. */
    enum status status =
        topic->entity_ref > 0 ? find_first(&search, 1, &first_seq) : find_row(&search, &first_seq);
    if (status == STATUS_OK)
        *after_seq = first_seq - 1;
    return status;
}
