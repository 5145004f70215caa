#include "store/log_position.h"

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
