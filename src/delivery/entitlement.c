#include "delivery/entitlement.h"

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
