#include "store/store_list.h"

#include <assert.h>

#include "store/store_engine.h"

#define OF_N(name, ...)      "n." #name
#define NEXT_OF_N(name, ...) ", n." #name
#define NEXT_OF_D(name, ...) ", d." #name

/* The text of the index over owners, with the alias of the table. */
#define OWNER_OF_N "coalesce('u' || n.owner_user_id, 'g' || n.owner_guest_scope, 'o' || n.org_id)"

static const struct store_column number_column = {.kind = COLUMN_NUMBER};
static const struct store_column text_column = {.kind = COLUMN_TEXT};

#define DOCUMENT_TABLE(kind, name, table, ...) [kind] = (table),
static const char *const document_tables[] = {DOCUMENT_KINDS(DOCUMENT_TABLE)};

enum status store_list_owner(struct arena *arena, const struct owner *owner, struct slice *text) {
    const struct slice parts[] = {owner->user_id, owner->guest_scope, owner->org_id};
    *text = (struct slice){NULL, 0};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!parts[i].data)
            continue;
        char *made = arena_alloc(arena, parts[i].size + 1);
        if (!made)
            return STATUS_OUT_OF_MEMORY;
        made[0] = "ugo"[i];
        memcpy(made + 1, parts[i].data, parts[i].size);
        *text = (struct slice){made, parts[i].size + 1};
        return STATUS_OK;
    }
    return STATUS_OK;
}

/* ---- the texts ---- */

/* Values that stand several times in a text. */
enum shared { SHARED_KIND, SHARED_TIME, SHARED_REF, SHARED_LIMIT, SHARED_COUNT };

struct writing {
    const struct store_list *list;
    struct store_list_sql *sql;
    struct buffer text;
    char mark;
    size_t shared[SHARED_COUNT]; /* their numbers; 0: not written yet */
    size_t owners[STORE_LIST_OWNERS_MAX];
    size_t statuses[STORE_LIST_STATUSES_MAX];
};

static void put(struct writing *writing, const char *text) {
    buffer_append_slice(&writing->text, slice_of(text));
}

/* *number: that of the value, which is the same wherever it stands again; NULL: it stands once. */
static void put_value(struct writing *writing, const struct store_column *column,
                      struct store_value value, size_t *number) {
    struct store_list_sql *sql = writing->sql;
    size_t given = number ? *number : 0;
    if (given == 0) {
        assert(sql->value_count < STORE_LIST_VALUES_MAX);
        sql->columns[sql->value_count] = column;
        sql->values[sql->value_count++] = value;
        given = sql->value_count;
    }
    if (number)
        *number = given;
    buffer_printf(&writing->text, "%c%zu", writing->mark, given);
    if (writing->mark == '$')
        put(writing, column == &text_column ? "::text" : "::bigint");
}

static void put_number(struct writing *writing, enum shared shared, uint64_t number) {
    uint64_t bound = number < INT64_MAX ? number : INT64_MAX;
    put_value(writing, &number_column, (struct store_value){.number = (int64_t)bound},
              shared < SHARED_COUNT ? &writing->shared[shared] : NULL);
}

static void put_text(struct writing *writing, struct slice text, size_t *number) {
    put_value(writing, &text_column, (struct store_value){.bytes = text.data ? text : SLICE("")},
              number);
}

static const char *documents_of(const struct store_list *list) {
    return document_tables[entity_row(list->kind)->summary];
}

/* The keys of a filter's rows. Each has an index that begins with the value; the sign keeps the
 * engines from an index over the kind. */
static void put_few(struct writing *writing) {
    const struct store_list *list = writing->list;
    if (list->filter == STORE_LIST_OF_PARENT) {
        buffer_printf(&writing->text, "SELECT entity_ref AS ref FROM %s WHERE parent_run_id = ",
                      documents_of(list));
        put_text(writing, list->value, NULL);
    } else {
        put(writing, "SELECT ref FROM entities WHERE worker_id = ");
        put_text(writing, list->value, NULL);
        put(writing, " AND +kind = ");
        put_number(writing, SHARED_COUNT, list->kind);
    }
    put(writing, " LIMIT ");
    put_number(writing, SHARED_COUNT, STORE_LIST_FEW_MAX + 1);
}

/* The keys of the first rows behind the position, of a part of the index: (ref, at). owner and
 * status may be NULL. */
static void put_keys(struct writing *writing, const struct slice *owner,
                     const struct slice *status) {
    const struct store_list *list = writing->list;
    bool is_by_update = list->order == STORE_LIST_BY_UPDATE;
    bool is_by_id = list->order == STORE_LIST_BY_ID;
    const char *at = is_by_update ? "d.updated_at" : is_by_id ? "n.id" : "n.created_at";
    const char *ref = is_by_update ? "d.entity_ref" : "n.ref";
    const char *comparison = list->is_descending ? "<" : ">";
    const char *direction = list->is_descending ? " DESC" : "";
    bool has_few = list->filter != STORE_LIST_ALL;
    buffer_printf(&writing->text, "SELECT %s AS ref, %s AS at FROM %s", ref, at,
                  has_few ? "few CROSS JOIN " : "");
    if (is_by_update) {
        buffer_printf(&writing->text, "%s d WHERE ", documents_of(list));
    } else {
        put(writing, "entities n WHERE n.kind = ");
        put_number(writing, SHARED_KIND, list->kind);
        put(writing, " AND ");
    }
    if (has_few)
        buffer_printf(&writing->text, "%s = few.ref AND ", ref);
    /* The keys of a filter are of all owners. Rows of others must not even fill a page. */
    const struct slice *first = has_few ? list->owners : owner;
    size_t owner_count = has_few ? list->owner_count : owner ? 1 : 0;
    for (size_t i = 0; i < owner_count; i++) {
        const char *text = is_by_update ? "d.owner" : OWNER_OF_N;
        buffer_printf(&writing->text, "%s%s = ", i == 0 ? "(" : " OR ", text);
        put_text(writing, first[i], &writing->owners[first + i - list->owners]);
    }
    if (owner_count > 0)
        put(writing, ") AND ");
    if (status) {
        put(writing, is_by_update ? "d.state = " : "n.status = ");
        put_text(writing, *status, &writing->statuses[status - list->statuses]);
        put(writing, " AND ");
    }
    if (!is_by_id) {
        uint64_t end = list->is_descending ? UINT64_MAX : 0;
        buffer_printf(&writing->text, "(%s, %s) %s (", at, ref, comparison);
        put_number(writing, SHARED_TIME, list->has_after ? list->after.time_ms : end);
        put(writing, ", ");
        put_number(writing, SHARED_REF, list->has_after ? list->after.ref : end);
        put(writing, ")");
    } else if (list->has_after) {
        buffer_printf(&writing->text, "n.id %s ", comparison);
        put_text(writing, list->after.id, &writing->shared[SHARED_TIME]);
    } else {
        put(writing, "true");
    }
    buffer_printf(&writing->text, " ORDER BY %s%s", at, direction);
    if (!is_by_id)
        buffer_printf(&writing->text, ", %s%s", ref, direction);
    put(writing, " LIMIT ");
    put_number(writing, SHARED_LIMIT, list->limit);
}

/* The keys of all parts that the list has. */
static void put_parts(struct writing *writing) {
    const struct store_list *list = writing->list;
    bool has_owners = list->filter == STORE_LIST_ALL && list->owner_count > 0;
    bool has_statuses = list->filter == STORE_LIST_ALL && list->order != STORE_LIST_BY_ID;
    size_t owner_count = has_owners ? list->owner_count : 1;
    size_t status_count = has_statuses ? list->status_count : 1;
    for (size_t i = 0; i < owner_count * status_count; i++) {
        buffer_printf(&writing->text, "%sSELECT * FROM (", i > 0 ? " UNION ALL " : "");
        put_keys(writing, has_owners ? &list->owners[i / status_count] : NULL,
                 has_statuses ? &list->statuses[i % status_count] : NULL);
        buffer_printf(&writing->text, ") k%zu", i);
    }
}

static void end(struct writing *writing) {
    buffer_append_byte(&writing->text, '\0');
    assert(buffer_status(&writing->text) == STATUS_OK);
}

static struct writing begin(const struct store_list *list, char mark, struct store_list_sql *sql) {
    assert(list->kind == ENTITY_RUN || list->kind == ENTITY_WORKER);
    sql->value_count = 0;
    return (struct writing){
        .list = list, .sql = sql, .text = buffer_over(sql->text, sizeof(sql->text)), .mark = mark};
}

void store_list_rows_sql(const struct store_list *list, char mark, struct store_list_sql *sql) {
    struct writing writing = begin(list, mark, sql);
    const char *direction = list->is_descending ? " DESC" : "";
    if (list->filter != STORE_LIST_ALL) {
        put(&writing, "WITH few AS MATERIALIZED (");
        put_few(&writing);
        put(&writing, ") ");
    }
    put(&writing, "SELECT " STORE_LIST_ENTITY(OF_N, NEXT_OF_N)
                      STORE_LIST_DOCUMENT(NEXT_OF_D, NEXT_OF_D) " FROM (");
    put_parts(&writing);
    buffer_printf(&writing.text,
                  ") k CROSS JOIN entities n LEFT JOIN %s d ON d.entity_ref = n.ref WHERE n.ref = "
                  "k.ref ORDER BY k.at%s, k.ref%s LIMIT ",
                  documents_of(list), direction, direction);
    put_number(&writing, SHARED_LIMIT, list->limit);
    end(&writing);
}

void store_count_listed_sql(const struct store_list *list, char mark, struct store_list_sql *sql) {
    struct writing writing = begin(list, mark, sql);
    assert(list->filter != STORE_LIST_ALL);
    put(&writing, "SELECT count(*) FROM (");
    put_few(&writing);
    put(&writing, ") few");
    end(&writing);
}

/* ---- the calls ---- */

enum status store_list_rows(struct store_session *session, const struct store_list *list,
                            void *user, store_list_cb *callback) {
    assert(list->limit > 0 && list->limit <= STORE_LIST_ROWS_MAX);
    assert(list->status_count > 0);
    return store_session_is_cancelled(session)
               ? STATUS_STORE_UNAVAILABLE
               : session->engine->list_rows(session, list, user, callback);
}

enum status store_count_listed(struct store_session *session, const struct store_list *list,
                               uint64_t *count) {
    return session->engine->count_listed(session, list, count);
}
