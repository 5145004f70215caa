#include "store/sqlite/sqlite_repair.h"

#include <stdarg.h>

#include "base/log.h"
#include "base/metrics.h"

int sqlite_heal_run(const struct heal *heal, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *text = sqlite3_vmprintf(format, arguments);
    va_end(arguments);
    int code = text ? sqlite3_exec(heal->database, text, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(text);
    return code;
}

int sqlite_heal_note(struct heal *heal, const struct heal_note *note) {
    heal->is_changed = true;
    log_event(LOG_WARN, "store.derived_healed", log_str("reason", reason_code(note->reason)),
              log_slice("subject", note->subject), log_int("expected_seq", note->expected_seq),
              log_int("actual_seq", note->actual_seq));
    metrics_add(METRIC_KHALA_PROJECTION_DRIFT, METRIC_LABELS(note->reason), 1);
    return sqlite_heal_run(
        heal,
        "INSERT INTO khala_projection_drifts (projection_name, entity_ref, reason, expected_seq, "
        "actual_seq, seen_at, subject) VALUES ('', 0, %Q, %lld, %lld, %llu, '%.*q')",
        reason_code(note->reason), note->expected_seq, note->actual_seq, heal->now_ms,
        (int)note->subject.size, note->subject.data);
}

int sqlite_heal_each(struct heal *heal, const char *query,
                     int (*visit)(struct heal *heal, sqlite3_stmt *row)) {
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(heal->database, query, -1, &statement, NULL);
    if (code != SQLITE_OK)
        return code;
    code = sqlite3_step(statement);
    while (code == SQLITE_ROW) {
        code = visit(heal, statement);
        if (code == SQLITE_OK)
            code = sqlite3_step(statement);
    }
    sqlite3_finalize(statement);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

int sqlite_take_journal_epoch(struct heal *heal, sqlite3_int64 *epoch) {
    sqlite3_stmt *statement = NULL;
    int code =
        sqlite_heal_run(heal, "INSERT INTO meta (name, value) VALUES ('journal_epoch', '1') ON "
                              "CONFLICT (name) DO UPDATE SET value = CAST(value AS INTEGER) + 1");
    if (code == SQLITE_OK)
        code = sqlite3_prepare_v2(heal->database,
                                  "SELECT CAST(value AS INTEGER) FROM meta WHERE name = "
                                  "'journal_epoch'",
                                  -1, &statement, NULL);
    if (code == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW)
        *epoch = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return code;
}
