#include "authority/missed.h"

static enum status announce_event(void *user, const struct store_event *event) {
    struct missed *missed = user;
    const struct store_entity state = {.ref = event->entity_ref,
                                       .kind = event->entity_kind,
                                       .id = event->entity_id,
                                       .owner = event->owner};
    const struct store_batch batch = {.events = event, .event_count = 1};
    missed->announce(missed->user, &batch, &state);
    return STATUS_OK;
}

/* A topic without its rows: subscribers read them from the store. */
static enum status announce_topic(void *user, const struct store_topic *topic) {
    struct missed *missed = user;
    const struct store_batch batch = {.topics = topic, .topic_count = 1};
    if (topic->entity_ref == 0)
        missed->announce(missed->user, &batch, NULL);
    return STATUS_OK;
}

enum status missed_announce(struct store_session *session, uint64_t after_log_id,
                            struct missed *missed) {
    enum status status = store_walk_log(session, after_log_id, UINT64_MAX, missed, announce_event);
    return status == STATUS_OK ? store_walk_topics(session, 0, UINT64_MAX, missed, announce_topic)
                               : status;
}
