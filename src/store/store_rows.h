/* The rows of the store's tables, stated once. From these lists follow the statements of both
 * engines, binding, decoding, copies in owned memory, moves between engines and the check of the
 * derived tables. A new column needs a line here, a member in store.h and a migration per engine.
 * Thread: any for layouts and columns; a page belongs to one thread.
 * Memory: texts that are read belong to the engine until store_keep copies them. Those of a page
 * live in its arena until the page is cleared.
 * Errors: STATUS_OUT_OF_MEMORY: a row is larger than the memory reserved for it.
 * STATUS_INTERNAL_ERROR: a row is damaged. */
#ifndef STORE_STORE_ROWS_H
#define STORE_STORE_ROWS_H

#include "base/buffer.h"
#include "store/store.h"

/* ---- columns: X(name, kind, member of the struct), the first one by FIRST, the others by NEXT
 * ----
 */

#define STORE_EVENT_KEY(FIRST, NEXT) FIRST(log_id, NUMBER, log_id)
#define STORE_EVENT_VALUES(FIRST, NEXT)                                                            \
    FIRST(entity_ref, NUMBER, entity_ref)                                                          \
    NEXT(seq, NUMBER, seq)                                                                         \
    NEXT(cursor, UUID, cursor)                                                                     \
    NEXT(event_id, EVENT_ID, event_id)                                                             \
    NEXT(type, TEXT, type)                                                                         \
    NEXT(owner_user_id, EVENT_OWNER, owner.user_id)                                                \
    NEXT(owner_guest_scope, EVENT_OWNER, owner.guest_scope)                                        \
    NEXT(org_id, EVENT_OWNER, owner.org_id)                                                        \
    NEXT(payload_hash, HASH, payload_hash)                                                         \
    NEXT(prev_chain_hash, HASH, prev_chain_hash)                                                   \
    NEXT(chain_hash, HASH, chain_hash)                                                             \
    NEXT(payload, TEXT, payload)                                                                   \
    NEXT(recorded_at, EVENT_TIME, recorded_at_ms)                                                  \
    NEXT(chain_version, CHAIN_VERSION, chain_version)
#define STORE_EVENTS(FIRST, NEXT) STORE_EVENT_KEY(FIRST, NEXT) STORE_EVENT_VALUES(NEXT, NEXT)

/* Ids that clients supplied; the rows are events. */
#define STORE_EVENT_IDS(FIRST, NEXT)                                                               \
    FIRST(event_id, UUID, event_id)                                                                \
    NEXT(log_id, NUMBER, log_id)

#define STORE_ENTITY_KEY(FIRST, NEXT)                                                              \
    FIRST(ref, NUMBER, ref)                                                                        \
    NEXT(kind, ENTITY_KIND, kind)                                                                  \
    NEXT(id, TEXT, id)
#define STORE_ENTITY_OWNER(FIRST, NEXT)                                                            \
    FIRST(owner_user_id, TEXT_OR_NULL, owner.user_id)                                              \
    NEXT(owner_guest_scope, TEXT_OR_NULL, owner.guest_scope)                                       \
    NEXT(org_id, TEXT_OR_NULL, owner.org_id)
#define STORE_ENTITY_VALUES(FIRST, NEXT)                                                           \
    STORE_ENTITY_OWNER(FIRST, NEXT)                                                                \
    NEXT(status, TEXT_OR_NULL, status)                                                             \
    NEXT(worker_id, TEXT_OR_NULL, worker_id)                                                       \
    NEXT(thread_id, TEXT_OR_NULL, thread_id)                                                       \
    NEXT(workspace_ref, TEXT_OR_NULL, workspace_ref)                                               \
    NEXT(codex_home_ref, TEXT_OR_NULL, codex_home_ref)                                             \
    NEXT(adapter, TEXT_OR_NULL, adapter)                                                           \
    NEXT(created_at, NUMBER, created_at_ms)                                                        \
    NEXT(started_at, NUMBER_OR_NULL, started_at_ms)                                                \
    NEXT(stopped_at, NUMBER_OR_NULL, stopped_at_ms)                                                \
    NEXT(last_heartbeat_at, NUMBER_OR_NULL, last_heartbeat_at_ms)
/* Absent metadata leaves that of the stored row as it is. */
#define STORE_ENTITY_METADATA(FIRST, NEXT) FIRST(metadata, TEXT_OR_NULL, metadata)
#define STORE_ENTITIES(FIRST, NEXT)                                                                \
    STORE_ENTITY_KEY(FIRST, NEXT)                                                                  \
    STORE_ENTITY_VALUES(NEXT, NEXT) STORE_ENTITY_METADATA(NEXT, NEXT)

#define STORE_IDEMPOTENCY_KEYS(FIRST, NEXT)                                                        \
    FIRST(entity_ref, NUMBER, entity_ref)                                                          \
    NEXT(key, TEXT, key)                                                                           \
    NEXT(log_id, NUMBER, log_id)

#define STORE_TOPIC_KEY(FIRST, NEXT)                                                               \
    FIRST(ref, NUMBER, ref)                                                                        \
    NEXT(topic, TEXT, name)                                                                        \
    NEXT(stream_id, TEXT, stream_id)
#define STORE_TOPIC_VALUES(FIRST, NEXT)                                                            \
    FIRST(entity_ref, NUMBER_OR_NULL, entity_ref)                                                  \
    NEXT(oldest_seq, NUMBER, oldest_seq)
#define STORE_TOPIC_HEAD(FIRST, NEXT) FIRST(head_seq, TOPIC_HEAD, head_seq)
/* Of the repairs; a commit does not write them. */
#define STORE_TOPIC_REPAIRS(FIRST, NEXT)                                                           \
    FIRST(journal_epoch, NUMBER, journal_epoch)                                                    \
    NEXT(damaged_seq, NUMBER, damaged_seq)
#define STORE_TOPICS_WRITTEN(FIRST, NEXT)                                                          \
    STORE_TOPIC_KEY(FIRST, NEXT)                                                                   \
    STORE_TOPIC_VALUES(NEXT, NEXT) STORE_TOPIC_HEAD(NEXT, NEXT)
#define STORE_TOPICS(FIRST, NEXT) STORE_TOPICS_WRITTEN(FIRST, NEXT) STORE_TOPIC_REPAIRS(NEXT, NEXT)

/* Without the payload, which may be stored without its metadata: an engine restores it. */
#define STORE_JOURNAL_VALUES(FIRST, NEXT)                                                          \
    FIRST(topic_ref, NUMBER, topic_ref)                                                            \
    NEXT(seq, NUMBER, seq)                                                                         \
    NEXT(log_id, NUMBER, log_id)                                                                   \
    NEXT(entity_ref, NUMBER, entity_ref)                                                           \
    NEXT(doc_version, NUMBER, document_version)                                                    \
    NEXT(published_at, NUMBER, published_at_ms)                                                    \
    NEXT(first_entity_seq, NUMBER_OR_NULL, first_seq)                                              \
    NEXT(payload_hash, HASH, payload_hash)
#define STORE_JOURNAL(FIRST, NEXT)                                                                 \
    STORE_JOURNAL_VALUES(FIRST, NEXT)                                                              \
    NEXT(payload, FRAME_PAYLOAD, payload)                                                          \
    NEXT(metadata_at, CUT_PLACE, cut)                                                              \
    NEXT(metadata_hash, CUT_HASH, cut)                                                             \
    NEXT(fields_before, TEXT_OR_NULL, fields_before)

/* Versions of the metadata that cut payloads lack; the rows are documents. */
#define STORE_SUMMARY_METADATA(FIRST, NEXT)                                                        \
    FIRST(entity_ref, NUMBER, entity_ref)                                                          \
    NEXT(metadata_hash, CUT_HASH, cut)                                                             \
    NEXT(metadata, CUT_METADATA, cut)

#define STORE_DOCUMENT_KEY(FIRST, NEXT) FIRST(entity_ref, NUMBER, entity_ref)
#define STORE_DOCUMENT_VALUES(FIRST, NEXT)                                                         \
    FIRST(doc_key, TEXT, key)                                                                      \
    NEXT(doc_version, SEQ, version)                                                                \
    NEXT(payload_hash, HASH, payload_hash)
#define STORE_DOCUMENT_PAYLOAD(FIRST, NEXT)                                                        \
    FIRST(payload, DOCUMENT_PAYLOAD, payload)                                                      \
    NEXT(metadata_at, CUT_PLACE, cut)                                                              \
    NEXT(metadata_hash, CUT_HASH, cut)
#define STORE_DOCUMENT_LISTED(FIRST, NEXT)                                                         \
    FIRST(owner, LISTED_TEXT, listed.owner)                                                        \
    NEXT(state, LISTED_TEXT, listed.state)                                                         \
    NEXT(updated_at, LISTED_NUMBER, listed.updated_at_ms)                                          \
    NEXT(parent_run_id, LISTED_TEXT, listed.parent_run_id)                                         \
    NEXT(title, LISTED_TEXT, listed.title)                                                         \
    NEXT(tags, LISTED_TEXT, listed.tags)
#define STORE_DOCUMENTS(FIRST, NEXT)                                                               \
    STORE_DOCUMENT_KEY(FIRST, NEXT)                                                                \
    STORE_DOCUMENT_VALUES(NEXT, NEXT)                                                              \
    STORE_DOCUMENT_PAYLOAD(NEXT, NEXT) STORE_DOCUMENT_LISTED(NEXT, NEXT)

/* Entities and their documents as lists read them; all of it is joined. */
#define STORE_LIST_ENTITY(FIRST, NEXT)                                                             \
    FIRST(ref, NUMBER, ref)                                                                        \
    NEXT(id, TEXT, id)                                                                             \
    NEXT(status, TEXT_OR_NULL, status)                                                             \
    STORE_ENTITY_OWNER(NEXT, NEXT)                                                                 \
    NEXT(worker_id, TEXT_OR_NULL, worker_id)                                                       \
    NEXT(created_at, NUMBER, created_at_ms)
#define STORE_LIST_DOCUMENT(FIRST, NEXT)                                                           \
    FIRST(updated_at, NUMBER_OR_NULL, updated_at_ms)                                               \
    NEXT(parent_run_id, TEXT_OR_NULL, parent_run_id)                                               \
    NEXT(title, TEXT_OR_NULL, title)                                                               \
    NEXT(tags, TEXT_OR_NULL, tags)
#define STORE_LIST_ROWS(FIRST, NEXT) STORE_LIST_ENTITY(FIRST, NEXT) STORE_LIST_DOCUMENT(NEXT, NEXT)

#define STORE_CHECKPOINT_KEY(FIRST, NEXT)                                                          \
    FIRST(entity_ref, NUMBER, entity_ref)                                                          \
    NEXT(projection_name, PROJECTION, kind)
#define STORE_CHECKPOINT_VALUES(FIRST, NEXT)                                                       \
    FIRST(document_id, TEXT, document_id)                                                          \
    NEXT(last_runtime_seq, SEQ, last_runtime_seq)                                                  \
    NEXT(projection_version, TEXT, projection_version)                                             \
    NEXT(summary_hash, HASH, summary_hash)                                                         \
    NEXT(last_projected_at, NUMBER, last_projected_at_ms)
#define STORE_CHECKPOINTS(FIRST, NEXT)                                                             \
    STORE_CHECKPOINT_KEY(FIRST, NEXT) STORE_CHECKPOINT_VALUES(NEXT, NEXT)

/* The database numbers the rows. */
#define STORE_DRIFT_VALUES(FIRST, NEXT)                                                            \
    FIRST(projection_name, PROJECTION_OR_NONE, kind)                                               \
    NEXT(entity_ref, NUMBER, entity_ref)                                                           \
    NEXT(reason, REASON, reason)                                                                   \
    NEXT(expected_seq, NUMBER, expected_seq)                                                       \
    NEXT(actual_seq, NUMBER, actual_seq)                                                           \
    NEXT(seen_at, NUMBER, seen_at_ms)                                                              \
    NEXT(subject, DRIFT_SUBJECT, subject)
#define STORE_DRIFTS(FIRST, NEXT) FIRST(id, NUMBER, id) STORE_DRIFT_VALUES(NEXT, NEXT)

#define STORE_REVOCATIONS(FIRST, NEXT)                                                             \
    FIRST(kind, REVOCATION_KIND, kind)                                                             \
    NEXT(id, TEXT, id)                                                                             \
    NEXT(reason, TEXT_OR_NULL, reason)                                                             \
    NEXT(revoked_at, NUMBER, revoked_at_ms)                                                        \
    NEXT(expires_at, NUMBER, expires_at_ms)

#define STORE_USAGE_COUNTED(FIRST, NEXT)                                                           \
    FIRST(events, NUMBER, events)                                                                  \
    NEXT(bytes, NUMBER, bytes)                                                                     \
    NEXT(metadata_bytes, NUMBER, metadata_bytes)                                                   \
    NEXT(open_runs, NUMBER, open_runs)                                                             \
    NEXT(open_workers, NUMBER, open_workers)
#define STORE_USAGE_VALUES(FIRST, NEXT)                                                            \
    STORE_USAGE_COUNTED(FIRST, NEXT)                                                               \
    NEXT(unowned_bytes, NUMBER, unowned_bytes)
#define STORE_USAGES(FIRST, NEXT) FIRST(owner, TEXT, owner) STORE_USAGE_VALUES(NEXT, NEXT)

#define STORE_QUOTAS_WRITTEN(FIRST, NEXT)                                                          \
    FIRST(owner, TEXT, owner)                                                                      \
    NEXT(quota, TEXT, name)                                                                        \
    NEXT(value, QUOTA_VALUE, value)
#define STORE_QUOTAS(FIRST, NEXT) STORE_QUOTAS_WRITTEN(FIRST, NEXT) NEXT(serial, NUMBER, serial)

#define STORE_OPERATOR_KEY_VALUES(FIRST, NEXT)                                                     \
    FIRST(role, TEXT, role)                                                                        \
    NEXT(key_id, TEXT, id)                                                                         \
    NEXT(digest, HASH, digest)                                                                     \
    NEXT(created_at, NUMBER, created_at_ms)                                                        \
    NEXT(rotated_at, NUMBER, rotated_at_ms)                                                        \
    NEXT(previous_id, TEXT_OR_NULL, previous_id)                                                   \
    NEXT(previous_digest, HASH, previous_digest)                                                   \
    NEXT(previous_until, NUMBER, previous_until_ms)
#define STORE_OPERATOR_KEYS(FIRST, NEXT)                                                           \
    FIRST(name, TEXT, name) STORE_OPERATOR_KEY_VALUES(NEXT, NEXT)

#define STORE_SINGLE_USES(FIRST, NEXT)                                                             \
    FIRST(kind, SMALL, kind)                                                                       \
    NEXT(id, TEXT, id)                                                                             \
    NEXT(expires_at, NUMBER, expires_at_ms)

/* The owners of frames; all of it is joined. */
#define STORE_JOURNAL_OWNERS(FIRST, NEXT)                                                          \
    FIRST(seq, NUMBER, seq)                                                                        \
    NEXT(ref, JOINED_REF, entity_ref)                                                              \
    STORE_ENTITY_OWNER(NEXT, NEXT)

/* Texts of statements, of a list without its parentheses. */
#define STORE_NAME(name, ...)      #name
#define STORE_NEXT_NAME(name, ...) ", " #name
#define STORE_NAMES(LIST)          LIST(STORE_NAME, STORE_NEXT_NAME)
#define STORE_ONE(...)             0,
#define STORE_COUNT(LIST)          (sizeof((char[]){LIST(STORE_ONE, STORE_ONE)}))
/* "a = excluded.a, b = excluded.b" */
#define STORE_UPDATE(name, ...)      #name " = excluded." #name
#define STORE_NEXT_UPDATE(name, ...) ", " #name " = excluded." #name
#define STORE_UPDATES(LIST)          LIST(STORE_UPDATE, STORE_NEXT_UPDATE)

/* ---- values -------------------------------------------------------------------------------- */

/* How a member of a struct is stored. */
enum store_column_kind {
    COLUMN_NUMBER,           /* uint64_t */
    COLUMN_NUMBER_OR_NULL,   /* 0 is NULL */
    COLUMN_SEQ,              /* at most STORE_SEQ_MAX */
    COLUMN_SMALL,            /* an enum */
    COLUMN_ENTITY_KIND,      /* less than ENTITY_KIND_COUNT */
    COLUMN_REVOCATION_KIND,  /* less than REVOCATION_KIND_COUNT */
    COLUMN_CHAIN_VERSION,    /* from 1 to STORE_CHAIN_VERSION */
    COLUMN_TEXT,             /* struct slice */
    COLUMN_TEXT_OR_NULL,     /* an absent text is NULL */
    COLUMN_HASH,             /* SHA256_BYTES bytes */
    COLUMN_UUID,             /* struct uuid */
    COLUMN_BYTES,            /* bytes that only moves read and write */
    COLUMN_EVENT_ID,         /* NULL: the event's cursor */
    COLUMN_EVENT_TIME,       /* NULL: the time of the event's cursor */
    COLUMN_EVENT_OWNER,      /* NULL, unless the kind of entity has owners per event */
    COLUMN_TOPIC_HEAD,       /* NULL: the head of the topic's entity */
    COLUMN_FRAME_PAYLOAD,    /* without its metadata, if the row is cut; NULL: the event's */
    COLUMN_DOCUMENT_PAYLOAD, /* without its metadata, if the row is cut */
    COLUMN_CUT_PLACE,        /* the place of the metadata; NULL: the row is not cut */
    COLUMN_CUT_HASH,         /* of the metadata */
    COLUMN_CUT_METADATA,     /* the metadata */
    COLUMN_LISTED_TEXT,      /* of a document, for lists; an absent text is NULL */
    COLUMN_LISTED_NUMBER,
    COLUMN_PROJECTION, /* a document kind, by name */
    COLUMN_PROJECTION_OR_NONE,
    COLUMN_REASON,        /* enum reason, by code */
    COLUMN_DRIFT_SUBJECT, /* a drift has a subject, a projection, or both */
    COLUMN_QUOTA_VALUE,   /* NULL: the quota was removed */
    COLUMN_REPLACED_SEQ,  /* of the rows that a checkpoint and its document replace */
    COLUMN_REPLACED_HASH, /* of these rows */
    COLUMN_JOINED_REF,    /* the ref of an entity; NULL: the entity is missing */
    COLUMN_JOINED_OWNER,  /* the owner of an event, unless its kind has owners per event */
    COLUMN_JOINED_HASH,   /* of the entity's last event; NULL: it has none */
    COLUMN_KIND_COUNT,
};

struct store_column {
    const char *name;
    enum store_column_kind kind;
    size_t offset; /* of the member */
};

/* A row as a struct: the columns of a table, and behind them those that statements join. */
struct store_layout {
    const char *row_name; /* in messages, before the number of the row */
    size_t number_offset;
    size_t row_bytes;
    const struct store_column *columns;
    size_t column_count; /* of the table */
    size_t joined_count;
};

/* The entity of a journal row, with its owner. */
struct store_owner_row {
    uint64_t seq;
    uint64_t entity_ref;
    struct owner owner;
};

extern const struct store_layout store_event_layout;
extern const struct store_layout store_event_id_layout; /* the rows are events */
extern const struct store_layout store_entity_layout;
extern const struct store_layout store_key_layout;
extern const struct store_layout store_topic_layout;
extern const struct store_layout store_journal_layout;
extern const struct store_layout store_metadata_layout; /* the rows are documents */
extern const struct store_layout store_document_layout;
extern const struct store_layout store_walked_document_layout; /* joined to the entity */
extern const struct store_layout store_checkpoint_layout;
extern const struct store_layout store_replaced_layout; /* the rows are checkpoints */
extern const struct store_layout store_drift_layout;
extern const struct store_layout store_revocation_layout;
extern const struct store_layout store_usage_layout;
extern const struct store_layout store_quota_layout;
extern const struct store_layout store_operator_key_layout;
extern const struct store_layout store_single_use_layout;
extern const struct store_layout store_owner_layout;
extern const struct store_layout store_list_layout;
extern const struct store_layout store_minted_id_layout;
extern const struct store_layout store_property_layout;

/* A value between a struct and an engine. */
struct store_value {
    bool is_null;
    int64_t number;     /* of types 'n' and 's' */
    struct slice bytes; /* of all others */
};

/* n number, s small number, t text, b bytes, u uuid. */
char store_column_type(const struct store_column *column);
/* Statements do not select what a cut payload consists of: they restore the payload. Nor what only
 * lists read. */
static inline bool store_column_is_selected(const struct store_column *column) {
    return column->kind < COLUMN_CUT_PLACE || column->kind > COLUMN_LISTED_NUMBER;
}
/* How many columns a statement selects. */
size_t store_layout_selected(const struct store_layout *layout);
/* Bytes of the value belong to the row. */
void store_column_get(const struct store_column *column, const void *row,
                      struct store_value *value);
/* Sets the member from a stored value, after those of the columns before it. False: the value
 * cannot be one of that column. */
MUST_CHECK bool store_column_set(const struct store_column *column, void *row,
                                 const struct store_value *value);
/* Copies the texts of a row into the arena. False: the arena has no room. */
MUST_CHECK bool store_keep(struct arena *arena, const struct store_layout *layout, void *row);
/* The number of the row, for messages. */
uint64_t store_row_number(const struct store_layout *layout, const void *row);

/* ---- moves ----------------------------------------------------------------------------------- */

/* A table that moves. */
struct store_table {
    const char *name;
    const struct store_layout *layout;
    size_t key_count;   /* columns of the key, which are the first ones */
    const char *filter; /* a condition of the rows that move; NULL: all rows */
    /* A new store has rows up to this first key: 0 none, -1 any. */
    int64_t new_key_max;
    /* A few rows that are written in one transaction, in place of those that a new store has. */
    bool is_replaced;
};

/* In the order in which they move. Ends with a row whose name is NULL. */
extern const struct store_table store_tables[];

#define STORE_PAGE_COLUMNS_MAX 20

struct store_page {
    const struct store_table *table;
    size_t row_max;
    size_t row_count;
    size_t bytes; /* of the texts */
    struct arena arena;
    struct store_value *values; /* row by row */
};

MUST_CHECK enum status store_page_init(struct store_page *page);
void store_page_release(struct store_page *page);
/* Makes the page ready for rows of the table. */
void store_page_clear(struct store_page *page, const struct store_table *table);
bool store_page_is_full(const struct store_page *page);
/* Adds a row and copies its texts. */
MUST_CHECK enum status store_page_add(struct store_page *page, const struct store_value *values);
/* A row of the page. */
static inline const struct store_value *store_page_row(const struct store_page *page,
                                                       size_t index) {
    return page->values + index * page->table->layout->column_count;
}

/* For engines: the query of rows. places: the values of a key, after which the rows follow; NULL:
 * from the first row on. is_last: from the last row back. */
#define STORE_ROWS_SQL_BYTES_MAX 2048
struct store_rows_query {
    const struct store_table *table;
    const char *places;
    size_t limit;
    bool is_last;
};
void store_rows_sql(const struct store_rows_query *query, char sql[STORE_ROWS_SQL_BYTES_MAX]);
/* Appends the names of the first columns, each with the suffix. */
void store_table_names(const struct store_table *table, size_t count, const char *suffix,
                       struct buffer *text);
const char *store_table_filter(const struct store_table *table);

#endif
