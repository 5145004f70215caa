#include "delivery/viewer.h"

#include "hub/frame_row.h"

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
