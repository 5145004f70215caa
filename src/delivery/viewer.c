#include "delivery/viewer.h"

#include "hub/frame_row.h"

#define ARENA_BYTES_MAX (1u << 20)

void viewer_init(struct viewer *viewer, struct store_session *session,
                 const struct principal *principal, enum grant_view view) {
    *viewer = (struct viewer){.session = session, .principal = principal, .view = view};
    arena_init(&viewer->arena, ARENA_BYTES_MAX);
}

void viewer_release(struct viewer *viewer) {
    arena_release(&viewer->arena);
}

enum status viewer_look(struct viewer *viewer, uint64_t entity_ref, const struct store_event *event,
                        bool *may_read) {
    *may_read = viewer->view == GRANT_VIEW_ALL;
    if (*may_read)
        return STATUS_OK;
    if (viewer->entity.ref != entity_ref) {
        arena_reset(&viewer->arena);
        viewer->entity.ref = 0;
        enum status status =
            store_load_entity_ref(viewer->session, entity_ref, &viewer->arena, &viewer->entity);
        if (status != STATUS_OK)
            return status;
    }
    struct owner owner = frame_owner(event, &viewer->entity.owner);
    *may_read = grant_may_read(viewer->principal, viewer->view, &owner);
    return STATUS_OK;
}
