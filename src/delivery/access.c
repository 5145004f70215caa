#include "delivery/access.h"

#include "base/limits.h"
#include "hub/frame.h"

/* ---- addresses ---- */

enum status topic_address_absent(struct slice address, struct arena *arena,
                                 struct topic_address *found) {
    char text[STREAM_ID_BYTES_MAX];
    struct buffer topic = buffer_over(text, sizeof(text));
    *found = (struct topic_address){.stream_id = address};
    enum status status = address_topic(address, &topic);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    char *copy = status == STATUS_OK ? arena_alloc(arena, topic.size) : NULL;
    if (!copy)
        return status == STATUS_OK ? STATUS_OUT_OF_MEMORY : status;
    memcpy(copy, topic.data, topic.size);
    found->topic = (struct slice){copy, topic.size};
    return topic_stream(arena, found->topic, &found->stream_id);
}

/* Most addresses are names of topics that exist, and take one read. */
static enum status load(struct store_session *session, struct slice address, struct arena *arena,
                        struct topic_address *found) {
    bool is_topic = address_kind(address) == ADDRESS_TOPIC;
    struct slice stream_id = address;
    if (is_topic) {
        enum status status = store_load_topic(session, address, arena, &found->row);
        if (status != STATUS_NOT_FOUND)
            return status;
        status = topic_stream(arena, address, &stream_id);
        if (status != STATUS_OK)
            return status;
        /* The stream id of a built-in topic, which has no row before its first event, or one that
         * no other name has. */
        if (address_kind(stream_id) == ADDRESS_STREAM)
            return topic_is_projection_owned(address) ? STATUS_NOT_FOUND
                                                      : STATUS_STREAM_ID_CONFLICT;
    }
    enum status status = store_load_stream(session, stream_id, arena, &found->row);
    /* The topic may have been created between the two reads. */
    bool is_other = is_topic && status == STATUS_OK && !slice_equal(found->row.name, address);
    return is_other ? STATUS_STREAM_ID_CONFLICT : status;
}

enum status topic_address_find(struct store_session *session, struct slice address,
                               struct arena *arena, struct topic_address *found) {
    *found = (struct topic_address){.exists = false};
    enum status status = address_check(address);
    if (status == STATUS_OK)
        status = load(session, address, arena, found);
    if (status == STATUS_NOT_FOUND)
        return topic_address_absent(address, arena, found);
    if (status != STATUS_OK)
        return status;
    found->exists = true;
    found->topic = found->row.name;
    found->stream_id = found->row.stream_id;
    return STATUS_OK;
}

/* ---- entitlement ---- */

enum status entitlement_load(struct store_session *session, const struct principal *principal,
                             struct slice topic, struct arena *arena, struct grant *grant) {
    struct store_entity entity;
    struct slice id;
    bool is_narrowed = principal->topics.count + principal->streams.count > 0;
    if (!topic.data && principal->read_all && !is_narrowed)
        *grant = (struct grant){STATUS_OK, GRANT_VIEW_ALL};
    else
        *grant = grant_subscribe(principal, topic);
    if (grant->status != STATUS_OK || grant->view != GRANT_VIEW_PENDING)
        return STATUS_OK;
    enum status status =
        store_load_entity(session, grant_entity_of(topic, &id), id, arena, &entity);
    if (status != STATUS_OK)
        return status == STATUS_NOT_FOUND ? STATUS_OK : status;
    *grant = grant_check(principal, topic, &entity.owner);
    if (grant->status == STATUS_OWNER_MISMATCH)
        *grant = (struct grant){STATUS_OK, GRANT_VIEW_NONE};
    return STATUS_OK;
}

/* ---- owners ---- */

void owners_init(struct owners *owners, struct store_session *session) {
    *owners = (struct owners){.session = session};
    arena_init(&owners->arena, OWNERS_ARENA_BYTES_MAX);
}

void owners_release(struct owners *owners) {
    arena_release(&owners->arena);
}

enum status owners_find(struct owners *owners, uint64_t entity_ref, const struct owner **owner) {
    struct owners_slot *slot = &owners->slots[entity_ref % OWNERS_MAX];
    struct store_entity entity;
    *owner = &slot->owner;
    if (entity_ref > 0 && slot->entity_ref == entity_ref)
        return STATUS_OK;
    if (owners->arena.bytes_held > OWNERS_KEPT_BYTES) {
        arena_reset(&owners->arena);
        for (size_t i = 0; i < OWNERS_MAX; i++)
            owners->slots[i].entity_ref = 0;
    }
    enum status status =
        store_load_entity_ref(owners->session, entity_ref, &owners->arena, &entity);
    slot->entity_ref = status == STATUS_OK ? entity_ref : 0;
    if (status == STATUS_OK)
        slot->owner = entity.owner;
    return status;
}

/* ---- viewers ---- */

void viewer_init(struct viewer *viewer, struct store_session *session,
                 const struct principal *principal, enum grant_view view) {
    viewer->principal = principal;
    viewer->view = view;
    owners_init(&viewer->owners, session);
}

void viewer_release(struct viewer *viewer) {
    owners_release(&viewer->owners);
}

enum status viewer_check(struct viewer *viewer, uint64_t entity_ref,
                         const struct store_event *event, bool *may_read) {
    const struct owner *entity_owner;
    *may_read = viewer->view == GRANT_VIEW_ALL;
    if (*may_read)
        return STATUS_OK;
    enum status status = owners_find(&viewer->owners, entity_ref, &entity_owner);
    if (status != STATUS_OK)
        return status;
    struct owner owner = frame_owner(event, entity_owner);
    *may_read = grant_may_read(viewer->principal, viewer->view, &owner);
    return STATUS_OK;
}
