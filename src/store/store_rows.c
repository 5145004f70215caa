#include "store/store_rows.h"

#include <assert.h>
#include <stdlib.h>

#include "base/buffer.h"

/* One transaction writes at most one page. */
#define PAGE_ROWS_MAX   1024
#define PAGE_BYTES      (1 << 20)
#define ARENA_BYTES_MAX (256 << 20)
#define UUID_BYTES      16

#define DOCUMENT_ROW(kind, title, table, ...)                                                      \
    {.name = (table),                                                                              \
     .columns = "entity_ref, doc_key, doc_version, payload_hash, payload, metadata_at, "           \
                "metadata_hash",                                                                   \
     .kinds = "ntnbtnb",                                                                           \
     .key_count = 1},

/* Events come first, because they are most of the work. The positions of an entity's events, which
 * the embedded store keeps in tables of their own, follow from them. */
const struct store_table store_tables[] = {
    {.name = "events",
     .columns = "log_id, entity_ref, seq, cursor, event_id, type, owner_user_id, "
                "owner_guest_scope, org_id, payload_hash, prev_chain_hash, chain_hash, payload, "
                "recorded_at, chain_version",
     .kinds = "nnnuuttttbbbtns",
     .key_count = 1},
    {.name = "event_ids", .columns = "event_id, log_id", .kinds = "un", .key_count = 1},
    {.name = "entities",
     .columns = "ref, kind, id, owner_user_id, owner_guest_scope, org_id, status, worker_id, "
                "thread_id, workspace_ref, codex_home_ref, adapter, metadata, created_at, "
                "started_at, stopped_at, last_heartbeat_at",
     .kinds = "nstttttttttttnnnn",
     .key_count = 1,
     .new_key_max = 1},
    {.name = "idempotency_keys",
     .columns = "entity_ref, key, log_id",
     .kinds = "ntn",
     .key_count = 2},
    {.name = "topics",
     .columns = "ref, topic, stream_id, entity_ref, oldest_seq, head_seq, journal_epoch, "
                "damaged_seq",
     .kinds = "nttnnnnn",
     .key_count = 1,
     .new_key_max = 4},
    {.name = "journal",
     .columns = "topic_ref, seq, log_id, entity_ref, doc_version, published_at, "
                "first_entity_seq, payload_hash, payload, metadata_at, metadata_hash",
     .kinds = "nnnnnnnbtnb",
     .key_count = 2},
    {.name = "summary_metadata",
     .columns = "entity_ref, metadata_hash, metadata",
     .kinds = "nbt",
     .key_count = 2},
    DOCUMENT_KINDS(DOCUMENT_ROW){.name = "checkpoints",
                                 .columns =
                                     "entity_ref, projection_name, document_id, last_runtime_seq, "
                                     "projection_version, summary_hash, last_projected_at",
                                 .kinds = "nttntbn",
                                 .key_count = 2},
    {.name = "khala_projection_drifts",
     .columns = "id, projection_name, entity_ref, reason, expected_seq, actual_seq, seen_at, "
                "subject",
     .kinds = "ntntnnnt",
     .key_count = 1,
     .new_key_max = -1},
    {.name = "sync_revocations",
     .columns = "kind, id, reason, revoked_at, expires_at",
     .kinds = "sttnn",
     .key_count = 2},
    {.name = "owner_usage",
     .columns = "owner, events, bytes, metadata_bytes, open_runs, open_workers, unowned_bytes",
     .kinds = "tnnnnnn",
     .key_count = 1},
    {.name = "owner_quotas",
     .columns = "owner, quota, value, serial",
     .kinds = "ttnn",
     .key_count = 2},
    {.name = "operator_keys",
     .columns = "name, role, key_id, digest, created_at, rotated_at, previous_id, "
                "previous_digest, previous_until",
     .kinds = "tttbnntbn",
     .key_count = 1},
    {.name = "sync_single_uses", .columns = "kind, id, expires_at", .kinds = "stn", .key_count = 2},
    {.name = "minted_ids",
     .columns = "id, mark, unmarked_max",
     .kinds = "sbu",
     .key_count = 1,
     .new_key_max = -1,
     .is_replaced = true},
    /* The other properties are about one engine, or about the move. */
    {.name = "meta",
     .columns = "name, value",
     .kinds = "tt",
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
    page->table = table;
    page->column_count = strlen(table->kinds);
    assert(page->column_count <= STORE_PAGE_COLUMNS_MAX);
    page->row_count = page->bytes = 0;
    arena_reset(&page->arena);
}

bool store_page_is_full(const struct store_page *page) {
    return page->row_count == page->row_max || page->bytes >= PAGE_BYTES;
}

enum status store_page_add(struct store_page *page, const struct store_value *values) {
    struct store_value *row = page->values + page->row_count * page->column_count;
    assert(page->row_count < page->row_max);
    for (size_t i = 0; i < page->column_count; i++) {
        char kind = page->table->kinds[i];
        row[i] = values[i];
        if (row[i].is_null || kind == 'n' || kind == 's')
            continue;
        if (kind == 'u' && row[i].bytes.size != UUID_BYTES)
            return STATUS_INTERNAL_ERROR;
        row[i].bytes = arena_copy(&page->arena, row[i].bytes);
        if (!row[i].bytes.data)
            return STATUS_OUT_OF_MEMORY;
        page->bytes += row[i].bytes.size;
    }
    page->row_count++;
    return STATUS_OK;
}

/* ---- queries ---- */

const char *store_table_filter(const struct store_table *table) {
    return table->filter ? table->filter : "true";
}

/* The columns of the key; each of them descending where is_last. */
static void key_columns(const struct store_table *table, bool is_last, struct buffer *text) {
    const char *column = table->columns;
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < table->key_count; i++) {
        size_t size = strcspn(column, ",");
        status = buffer_printf(text, "%s%.*s%s", i > 0 ? ", " : "", (int)size, column,
                               is_last ? " DESC" : "");
        column += size + 2;
    }
    assert(status == STATUS_OK);
}

void store_rows_sql(const struct store_rows_query *query, char sql[STORE_ROWS_SQL_BYTES_MAX]) {
    const struct store_table *table = query->table;
    struct buffer text;
    buffer_init(&text, STORE_ROWS_SQL_BYTES_MAX - 1);
    enum status status = buffer_printf(&text, "SELECT %s FROM %s WHERE %s", table->columns,
                                       table->name, store_table_filter(table));
    if (query->places && status == STATUS_OK) {
        status = buffer_append_slice(&text, SLICE(" AND ("));
        key_columns(table, false, &text);
        if (status == STATUS_OK)
            status = buffer_printf(&text, ") > (%s)", query->places);
    }
    if (status == STATUS_OK)
        status = buffer_append_slice(&text, SLICE(" ORDER BY "));
    key_columns(table, query->is_last, &text);
    if (status == STATUS_OK)
        status = buffer_printf(&text, " LIMIT %zu", query->limit);
    assert(status == STATUS_OK);
    memcpy(sql, text.data, text.size);
    sql[text.size] = '\0';
    buffer_release(&text);
}
