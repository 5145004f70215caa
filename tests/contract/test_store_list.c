/* Lists of runs: every order, owner and filter, page by page, beside the rows sorted here. */
#include <stdlib.h>

#include "rows_check.h"

#define RUNS        300
#define PAGE_ROWS   7
#define NO_DOCUMENT 7 /* one run of so many has no document */

struct expected {
    struct store_entity run;
    struct store_document document;
    struct rows_text id, key, parent;
    bool has_document;
};

static struct expected rows[RUNS];

static const struct owner row_owners[] = {{.user_id = {"ann", 3}, .org_id = {"org", 3}},
                                          {.guest_scope = {"ann", 3}},
                                          {.org_id = {"org", 3}},
                                          {.user_id = {0}}};
static const struct slice statuses[] = {{"running", 7}, {"succeeded", 9}, {"failed", 6}};

#define STATUSES (sizeof(statuses) / sizeof(*statuses))

static struct slice listed_owner(const struct owner *owner, struct arena *arena) {
    struct slice text;
    assert_ok(store_list_owner(arena, owner, &text));
    return text;
}

static void fill(struct fixture *fixture, struct arena *arena) {
    static struct store_entity entities[RUNS];
    static struct store_document documents[RUNS];
    size_t document_count = 0;
    for (uint64_t i = 0; i < RUNS; i++) {
        struct expected *row = &rows[i];
        row->run = rows_run(10 + i, &row->id);
        snprintf(row->id.bytes, sizeof(row->id.bytes), "r%llu",
                 (unsigned long long)(i * 77 % 1000));
        row->run.id = slice_of(row->id.bytes);
        row->run.owner = row_owners[i % 4];
        row->run.status = statuses[i % 3];
        row->run.worker_id = i % 5 == 0 ? SLICE("w") : (struct slice){NULL, 0};
        row->run.created_at_ms = 1000 + i * 37 % 101;
        row->has_document = i % NO_DOCUMENT != 0;
        row->document = rows_document(DOCUMENT_RUN_SUMMARY, row->run.ref, 1, &row->key);
        snprintf(row->parent.bytes, sizeof(row->parent.bytes), "\"p%llu\"",
                 (unsigned long long)(i % 11));
        row->document.listed = (struct store_listed){
            .owner = listed_owner(&row->run.owner, arena),
            .state = row->run.status,
            .updated_at_ms = 2000 + i * 53 % 97,
            .parent_run_id = i % 2 ? slice_of(row->parent.bytes) : (struct slice){NULL, 0},
            .title = SLICE("\"a \\u0000 title\""),
            .tags = SLICE("[\"x\",\"\xc3\xa9\"]"),
        };
        entities[i] = row->run;
        if (row->has_document)
            documents[document_count++] = row->document;
    }
    assert_ok(
        store_commit(fixture->writer, &(struct store_batch){.entities = entities,
                                                            .entity_count = RUNS,
                                                            .documents = documents,
                                                            .document_count = document_count}));
}

/* ---- the rows, sorted here ---- */

static const struct store_list *sorted_by;

static uint64_t time_of(const struct expected *row) {
    return sorted_by->order == STORE_LIST_BY_UPDATE ? row->document.listed.updated_at_ms
                                                    : row->run.created_at_ms;
}

static int compare(const void *first, const void *second) {
    const struct expected *a = *(const struct expected *const *)first;
    const struct expected *b = *(const struct expected *const *)second;
    int order = strcmp(a->id.bytes, b->id.bytes);
    if (sorted_by->order != STORE_LIST_BY_ID && time_of(a) != time_of(b))
        order = time_of(a) < time_of(b) ? -1 : 1;
    else if (sorted_by->order != STORE_LIST_BY_ID)
        order = a->run.ref < b->run.ref ? -1 : 1;
    return sorted_by->is_descending ? -order : order;
}

static bool is_listed(const struct store_list *list, const struct expected *row,
                      struct arena *arena) {
    struct slice owner = listed_owner(&row->run.owner, arena);
    struct slice parent = row->document.listed.parent_run_id;
    bool has_owner = list->owner_count == 0;
    for (size_t i = 0; i < list->owner_count; i++)
        has_owner = has_owner || (owner.data && slice_equal(owner, list->owners[i]));
    if (list->order == STORE_LIST_BY_UPDATE && !row->has_document)
        return false;
    if (list->filter == STORE_LIST_OF_WORKER)
        return row->run.worker_id.data && slice_equal(row->run.worker_id, list->value);
    if (list->filter == STORE_LIST_OF_PARENT)
        return row->has_document && parent.data && slice_equal(parent, list->value);
    bool has_status = list->order == STORE_LIST_BY_ID;
    for (size_t i = 0; i < list->status_count; i++)
        has_status = has_status || slice_equal(row->run.status, list->statuses[i]);
    return has_owner && has_status;
}

/* ---- the rows of the store ---- */

struct seen {
    const struct expected *const *next;
    const struct expected *const *end;
    struct store_list *list;
    struct rows_text last_id;
    size_t count;
};

static void assert_optional(struct slice actual, struct slice expected) {
    assert_int_equal(actual.data == NULL, expected.data == NULL);
    if (expected.data)
        assert_text(actual, expected);
}

static enum status see(void *user, const struct store_list_row *row) {
    struct seen *seen = user;
    assert_true(seen->next < seen->end);
    const struct expected *expected = *seen->next++;
    const struct store_listed *listed = &expected->document.listed;
    assert_int_equal(row->ref, expected->run.ref);
    assert_text(row->id, expected->run.id);
    assert_text(row->status, expected->run.status);
    assert_owner(&row->owner, &expected->run.owner);
    assert_optional(row->worker_id, expected->run.worker_id);
    assert_int_equal(row->created_at_ms, expected->run.created_at_ms);
    assert_int_equal(row->updated_at_ms, expected->has_document ? listed->updated_at_ms : 0);
    if (expected->has_document) {
        assert_optional(row->parent_run_id, listed->parent_run_id);
        assert_text(row->title, listed->title);
        assert_text(row->tags, listed->tags);
    }
    seen->list->after = (struct store_list_position){
        .time_ms =
            seen->list->order == STORE_LIST_BY_UPDATE ? row->updated_at_ms : row->created_at_ms,
        .ref = row->ref};
    seen->last_id = expected->id;
    seen->count++;
    return STATUS_OK;
}

static void check(struct fixture *fixture, struct store_list list, struct arena *arena) {
    const struct expected *sorted[RUNS];
    size_t count = 0;
    for (size_t i = 0; i < RUNS; i++)
        if (is_listed(&list, &rows[i], arena))
            sorted[count++] = &rows[i];
    sorted_by = &list;
    qsort(sorted, count, sizeof(const struct expected *), compare);
    struct seen seen = {.next = sorted, .end = sorted + count, .list = &list};
    list.limit = PAGE_ROWS;
    do {
        seen.count = 0;
        assert_ok(store_list_rows(fixture->reader, &list, &seen, see));
        list.has_after = true;
        list.after.id = slice_of(seen.last_id.bytes);
    } while (seen.count == PAGE_ROWS);
    assert_ptr_equal(seen.next, seen.end);
}

static void runs_are_listed_in_every_order_page_by_page(void **state) {
    struct fixture *fixture = *state;
    struct arena arena;
    arena_init(&arena, 1 << 20);
    fill(fixture, &arena);
    for (enum store_list_order order = STORE_LIST_BY_ID; order <= STORE_LIST_BY_UPDATE; order++)
        for (int is_descending = 0; is_descending < 2; is_descending++) {
            struct store_list list = {
                .kind = ENTITY_RUN, .order = order, .is_descending = is_descending};
            memcpy(list.statuses, statuses, sizeof(statuses));
            list.status_count = STATUSES;
            check(fixture, list, &arena);
            list.owner_count = 1;
            list.owners[0] = SLICE("uann");
            check(fixture, list, &arena);
            list.owners[0] = SLICE("uno");
            check(fixture, list, &arena);
            list.owners[0] = SLICE("gann");
            list.owners[1] = SLICE("oorg");
            list.owner_count = 2;
            check(fixture, list, &arena);
            list.status_count = 1;
            check(fixture, list, &arena);
            list.owner_count = 0;
            check(fixture, list, &arena);
            list.statuses[0] = SLICE("created");
            check(fixture, list, &arena);
            list.status_count = STATUSES;
            list.filter = STORE_LIST_OF_WORKER;
            list.value = SLICE("w");
            check(fixture, list, &arena);
            list.filter = STORE_LIST_OF_PARENT;
            list.value = SLICE("\"p3\"");
            check(fixture, list, &arena);
            list.value = SLICE("p3");
            check(fixture, list, &arena);
        }
    arena_release(&arena);
}

static void the_rows_of_a_filter_are_counted(void **state) {
    struct fixture *fixture = *state;
    struct store_list list = {
        .kind = ENTITY_RUN, .filter = STORE_LIST_OF_WORKER, .value = SLICE("w")};
    struct arena arena;
    uint64_t count = 0;
    arena_init(&arena, 1 << 20);
    fill(fixture, &arena);
    assert_ok(store_count_listed(fixture->reader, &list, &count));
    assert_int_equal(count, RUNS / 5);
    list.kind = ENTITY_WORKER;
    assert_ok(store_count_listed(fixture->reader, &list, &count));
    assert_int_equal(count, 0);
    arena_release(&arena);
}

/* A later document of the run replaces what lists know of it. */
static void a_new_document_moves_its_run(void **state) {
    struct fixture *fixture = *state;
    struct store_list list = {
        .kind = ENTITY_RUN, .order = STORE_LIST_BY_UPDATE, .is_descending = true};
    memcpy(list.statuses, statuses, sizeof(statuses));
    list.status_count = STATUSES;
    struct arena arena;
    arena_init(&arena, 1 << 20);
    fill(fixture, &arena);
    rows[1].document.version = 2;
    rows[1].document.listed.updated_at_ms = 9000;
    rows[1].document.listed.tags = SLICE("[]");
    rows[1].document.listed.parent_run_id = SLICE("\"p3\"");
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.documents = &rows[1].document,
                                                                  .document_count = 1}));
    check(fixture, list, &arena);
    list.filter = STORE_LIST_OF_PARENT;
    list.value = SLICE("\"p1\"");
    check(fixture, list, &arena);
    list.value = SLICE("\"p3\"");
    check(fixture, list, &arena);
    arena_release(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_listed_in_every_order_page_by_page),
        cmocka_unit_test(the_rows_of_a_filter_are_counted),
        cmocka_unit_test(a_new_document_moves_its_run),
    };
    return CONTRACT_RUN("store: lists", tests);
}
