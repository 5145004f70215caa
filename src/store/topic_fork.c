#include "store/topic_fork.h"

#include "base/decimal.h"
#include "topic/topic_name.h"

#define ARENA_BYTES_MAX 4096

/* The event at the position. */
struct fork_search {
    uint64_t seq;
    uint64_t log_id; /* 0: there is no such event */
};

static enum status look_at_event(void *user, const struct store_event *event) {
    struct fork_search *search = user;
    if (event->seq == search->seq)
        search->log_id = event->log_id;
    return STATUS_OK;
}

static enum status find_noted(struct store_session *session, struct slice topic, uint64_t *seq) {
    char text[sizeof(STORE_FORK_PREFIX) + TOPIC_NAME_BYTES_MAX];
    struct buffer name = buffer_over(text, sizeof(text));
    struct arena arena;
    struct slice value;
    enum status status = buffer_append_slice(&name, SLICE(STORE_FORK_PREFIX));
    if (status == STATUS_OK)
        status = buffer_append_slice(&name, topic);
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
    /* A journal that was made again has begun a history of its own. */
    if (!state->has_fork || state->fork_log_id == 0 || topic_epoch_is_known(&position->epoch) ||
        position->seq == 0 || !topic || topic->journal_epoch > 0)
        return STATUS_OK;
    if (topic->entity_ref == 0)
        return find_noted(session, topic->name, &fork->seq);
    struct fork_search search = {.seq = position->seq};
    enum status status = store_walk_entity_frames(session, topic->entity_ref, position->seq - 1, 1,
                                                  &search, look_at_event);
    bool is_before = search.log_id > 0 && search.log_id <= state->fork_log_id;
    fork->seq = is_before ? position->seq : position->seq - 1;
    return status;
}
