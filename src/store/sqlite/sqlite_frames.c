/* The walk over the frames of an entity, of which a replay consists. The condition of the statement
 * is a function that takes each row. It is false, so that SQLite goes on to the next row by itself,
 * and true where the walk ends. That saves a quarter of SQLite's work for a row. */
#include "store/sqlite/sqlite.h"

/* The arguments of the function. */
enum frame_column {
    FRAME_LOG_ID,
    FRAME_SEQ,
    FRAME_CURSOR,
    FRAME_EVENT_ID,
    FRAME_TYPE,
    FRAME_OWNER, /* three columns */
    FRAME_PAYLOAD_HASH = FRAME_OWNER + 3,
    FRAME_PAYLOAD,
    FRAME_RECORDED_AT,
    FRAME_LAST_SEQ, /* of the position */
    FRAME_COLUMN_COUNT,
};

struct sqlite_frame_walk {
    struct sqlite_session *session;
    struct store_event name; /* of the entity */
    union store_row row;     /* its event is the frame */
    uint64_t last_seq;
    uint64_t covered_seq; /* up to here events must follow */
    uint64_t left;
    void *user;
    store_row_cb *callback;
    enum status status;
};

static bool read_frame(struct sqlite_frame_walk *walk, sqlite3_value **row) {
    struct store_event *event = &walk->row.event;
    event->log_id = (uint64_t)sqlite3_value_int64(row[FRAME_LOG_ID]);
    event->seq = (uint64_t)sqlite3_value_int64(row[FRAME_SEQ]);
    event->type = sqlite_value_text(row[FRAME_TYPE]);
    event->payload = sqlite_value_text(row[FRAME_PAYLOAD]);
    if (entity_row(event->entity_kind)->has_event_owner)
        event->owner = (struct owner){.user_id = sqlite_value_text(row[FRAME_OWNER]),
                                      .guest_scope = sqlite_value_text(row[FRAME_OWNER + 1]),
                                      .org_id = sqlite_value_text(row[FRAME_OWNER + 2])};
    if (!sqlite_value_bytes(row[FRAME_CURSOR], event->cursor.bytes, sizeof(event->cursor.bytes)) ||
        !sqlite_value_bytes(row[FRAME_PAYLOAD_HASH], event->payload_hash,
                            sizeof(event->payload_hash)) ||
        !event->type.data || !event->payload.data)
        return false;
    event->event_id = event->cursor;
    event->recorded_at_ms = sqlite3_value_type(row[FRAME_RECORDED_AT]) == SQLITE_NULL
                                ? uuid7_timestamp_ms(&event->cursor)
                                : (uint64_t)sqlite3_value_int64(row[FRAME_RECORDED_AT]);
    return sqlite3_value_type(row[FRAME_EVENT_ID]) == SQLITE_NULL ||
           sqlite_value_bytes(row[FRAME_EVENT_ID], event->event_id.bytes,
                              sizeof(event->event_id.bytes));
}

static void take_row(sqlite3_context *context, int count, sqlite3_value **row) {
    struct sqlite_session *session = sqlite3_user_data(context);
    struct sqlite_frame_walk *walk = session->frame_walk;
    (void)count;
    if (store_session_is_cancelled(&session->base)) {
        walk->status = STATUS_STORE_UNAVAILABLE;
    } else if (!walk->name.entity_id.data || !read_frame(walk, row) ||
               walk->row.event.seq != walk->last_seq + 1) {
        /* An entity's sequence has no gap: a gap in the rows is damage. */
        walk->status = sqlite_damaged(session, "the entity's event", walk->last_seq + 1);
    } else {
        walk->last_seq = walk->row.event.seq;
        walk->covered_seq = (uint64_t)sqlite3_value_int64(row[FRAME_LAST_SEQ]);
        walk->left--;
        walk->status = walk->callback(walk->user, &walk->row);
    }
    bool is_over = walk->status != STATUS_OK || walk->left == 0;
    /* The row that ends the walk leaves the statement, and is counted there. */
    if (!is_over)
        store_session_count_row(&session->base);
    sqlite3_result_int(context, is_over);
}

enum status sqlite_frames_register(struct sqlite_session *session) {
    int code = sqlite3_create_function_v2(session->database, "take_row", FRAME_COLUMN_COUNT,
                                          SQLITE_UTF8 | SQLITE_DIRECTONLY, session, take_row, NULL,
                                          NULL, NULL);
    return code == SQLITE_OK ? STATUS_OK
                             : sqlite_connect_fault(session->store->path, session->database, code,
                                                    session->error);
}

enum status sqlite_walk_frames(struct sqlite_session *session, const struct store_query *query,
                               void *user, store_row_cb *callback) {
    struct sqlite_frame_walk walk = {
        .session = session,
        .last_seq = query->after,
        .covered_seq = query->after,
        .left = query->limit,
        .user = user,
        .callback = callback,
    };
    sqlite3_stmt *name = NULL, *statement = NULL;
    if (query->limit == 0)
        return STATUS_OK;
    enum status status = sqlite_entity_name(session, query->scope, &name, &walk.name);
    if (status == STATUS_OK)
        status = sqlite_statement(session, STATEMENT_WALK_ENTITY_FRAMES, &statement);
    if (status == STATUS_OK) {
        walk.row.event = walk.name;
        sqlite_bind_bound(statement, 1, query->scope);
        sqlite_bind_bound(statement, 2, query->after);
        session->frame_walk = &walk;
        status = sqlite_next(session, statement);
        session->frame_walk = NULL;
        sqlite3_reset(statement);
        if (status == STATUS_OK)
            status = walk.status;
        else if (status == STATUS_NOT_FOUND)
            status = sqlite_check_covered(session, walk.last_seq, walk.covered_seq);
    }
    sqlite3_reset(name);
    return status;
}
