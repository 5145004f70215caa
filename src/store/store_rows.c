#include "store/store_rows.h"

#include <assert.h>
#include <stdlib.h>

#include "base/buffer.h"

/* One transaction writes at most one page. */
#define PAGE_ROWS_MAX   1024
#define PAGE_BYTES      (1 << 20)
#define ARENA_BYTES_MAX (256 << 20)

/* These numbers are in databases: the enums may grow, never change. */
_Static_assert(ENTITY_RUN == 0 && ENTITY_WORKER == 1 && ENTITY_TOPIC == 2 && ENTITY_AUDIT == 3,
               "the kinds of the entities table");

/* ---- layouts ---- */

#define COLUMN(struct_name, name, kind, member)                                                    \
    {#name, COLUMN_##kind, offsetof(struct struct_name, member)},
/* Rows of the struct, with the columns of the list. C makes a column of that struct; the joined
 * columns follow. number is the member that names a row in messages. */
#define LAYOUT(layout, struct_name, number, described, LIST, C, ...)                               \
    static const struct store_column layout##_columns[] = {LIST(C, C) __VA_ARGS__};                \
    const struct store_layout store_##layout##_layout = {                                          \
        .row_name = described,                                                                     \
        .number_offset = offsetof(struct struct_name, number),                                     \
        .row_bytes = sizeof(struct struct_name),                                                   \
        .columns = layout##_columns,                                                               \
        .column_count = STORE_COUNT(LIST),                                                         \
        .joined_count =                                                                            \
            sizeof(layout##_columns) / sizeof(layout##_columns[0]) - STORE_COUNT(LIST),            \
    };

#define EVENT(...)        COLUMN(store_event, __VA_ARGS__)
#define ENTITY(...)       COLUMN(store_entity, __VA_ARGS__)
#define KEY(...)          COLUMN(store_key, __VA_ARGS__)
#define TOPIC(...)        COLUMN(store_topic, __VA_ARGS__)
#define FRAME(...)        COLUMN(store_journal_row, __VA_ARGS__)
#define DOCUMENT(...)     COLUMN(store_document, __VA_ARGS__)
#define CHECKPOINT(...)   COLUMN(store_checkpoint, __VA_ARGS__)
#define DRIFT(...)        COLUMN(store_drift, __VA_ARGS__)
#define REVOCATION(...)   COLUMN(store_revocation, __VA_ARGS__)
#define USAGE(...)        COLUMN(store_usage, __VA_ARGS__)
#define QUOTA(...)        COLUMN(store_quota, __VA_ARGS__)
#define OPERATOR_KEY(...) COLUMN(store_operator_key, __VA_ARGS__)
#define SINGLE_USE(...)   COLUMN(store_single_use, __VA_ARGS__)
#define OWNER(...)        COLUMN(store_owner_row, __VA_ARGS__)
#define LISTED(...)       COLUMN(store_list_row, __VA_ARGS__)
#define PROPERTY(...)     COLUMN(store_property, __VA_ARGS__)
#define MINTED_ID(...)    COLUMN(minted_id, __VA_ARGS__)

LAYOUT(event, store_event, log_id, "event", STORE_EVENTS, EVENT,
       EVENT(kind, ENTITY_KIND, entity_kind) EVENT(id, TEXT, entity_id)
           EVENT(owner_user_id, JOINED_OWNER, owner.user_id)
               EVENT(owner_guest_scope, JOINED_OWNER, owner.guest_scope)
                   EVENT(org_id, JOINED_OWNER, owner.org_id))
LAYOUT(event_id, store_event, log_id, "the id of event", STORE_EVENT_IDS, EVENT, )
LAYOUT(entity, store_entity, ref, "entity", STORE_ENTITIES, ENTITY,
       ENTITY(seq, SEQ, head_seq) ENTITY(chain_hash, JOINED_HASH, head_hash))
LAYOUT(key, store_key, log_id, "the key of event", STORE_IDEMPOTENCY_KEYS, KEY, )
LAYOUT(topic, store_topic, ref, "topic", STORE_TOPICS, TOPIC, )
LAYOUT(journal, store_journal_row, seq, "journal row", STORE_JOURNAL, FRAME, )
LAYOUT(metadata, store_document, entity_ref, "the metadata of entity", STORE_SUMMARY_METADATA,
       DOCUMENT, )
LAYOUT(document, store_document, entity_ref, "the document of entity", STORE_DOCUMENTS, DOCUMENT, )
LAYOUT(walked_document, store_document, entity_ref, "the document of entity", STORE_DOCUMENTS,
       DOCUMENT, DOCUMENT(ref, NUMBER, entity_ref) STORE_ENTITY_OWNER(DOCUMENT, DOCUMENT))
LAYOUT(checkpoint, store_checkpoint, entity_ref, "the checkpoint of entity", STORE_CHECKPOINTS,
       CHECKPOINT, )
#define REPLACED(...) COLUMN(store_summary_rows, __VA_ARGS__)
#define REPLACED_ROWS(FIRST, NEXT)                                                                 \
    CHECKPOINT(entity_ref, NUMBER, entity_ref)                                                     \
    NEXT(last_runtime_seq, REPLACED_SEQ, last_runtime_seq)                                         \
    NEXT(summary_hash, REPLACED_HASH, summary_hash)                                                \
    NEXT(doc_version, REPLACED_SEQ, document_version)                                              \
    NEXT(payload_hash, REPLACED_HASH, document_hash)                                               \
    CHECKPOINT(last_projected_at, NUMBER, last_projected_at_ms)
static const struct store_column replaced_columns[] = {REPLACED_ROWS(REPLACED, REPLACED)};
const struct store_layout store_replaced_layout = {.columns = replaced_columns, .column_count = 6};
LAYOUT(drift, store_drift, entity_ref, "the drift of entity", STORE_DRIFTS, DRIFT,
       DRIFT(entity_id, TEXT_OR_NULL, entity_id))
LAYOUT(revocation, store_revocation, revoked_at_ms, "a revocation of time", STORE_REVOCATIONS,
       REVOCATION, )
LAYOUT(usage, store_usage, bytes, "the usage of an owner, bytes", STORE_USAGES, USAGE, )
LAYOUT(quota, store_quota, serial, "the quota with serial", STORE_QUOTAS, QUOTA, )
LAYOUT(operator_key, store_operator_key, created_at_ms, "operator key", STORE_OPERATOR_KEYS,
       OPERATOR_KEY, )
LAYOUT(single_use, store_single_use, expires_at_ms, "a single use until", STORE_SINGLE_USES,
       SINGLE_USE, )
LAYOUT(list, store_list_row, ref, "the list's entity", STORE_LIST_ROWS, LISTED, )
LAYOUT(owner, store_owner_row, seq, "the entity of journal row", STORE_JOURNAL_OWNERS, OWNER, )

/* Tables that only move. */
struct minted_id {
    unsigned id;
    struct slice mark;
    struct uuid unmarked_max;
};
#define MINTED_IDS(FIRST, NEXT)                                                                    \
    FIRST(id, SMALL, id) NEXT(mark, BYTES, mark) NEXT(unmarked_max, UUID, unmarked_max)
#define PROPERTIES(FIRST, NEXT) FIRST(name, TEXT, name) NEXT(value, TEXT, value)
LAYOUT(minted_id, minted_id, id, "table minted_ids, row", MINTED_IDS, MINTED_ID, )
LAYOUT(property, store_property, name, "a property", PROPERTIES, PROPERTY, )

size_t store_layout_selected(const struct store_layout *layout) {
    size_t count = 0;
    for (size_t i = 0; i < layout->column_count + layout->joined_count; i++)
        count += store_column_is_selected(&layout->columns[i]);
    return count;
}

uint64_t store_row_number(const struct store_layout *layout, const void *row) {
    uint64_t number;
    memcpy(&number, (const char *)row + layout->number_offset, sizeof(number));
    return number;
}

/* ---- values ---- */

/* Types as store_column_type says them; whether the member is a text that store_keep copies;
 * whether NULL is damage. The owner of an event is copied once, under the event's own columns. */
static const struct {
    char type;
    bool is_kept;
    bool is_required;
} kinds[COLUMN_KIND_COUNT] = {
    [COLUMN_NUMBER] = {'n', false, false},
    [COLUMN_NUMBER_OR_NULL] = {'n', false, false},
    [COLUMN_SEQ] = {'n', false, false},
    [COLUMN_SMALL] = {'s', false, false},
    [COLUMN_ENTITY_KIND] = {'s', false, false},
    [COLUMN_REVOCATION_KIND] = {'s', false, false},
    [COLUMN_CHAIN_VERSION] = {'s', false, false},
    [COLUMN_TEXT] = {'t', true, true},
    [COLUMN_TEXT_OR_NULL] = {'t', true, false},
    [COLUMN_HASH] = {'b', false, false},
    [COLUMN_UUID] = {'u', false, false},
    [COLUMN_BYTES] = {'b', true, false},
    [COLUMN_EVENT_ID] = {'u', false, false},
    [COLUMN_EVENT_TIME] = {'n', false, false},
    [COLUMN_EVENT_OWNER] = {'t', true, false},
    [COLUMN_TOPIC_HEAD] = {'n', false, false},
    [COLUMN_FRAME_PAYLOAD] = {'t', true, false},
    [COLUMN_DOCUMENT_PAYLOAD] = {'t', true, true},
    [COLUMN_CUT_PLACE] = {'n', false, false},
    [COLUMN_CUT_HASH] = {'b', false, false},
    [COLUMN_CUT_METADATA] = {'t', false, false},
    [COLUMN_LISTED_TEXT] = {'t', false, false},
    [COLUMN_LISTED_NUMBER] = {'n', false, false},
    [COLUMN_PROJECTION] = {'t', false, false},
    [COLUMN_PROJECTION_OR_NONE] = {'t', false, false},
    [COLUMN_REASON] = {'t', false, false},
    [COLUMN_DRIFT_SUBJECT] = {'t', true, false},
    [COLUMN_QUOTA_VALUE] = {'n', false, false},
    [COLUMN_REPLACED_SEQ] = {'n', false, false},
    [COLUMN_REPLACED_HASH] = {'b', false, false},
    [COLUMN_JOINED_REF] = {'n', false, true},
    [COLUMN_JOINED_OWNER] = {'t', false, false},
    [COLUMN_JOINED_HASH] = {'b', false, false},
};

char store_column_type(const struct store_column *column) {
    return kinds[column->kind].type;
}

static uint64_t number_of(const void *member) {
    uint64_t number;
    memcpy(&number, member, sizeof(number));
    return number;
}

static unsigned small_of(const void *member) {
    unsigned number;
    memcpy(&number, member, sizeof(number));
    return number;
}

static void get_number(struct store_value *value, uint64_t number, bool is_null) {
    assert(number <= INT64_MAX);
    value->number = (int64_t)number;
    value->is_null = is_null;
}

static void get_bytes(struct store_value *value, const void *bytes, size_t size) {
    value->bytes = (struct slice){bytes, size};
    value->is_null = bytes == NULL;
}

static const char *name_of(enum store_column_kind kind, unsigned number) {
    return kind == COLUMN_REASON ? reason_code((enum reason)number)
                                 : document_kind_name((enum document_kind)number);
}

/* NULL, unless the payload is cut. */
static void get_cut(struct store_value *value, enum store_column_kind kind,
                    const struct store_cut *cut) {
    if (kind == COLUMN_CUT_PLACE)
        get_number(value, cut ? cut->metadata_at : 0, cut == NULL);
    else if (kind == COLUMN_CUT_HASH)
        get_bytes(value, cut ? cut->metadata_hash : NULL, SHA256_BYTES);
    else
        get_bytes(value, cut ? cut->metadata.data : NULL, cut ? cut->metadata.size : 0);
}

static const void *written_member(const struct store_column *column, const void *row) {
    bool is_replaced = column->kind == COLUMN_REPLACED_SEQ || column->kind == COLUMN_REPLACED_HASH;
    const void *owner = is_replaced ? ((const struct store_checkpoint *)row)->replaced : row;
    return (const char *)owner + column->offset;
}

void store_column_get(const struct store_column *column, const void *row,
                      struct store_value *value) {
    const void *member = written_member(column, row);
    const struct store_event *event = row;
    const struct store_journal_row *frame = row;
    const struct store_document *document = row;
    const struct store_topic *topic = row;
    struct slice text;
    bool is_absent;
    switch (column->kind) {
    case COLUMN_NUMBER:
    case COLUMN_SEQ:
    case COLUMN_REPLACED_SEQ:
    case COLUMN_LISTED_NUMBER:
        return get_number(value, number_of(member), false);
    case COLUMN_NUMBER_OR_NULL:
        return get_number(value, number_of(member), number_of(member) == 0);
    case COLUMN_SMALL:
    case COLUMN_ENTITY_KIND:
    case COLUMN_REVOCATION_KIND:
    case COLUMN_CHAIN_VERSION:
        return get_number(value, small_of(member), false);
    case COLUMN_TEXT:
    case COLUMN_TEXT_OR_NULL:
    case COLUMN_DRIFT_SUBJECT:
    case COLUMN_LISTED_TEXT:
        memcpy(&text, member, sizeof(text));
        return get_bytes(value, text.data, text.size);
    case COLUMN_EVENT_OWNER:
        memcpy(&text, member, sizeof(text));
        /* An owner that is the entity's is in the entity's row. */
        return get_bytes(value, entity_row(event->entity_kind)->has_event_owner ? text.data : NULL,
                         text.size);
    case COLUMN_HASH:
    case COLUMN_REPLACED_HASH:
        return get_bytes(value, member, SHA256_BYTES);
    case COLUMN_UUID:
        return get_bytes(value, member, sizeof(struct uuid));
    case COLUMN_EVENT_ID:
        return get_bytes(value, uuid_compare(&event->event_id, &event->cursor) == 0 ? NULL : member,
                         sizeof(struct uuid));
    case COLUMN_EVENT_TIME:
        is_absent = event->recorded_at_ms == uuid7_timestamp_ms(&event->cursor);
        return get_number(value, event->recorded_at_ms, is_absent);
    case COLUMN_TOPIC_HEAD:
        return get_number(value, number_of(member), topic->entity_ref != 0);
    case COLUMN_QUOTA_VALUE:
        return get_number(value, number_of(member), !((const struct store_quota *)row)->is_set);
    case COLUMN_FRAME_PAYLOAD:
        text = frame->cut ? frame->cut->text : frame->payload;
        return get_bytes(value, text.data, text.size);
    case COLUMN_DOCUMENT_PAYLOAD:
        text = document->cut ? document->cut->text : document->payload;
        return get_bytes(value, text.data, text.size);
    case COLUMN_CUT_PLACE:
    case COLUMN_CUT_HASH:
    case COLUMN_CUT_METADATA:
        return get_cut(value, column->kind, *(const struct store_cut *const *)member);
    case COLUMN_PROJECTION:
    case COLUMN_PROJECTION_OR_NONE:
    case COLUMN_REASON:
        text = slice_of(name_of(column->kind, small_of(member)));
        return get_bytes(value, text.data, text.size);
    case COLUMN_BYTES:
    case COLUMN_JOINED_REF:
    case COLUMN_JOINED_OWNER:
    case COLUMN_JOINED_HASH:
    case COLUMN_KIND_COUNT:
        assert(false); /* never written */
    }
}

static bool set_small(const struct store_column *column, void *member,
                      const struct store_value *value) {
    static const struct {
        unsigned min;
        unsigned end;
    } ranges[COLUMN_KIND_COUNT] = {
        [COLUMN_SMALL] = {0, UINT16_MAX},
        [COLUMN_ENTITY_KIND] = {0, ENTITY_KIND_COUNT},
        [COLUMN_REVOCATION_KIND] = {0, REVOCATION_KIND_COUNT},
        [COLUMN_CHAIN_VERSION] = {1, STORE_CHAIN_VERSION + 1},
    };
    bool is_sound = !value->is_null && value->number >= ranges[column->kind].min &&
                    value->number < ranges[column->kind].end;
    unsigned number = is_sound ? (unsigned)value->number : ranges[column->kind].end;
    memcpy(member, &number, sizeof(number));
    return is_sound;
}

static bool set_bytes(void *member, const struct store_value *value, size_t size) {
    if (value->is_null || value->bytes.size != size)
        return false;
    memcpy(member, value->bytes.data, size);
    return true;
}

static bool set_reason(void *member, const struct store_value *value) {
    for (unsigned i = 0; i < REASON_COUNT; i++)
        if (!value->is_null && slice_equal(value->bytes, slice_of(reason_code((enum reason)i)))) {
            memcpy(member, &i, sizeof(i));
            return true;
        }
    return false;
}

static bool set_projection(void *member, struct slice name) {
    unsigned kind = name.data ? document_kind_of(name) : DOCUMENT_NONE;
    memcpy(member, &kind, sizeof(kind));
    return kind != DOCUMENT_NONE;
}

bool store_column_set(const struct store_column *column, void *row,
                      const struct store_value *value) {
    void *member = (char *)row + column->offset;
    struct store_event *event = row;
    struct store_entity *entity = row;
    struct store_quota *quota = row;
    struct slice text = value->is_null ? (struct slice){NULL, 0} : value->bytes;
    uint64_t number = value->is_null ? 0 : (uint64_t)value->number;
    bool is_present = !value->is_null || !kinds[column->kind].is_required;
    switch (column->kind) {
    case COLUMN_NUMBER:
    case COLUMN_NUMBER_OR_NULL:
    case COLUMN_TOPIC_HEAD:
    case COLUMN_SEQ:
    case COLUMN_JOINED_REF:
        memcpy(member, &number, sizeof(number));
        return is_present && (column->kind != COLUMN_SEQ || number <= STORE_SEQ_MAX);
    case COLUMN_QUOTA_VALUE:
        quota->is_set = !value->is_null;
        memcpy(member, &number, sizeof(number));
        return true;
    case COLUMN_SMALL:
    case COLUMN_ENTITY_KIND:
    case COLUMN_REVOCATION_KIND:
    case COLUMN_CHAIN_VERSION:
        return set_small(column, member, value);
    case COLUMN_TEXT:
    case COLUMN_DOCUMENT_PAYLOAD:
    case COLUMN_TEXT_OR_NULL:
    case COLUMN_EVENT_OWNER:
    case COLUMN_FRAME_PAYLOAD:
        memcpy(member, &text, sizeof(text));
        return is_present;
    case COLUMN_DRIFT_SUBJECT:
        memcpy(member, &text, sizeof(text));
        return text.data || ((struct store_drift *)row)->kind != DOCUMENT_NONE;
    case COLUMN_JOINED_OWNER:
        if (event->entity_kind < ENTITY_KIND_COUNT &&
            !entity_row(event->entity_kind)->has_event_owner)
            memcpy(member, &text, sizeof(text));
        return true;
    case COLUMN_HASH:
        return set_bytes(member, value, SHA256_BYTES);
    case COLUMN_JOINED_HASH:
        return entity->head_seq == 0 || set_bytes(member, value, SHA256_BYTES);
    case COLUMN_UUID:
        return set_bytes(member, value, sizeof(struct uuid));
    case COLUMN_EVENT_ID:
        event->event_id = event->cursor;
        return value->is_null || set_bytes(member, value, sizeof(struct uuid));
    case COLUMN_EVENT_TIME:
        event->recorded_at_ms = value->is_null ? uuid7_timestamp_ms(&event->cursor) : number;
        return true;
    case COLUMN_PROJECTION:
    case COLUMN_PROJECTION_OR_NONE:
        return set_projection(member, text) || column->kind == COLUMN_PROJECTION_OR_NONE;
    case COLUMN_REASON:
        return set_reason(member, value);
    case COLUMN_BYTES:
    case COLUMN_CUT_PLACE:
    case COLUMN_CUT_HASH:
    case COLUMN_CUT_METADATA:
    case COLUMN_LISTED_TEXT:
    case COLUMN_LISTED_NUMBER:
    case COLUMN_REPLACED_SEQ:
    case COLUMN_REPLACED_HASH:
    case COLUMN_KIND_COUNT:
        assert(false); /* never read into a struct */
    }
    return false;
}

bool store_keep(struct arena *arena, const struct store_layout *layout, void *row) {
    for (size_t i = 0; i < layout->column_count + layout->joined_count; i++) {
        struct slice text;
        void *member = (char *)row + layout->columns[i].offset;
        if (!kinds[layout->columns[i].kind].is_kept)
            continue;
        memcpy(&text, member, sizeof(text));
        if (!text.data)
            continue;
        text = arena_copy(arena, text);
        if (!text.data)
            return false;
        memcpy(member, &text, sizeof(text));
    }
    return true;
}

/* ---- tables that move ---- */

#define DOCUMENT_TABLE(kind, title, table, ...)                                                    \
    {.name = (table), .layout = &store_document_layout, .key_count = 1},

/* Events come first, because they are most of the work. The positions of an entity's events, which
 * the embedded store keeps in tables of their own, follow from them. */
const struct store_table store_tables[] = {
    {.name = "events", .layout = &store_event_layout, .key_count = 1},
    {.name = "event_ids", .layout = &store_event_id_layout, .key_count = 1},
    {.name = "entities", .layout = &store_entity_layout, .key_count = 1, .new_key_max = 1},
    {.name = "idempotency_keys", .layout = &store_key_layout, .key_count = 2},
    {.name = "topics", .layout = &store_topic_layout, .key_count = 1, .new_key_max = 4},
    {.name = "journal", .layout = &store_journal_layout, .key_count = 2},
    {.name = "summary_metadata", .layout = &store_metadata_layout, .key_count = 2},
    DOCUMENT_KINDS(DOCUMENT_TABLE){
        .name = "checkpoints", .layout = &store_checkpoint_layout, .key_count = 2},
    {.name = "khala_projection_drifts",
     .layout = &store_drift_layout,
     .key_count = 1,
     .new_key_max = -1},
    {.name = "sync_revocations", .layout = &store_revocation_layout, .key_count = 2},
    {.name = "owner_usage", .layout = &store_usage_layout, .key_count = 1},
    {.name = "owner_quotas", .layout = &store_quota_layout, .key_count = 2},
    {.name = "operator_keys", .layout = &store_operator_key_layout, .key_count = 1},
    {.name = "sync_single_uses", .layout = &store_single_use_layout, .key_count = 2},
    {.name = "minted_ids",
     .layout = &store_minted_id_layout,
     .key_count = 1,
     .new_key_max = -1,
     .is_replaced = true},
    /* The other properties are about one engine, or about the move. */
    {.name = "meta",
     .layout = &store_property_layout,
     .key_count = 1,
     .filter = "(name IN ('epoch', 'journal_epoch', 'unprojected_from', 'projection_version', "
               "'fork_log_id', 'import_log_id') OR name LIKE 'fork-%' OR name LIKE 'sink-%')",
     .new_key_max = -1,
     .is_replaced = true},
    {.name = NULL},
};

/* ---- pages ---- */

enum status store_page_init(struct store_page *page) {
    *page = (struct store_page){.row_max = PAGE_ROWS_MAX};
    arena_init(&page->arena, ARENA_BYTES_MAX);
    page->values = calloc(PAGE_ROWS_MAX * STORE_PAGE_COLUMNS_MAX, sizeof(*page->values));
    return page->values ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

void store_page_release(struct store_page *page) {
    arena_release(&page->arena);
    free(page->values);
    page->values = NULL;
}

void store_page_clear(struct store_page *page, const struct store_table *table) {
    assert(table->layout->column_count <= STORE_PAGE_COLUMNS_MAX);
    page->table = table;
    page->row_count = page->bytes = 0;
    arena_reset(&page->arena);
}

bool store_page_is_full(const struct store_page *page) {
    return page->row_count == page->row_max || page->bytes >= PAGE_BYTES;
}

enum status store_page_add(struct store_page *page, const struct store_value *values) {
    const struct store_layout *layout = page->table->layout;
    struct store_value *row = page->values + page->row_count * layout->column_count;
    assert(page->row_count < page->row_max);
    for (size_t i = 0; i < layout->column_count; i++) {
        char type = store_column_type(&layout->columns[i]);
        row[i] = values[i];
        if (row[i].is_null || type == 'n' || type == 's')
            continue;
        if (type == 'u' && row[i].bytes.size != sizeof(struct uuid))
            return STATUS_INTERNAL_ERROR;
        row[i].bytes = arena_copy(&page->arena, row[i].bytes);
        if (!row[i].bytes.data)
            return STATUS_OUT_OF_MEMORY;
        page->bytes += row[i].bytes.size;
    }
    page->row_count++;
    return STATUS_OK;
}

/* ---- queries of moves ---- */

const char *store_table_filter(const struct store_table *table) {
    return table->filter ? table->filter : "true";
}

void store_table_names(const struct store_table *table, size_t count, const char *suffix,
                       struct buffer *text) {
    for (size_t i = 0; i < count; i++)
        buffer_printf(text, "%s%s%s", i > 0 ? ", " : "", table->layout->columns[i].name, suffix);
}

void store_rows_sql(const struct store_rows_query *query, char sql[STORE_ROWS_SQL_BYTES_MAX]) {
    const struct store_table *table = query->table;
    struct buffer text = buffer_over(sql, STORE_ROWS_SQL_BYTES_MAX);
    buffer_printf(&text, "SELECT ");
    store_table_names(table, table->layout->column_count, "", &text);
    buffer_printf(&text, " FROM %s WHERE %s", table->name, store_table_filter(table));
    if (query->places) {
        buffer_printf(&text, " AND (");
        store_table_names(table, table->key_count, "", &text);
        buffer_printf(&text, ") > (%s)", query->places);
    }
    buffer_printf(&text, " ORDER BY ");
    store_table_names(table, table->key_count, query->is_last ? " DESC" : "", &text);
    buffer_printf(&text, " LIMIT %zu%c", query->limit, '\0');
    assert(buffer_status(&text) == STATUS_OK);
}
