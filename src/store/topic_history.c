#include "store/topic_history.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/buffer.h"
#include "topic/topic_name.h"
#include "topic/topic_table.h"

/* ---- windows and epochs ---- */

struct topic_window enforced_window(const struct store_topic *topic, const struct policy *policy) {
    const struct topic_window whole = {1, topic->head_seq, policy->replay_budget_events};
    struct topic_window window = {topic->oldest_seq, topic->head_seq, policy->replay_budget_events};
    uint64_t first_seq = continuity_bootstrap(&whole).from_seq;
    if (topic_begins_in_log(topic->name) && first_seq < window.oldest_seq)
        window.oldest_seq = first_seq;
    return window;
}

struct topic_epoch topic_epoch_of(const struct store_state *state,
                                  const struct store_topic *topic) {
    struct topic_epoch epoch = {{0}};
    memcpy(epoch.text, state->epoch, STORE_EPOCH_SIZE);
    if (topic && topic->entity_ref == 0)
        snprintf(epoch.text + STORE_EPOCH_SIZE, sizeof(epoch.text) - STORE_EPOCH_SIZE, ".%" PRIu64,
                 topic->journal_epoch);
    return epoch;
}

/* ---- cursors of the log ---- */

struct comparison {
    const struct uuid *wanted;
    bool is_equal;
};

static enum status compare(void *user, const struct store_event *event) {
    struct comparison *comparison = user;
    comparison->is_equal = uuid_compare(&event->cursor, comparison->wanted) == 0;
    return STATUS_OK;
}

enum status log_position_find(struct store_session *session, const struct id_mark *mark,
                              const struct event_cursor *cursor, uint64_t *log_id, bool *is_lost) {
    struct comparison comparison = {.wanted = &cursor->uuid};
    struct uuid marked = cursor->uuid;
    id_mark_stamp(mark, &marked);
    *is_lost = false;
    enum status status = store_find_cursor(session, cursor, log_id);
    bool is_minted = uuid_compare(&marked, &cursor->uuid) == 0 &&
                     cursor->timestamp_ms == uuid7_timestamp_ms(&cursor->uuid);
    if (status != STATUS_OK || !is_minted)
        return status;
    if (*log_id > 0)
        status = store_walk_log(session, *log_id - 1, 1, &comparison, compare);
    *is_lost = !comparison.is_equal;
    return status;
}

/* ---- forks ---- */

#define ARENA_BYTES_MAX 4096

/* The event at the position. */
struct fork_search {
    uint64_t seq;
    uint64_t log_id; /* 0: there is no such event */
};

static enum status note_log_id(void *user, const struct store_event *event) {
    struct fork_search *search = user;
    if (event->seq == search->seq)
        search->log_id = event->log_id;
    return STATUS_OK;
}

/* The fork that is noted for a topic with journal rows. */
static enum status find_noted(struct store_session *session, struct slice topic, uint64_t *seq) {
    char text[sizeof(STORE_FORK_PREFIX) + TOPIC_NAME_BYTES_MAX];
    struct buffer name = buffer_over(text, sizeof(text));
    struct arena arena;
    struct slice value;
    buffer_append_slice(&name, SLICE(STORE_FORK_PREFIX));
    buffer_append_slice(&name, topic);
    enum status status = buffer_status(&name);
    arena_init(&arena, ARENA_BYTES_MAX);
    if (status == STATUS_OK)
        status = store_load_property(session, buffer_slice(&name), &arena, &value);
    if (status == STATUS_OK && !decimal_parse_u64(value, seq))
        *seq = 0;
    arena_release(&arena);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

enum status topic_fork_find(struct store_session *session, const struct store_state *state,
                            const struct store_topic *topic, const struct position *position,
                            struct topic_fork *fork) {
    *fork = (struct topic_fork){.is_set = state->has_fork};
    /* A journal that was rebuilt has begun a history of its own. */
    if (!state->has_fork || state->fork_log_id == 0 || topic_epoch_is_known(&position->epoch) ||
        position->seq == 0 || !topic || topic->journal_epoch > 0)
        return STATUS_OK;
    if (topic->entity_ref == 0)
        return find_noted(session, topic->name, &fork->seq);
    struct fork_search search = {.seq = position->seq};
    enum status status = store_walk_entity_frames(session, topic->entity_ref, position->seq - 1, 1,
                                                  &search, note_log_id);
    bool is_before = search.log_id > 0 && search.log_id <= state->fork_log_id;
    fork->seq = is_before ? position->seq : position->seq - 1;
    return status;
}

/* ---- times ----
 *
 * The time of an event is that of its cursor, which never falls. The time of a journal row is when
 * it was published, by a clock that may step back. Its event's place in the log is compared too,
 * and the earlier of the two positions is used. */

struct since_search {
    struct store_session *session;
    const struct store_topic *topic;
    uint64_t at_ms;
    uint64_t log_id; /* of the last event before at_ms */
    bool by_log;     /* journal rows: compare their events, not their times */
    bool is_before;  /* the row that was read is before at_ms */
};

static enum status read_event_time(void *user, const struct store_event *event) {
    struct since_search *search = user;
    search->is_before = uuid7_timestamp_ms(&event->cursor) < search->at_ms;
    return STATUS_OK;
}

static enum status read_row_time(void *user, const struct store_journal_row *row,
                                 const struct store_event *event) {
    struct since_search *search = user;
    (void)event;
    search->is_before =
        search->by_log ? row->log_id <= search->log_id : row->published_at_ms < search->at_ms;
    return STATUS_OK;
}

/* The first frame from low on that is not before at_ms; one after the head when there is none. */
static enum status find_first(struct since_search *search, uint64_t low, uint64_t *first_seq) {
    const struct store_topic *topic = search->topic;
    uint64_t high = topic->head_seq + 1;
    while (low < high) {
        uint64_t probe = low + (high - low) / 2;
        /* A row that is missing counts as late: the search goes on before it. */
        search->is_before = false;
        enum status status = topic->entity_ref > 0
                                 ? store_walk_entity_events(search->session, topic->entity_ref,
                                                            probe - 1, 1, search, read_event_time)
                                 : store_walk_journal(search->session, topic->ref, probe - 1, 1,
                                                      search, read_row_time);
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
