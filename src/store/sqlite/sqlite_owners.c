/* The owners of journal rows. The columns that are read stand before the payload, so its overflow
 * pages are not read. Texts are not copied: a long walk would spend most of its time on that. */
#include "store/sqlite/sqlite.h"

static struct owner owner_of(sqlite3_stmt *statement) {
    return (struct owner){.user_id = sqlite_text(statement, 2),
                          .guest_scope = sqlite_text(statement, 3),
                          .org_id = sqlite_text(statement, 4)};
}

enum status sqlite_walk_owners(struct store_session *base, uint64_t topic_ref, uint64_t after_seq,
                               uint64_t limit, void *user, store_owner_cb *callback) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_WALK_OWNERS, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(statement, 1, topic_ref);
    sqlite_bind_bound(statement, 2, after_seq);
    sqlite_bind_bound(statement, 3, limit);
    enum status called = STATUS_OK;
    while (called == STATUS_OK && (status = sqlite_next(session, statement)) == STATUS_OK) {
        uint64_t seq = sqlite_number(statement, 0);
        const struct owner owner = owner_of(statement);
        called = sqlite3_column_type(statement, 1) == SQLITE_NULL
                     ? sqlite_damaged(session, "the entity of journal row", seq)
                     : callback(user, seq, &owner);
    }
    sqlite3_reset(statement);
    if (called != STATUS_OK)
        return called;
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}
