/* GET /internal/v1/runs, /v1/runs and the same of workers: rows in an order, those that match.
 *
 *   filters, sort, after ──▶ store pool: rows by the index of the order, in chunks ──▶ items
 *
 * A request looks at a bounded number of rows, whether they match or not, so that a rare tag costs
 * several requests and never one long read. Rows of a parent, a worker or a state are looked up
 * directly where they are few. The cursor of an order that was asked for is bound to it and to the
 * filters. Without sort, it is the id of the last row. */
#include <inttypes.h>
#include <stdlib.h>

#include "api/api.h"
#include "api/handlers.h"
#include "authority/entity_state.h"
#include "authority/event_write.h"
#include "base/base64url.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "delivery/repair.h"
#include "http/admit/entitle.h"
#include "http/store_read.h"
#include "topic/since.h"
#include "wire/object_writer.h"

#define LIMIT_DEFAULT    100
#define CHUNK_ROWS_MIN   64
#define CURSOR_MARK      "L1"
#define BOUND_BYTES      8
#define TIME_BYTES_MAX   32
#define CURSOR_BYTES_MAX (sizeof(CURSOR_MARK) - 1 + BOUND_BYTES + 16 + APPEND_ID_BYTES_MAX)
/* An owner's rows of a parent or a worker are looked up only where all such rows are fewer. */
#define OWNED_FEW_MAX 1000

enum filter {
    FILTER_STATUS,
    FILTER_TAG,
    FILTER_PARENT,
    FILTER_WORKER,
    FILTER_USER,
    FILTER_GUEST,
    FILTER_ORG,
    FILTER_TITLE,
    FILTER_UPDATED_AFTER,
    FILTER_UPDATED_BEFORE,
    FILTER_CREATED_AFTER,
    FILTER_CREATED_BEFORE,
    FILTER_SORT,
    /* Those before this one decide which rows a list has, and in which order. */
    FILTER_AFTER,
    FILTER_COUNTS,
    FILTER_COUNT,
};

/* The route says which of them a list takes. */
static const char *const filter_names[FILTER_COUNT] = {
    [FILTER_STATUS] = "status",
    [FILTER_TAG] = "tag",
    [FILTER_PARENT] = "parent_run_id",
    [FILTER_WORKER] = "worker_id",
    [FILTER_USER] = "owner_user_id",
    [FILTER_GUEST] = "owner_guest_scope",
    [FILTER_ORG] = "org_id",
    [FILTER_TITLE] = "title",
    [FILTER_UPDATED_AFTER] = "updated_after",
    [FILTER_UPDATED_BEFORE] = "updated_before",
    [FILTER_CREATED_AFTER] = "created_after",
    [FILTER_CREATED_BEFORE] = "created_before",
    [FILTER_SORT] = "sort",
    [FILTER_AFTER] = "after",
    [FILTER_COUNTS] = "count",
};

/* Exclusive on both sides. */
struct range {
    uint64_t after_ms;
    uint64_t before_ms;
};

struct entity_list {
    struct slice filters[FILTER_COUNT]; /* absent: data NULL */
    struct buffer memory[FILTER_COUNT];
    struct store_list list;
    struct range created;
    struct range updated;
    struct slice tag; /* the filters as JSON strings, as rows have them */
    struct slice parent;
    struct buffer title; /* the title of a row */
    uint8_t bound[BOUND_BYTES];
    char cursor[CURSOR_BYTES_MAX];
    bool is_counting; /* items are counted and not written */
    /* Of the walk. */
    struct store_session *store;
    struct store_list_position last;
    struct buffer last_id;
    uint64_t rows_read;
    uint64_t chunk_rows;
    uint64_t count;
    bool is_at_end; /* no later row can match */
};

static void list_free(void *memory) {
    struct entity_list *list = memory;
    for (size_t i = 0; i < FILTER_COUNT; i++)
        buffer_release(&list->memory[i]);
    buffer_release(&list->title);
    buffer_release(&list->last_id);
    free(list);
}

/* ---- rows, on a thread of the store pool ---- */

static bool equals(struct slice filter, struct slice value) {
    return !filter.data || (value.data && slice_equal(filter, value));
}

static bool is_within(const struct range *range, uint64_t at_ms) {
    return (range->after_ms == 0 || at_ms > range->after_ms) && at_ms < range->before_ms;
}

static bool has_tag(struct slice tags, struct slice tag) {
    const struct json_limits limits = {SUMMARY_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_value array, value;
    if (!tags.data || json_parse(tags, &limits, &array) != STATUS_OK ||
        array.kind != JSON_KIND_ARRAY)
        return false;
    struct json_iterator elements = json_iterate(array);
    while (json_next_element(&elements, &value))
        if (slice_equal(value.raw, tag))
            return true;
    return false;
}

static bool has_title(struct entity_list *list, struct slice title) {
    const struct json_limits limits = {SUMMARY_BYTES_MAX, 0};
    struct slice part = list->filters[FILTER_TITLE];
    struct json_value value;
    buffer_clear(&list->title);
    return title.data && json_parse(title, &limits, &value) == STATUS_OK &&
           json_string_decode(value, &list->title) == STATUS_OK &&
           (part.size == 0 || (list->title.size > 0 &&
                               memmem(list->title.data, list->title.size, part.data, part.size)));
}

/* The owner is checked here, too, whatever the index said. */
static bool matches(const struct store_read *read, const struct store_list_row *row) {
    struct entity_list *list = read->state;
    const struct slice *filters = list->filters;
    return grant_may_read(read->exchange->principal, read->exchange->view, &row->owner) &&
           equals(filters[FILTER_STATUS], row->status) &&
           equals(filters[FILTER_USER], row->owner.user_id) &&
           equals(filters[FILTER_GUEST], row->owner.guest_scope) &&
           equals(filters[FILTER_ORG], row->owner.org_id) &&
           equals(filters[FILTER_WORKER], row->worker_id) &&
           equals(list->parent, row->parent_run_id) &&
           is_within(&list->created, row->created_at_ms) &&
           is_within(&list->updated, row->updated_at_ms) &&
           (!list->tag.data || has_tag(row->tags, list->tag)) &&
           (!filters[FILTER_TITLE].data || has_title(list, row->title));
}

/* The item of the entity, with what its document adds. */
static enum status write_item(struct store_read *read, const struct store_list_row *row) {
    struct entity_list *list = read->state;
    struct buffer *out = &read->out;
    struct store_entity entity;
    enum status status = store_load_entity_ref(list->store, row->ref, &read->arena, &entity);
    if (status != STATUS_OK)
        return status == STATUS_NOT_FOUND ? STATUS_INTERNAL_ERROR : status;
    if (list->count > 0)
        buffer_append_byte(out, ',');
    bool is_run = entity.kind == ENTITY_RUN;
    size_t begin = out->size;
    status = buffer_note(out, is_run ? run_write_json(out, &entity)
                                     : worker_write_json(out, &entity, read->now_ms));
    if (status != STATUS_OK)
        return status;
    out->size--; /* its brace */
    struct object_writer object = {.out = out, .begin = begin};
    if (is_run) {
        object_json(&object, SLICE("parent_run_id"),
                    row->parent_run_id.data ? row->parent_run_id : SLICE("null"));
        object_json(&object, SLICE("title"), row->title.data ? row->title : SLICE("null"));
        object_json(&object, SLICE("tags"), row->tags.data ? row->tags : SLICE("[]"));
    }
    if (row->updated_at_ms > 0)
        object_number(&object, SLICE("updated_at"), row->updated_at_ms);
    else
        object_json(&object, SLICE("updated_at"), SLICE("null"));
    return object_end(&object);
}

/* Whether this row and all behind it are beyond the range of the order. */
static bool is_beyond(const struct entity_list *list, const struct store_list_row *row) {
    bool is_by_update = list->list.order == STORE_LIST_BY_UPDATE;
    const struct range *range = is_by_update ? &list->updated : &list->created;
    uint64_t at_ms = is_by_update ? row->updated_at_ms : row->created_at_ms;
    if (list->list.order == STORE_LIST_BY_ID)
        return false;
    return list->list.is_descending ? range->after_ms > 0 && at_ms <= range->after_ms
                                    : at_ms >= range->before_ms;
}

static enum status take_row(void *user, const struct store_list_row *row) {
    struct store_read *read = user;
    struct entity_list *list = read->state;
    list->chunk_rows++;
    list->is_at_end = is_beyond(list, row);
    if (list->is_at_end)
        return STATUS_LIMIT_REACHED;
    bool is_full =
        !list->is_counting && (list->count == read->limit || read->out.size >= LIST_PAGE_BYTES);
    if (is_full || list->rows_read == LIST_PAGE_READS_MAX) {
        read->has_more = true;
        return STATUS_LIMIT_REACHED;
    }
    list->rows_read++;
    list->last.ref = row->ref;
    list->last.time_ms =
        list->list.order == STORE_LIST_BY_UPDATE ? row->updated_at_ms : row->created_at_ms;
    buffer_clear(&list->last_id);
    buffer_append_slice(&list->last_id, row->id);
    enum status status = buffer_status(&list->last_id);
    if (status != STATUS_OK || !matches(read, row))
        return status;
    status = list->is_counting ? STATUS_OK : write_item(read, row);
    list->count++;
    return status;
}

/* ---- a page ---- */

/* The position before the first row that the range of the order may hold. */
static void seek(struct entity_list *list) {
    struct store_list *walk = &list->list;
    const struct range *range =
        walk->order == STORE_LIST_BY_UPDATE ? &list->updated : &list->created;
    walk->has_after = false;
    if (walk->order == STORE_LIST_BY_ID)
        return;
    uint64_t time_ms = walk->is_descending ? range->before_ms : range->after_ms;
    walk->has_after = time_ms > 0 && time_ms < UINT64_MAX;
    walk->after = (struct store_list_position){.time_ms = time_ms,
                                               .ref = walk->is_descending ? 0 : UINT64_MAX};
}

/* Walks from the position of the list until the page is full, the rows end or the bound is
 * reached. The first chunk has the rows of a page whose rows all match. */
static enum status walk(struct store_read *read) {
    struct entity_list *list = read->state;
    struct store_list *chunk = &list->list;
    enum status status = STATUS_OK;
    bool is_last = false;
    list->count = list->rows_read = 0;
    read->has_more = list->is_at_end = false;
    chunk->limit = read->limit + 1 < STORE_LIST_ROWS_MAX ? read->limit + 1 : STORE_LIST_ROWS_MAX;
    while (status == STATUS_OK && !is_last) {
        list->chunk_rows = 0;
        status = store_list_rows(list->store, chunk, read, take_row);
        is_last = list->chunk_rows < chunk->limit;
        list->last.id = buffer_slice(&list->last_id);
        chunk->has_after = true;
        chunk->after = list->last;
        chunk->limit =
            chunk->limit * 4 < STORE_LIST_ROWS_MAX ? chunk->limit * 4 : STORE_LIST_ROWS_MAX;
        if (chunk->limit < CHUNK_ROWS_MIN)
            chunk->limit = CHUNK_ROWS_MIN;
    }
    return status == STATUS_LIMIT_REACHED ? STATUS_OK : status;
}

/* The index that the rows are read by. *is_empty: no row can match. */
static enum status choose(struct store_read *read, bool *is_empty) {
    struct entity_list *list = read->state;
    struct store_list *walk = &list->list;
    const struct owner *identity = &read->exchange->principal->identity;
    const struct {
        enum store_list_filter filter;
        struct slice value;
    } filters[] = {{STORE_LIST_OF_PARENT, list->parent},
                   {STORE_LIST_OF_WORKER, list->filters[FILTER_WORKER]}};
    struct owner owners[STORE_LIST_OWNERS_MAX] = {
        {.user_id = list->filters[FILTER_USER],
         .guest_scope = list->filters[FILTER_USER].data ? (struct slice){NULL, 0}
                                                        : list->filters[FILTER_GUEST]}};
    bool is_own = read->exchange->view != GRANT_VIEW_ALL;
    enum status status = STATUS_OK;
    if (is_own) {
        owners[0] =
            (struct owner){.user_id = identity->user_id, .guest_scope = identity->guest_scope};
        owners[1] = (struct owner){.org_id = identity->org_id};
    }
    walk->owner_count = 0;
    for (size_t i = 0; status == STATUS_OK && i < STORE_LIST_OWNERS_MAX; i++) {
        struct slice *owner = &walk->owners[walk->owner_count];
        status = store_list_owner(&read->arena, &owners[i], owner);
        walk->owner_count += owner->data != NULL;
    }
    const size_t state_count = walk->kind == ENTITY_RUN ? RUN_STATE_COUNT : WORKER_STATE_COUNT;
    _Static_assert(RUN_STATE_COUNT <= STORE_LIST_STATUSES_MAX, "the parts of a list");
    _Static_assert(WORKER_STATE_COUNT <= STORE_LIST_STATUSES_MAX, "the parts of a list");
    walk->statuses[0] = list->filters[FILTER_STATUS];
    walk->status_count = 1;
    for (size_t i = 0; !list->filters[FILTER_STATUS].data && i < state_count; i++) {
        walk->statuses[i] =
            slice_of(walk->kind == ENTITY_RUN ? run_state_name((enum run_state)i)
                                              : worker_state_name((enum worker_state)i));
        walk->status_count = i + 1;
    }
    /* A token without an identity owns nothing. */
    *is_empty = is_own && walk->owner_count == 0;
    walk->filter = STORE_LIST_ALL;
    uint64_t few_max = walk->owner_count > 0 ? OWNED_FEW_MAX : STORE_LIST_FEW_MAX;
    for (size_t i = 0; status == STATUS_OK && i < 2 && walk->filter == STORE_LIST_ALL; i++) {
        uint64_t count = 0;
        if (!filters[i].value.data)
            continue;
        walk->filter = filters[i].filter;
        walk->value = filters[i].value;
        status = store_count_listed(list->store, walk, &count);
        *is_empty = *is_empty || count == 0;
        if (count > few_max)
            walk->filter = STORE_LIST_ALL;
    }
    return status;
}

static void write_cursor(struct store_read *read) {
    const struct entity_list *list = read->state;
    char bytes[CURSOR_BYTES_MAX], text[BASE64URL_SIZE(CURSOR_BYTES_MAX)];
    struct buffer cursor = buffer_over(bytes, sizeof(bytes));
    struct slice id = buffer_slice(&list->last_id);
    if (!list->filters[FILTER_SORT].data) {
        json_write_string(&read->out, id);
        return;
    }
    const uint64_t numbers[] = {htobe64(list->last.time_ms), htobe64(list->last.ref)};
    buffer_append_slice(&cursor, SLICE(CURSOR_MARK));
    buffer_append(&cursor, list->bound, sizeof(list->bound));
    buffer_append(&cursor, numbers, sizeof(numbers));
    if (list->list.order == STORE_LIST_BY_ID)
        buffer_append_slice(&cursor, id);
    buffer_note(&read->out, buffer_status(&cursor));
    size_t size = base64url_encode(bytes, cursor.size, text);
    buffer_printf(&read->out, "\"%.*s\"", (int)size, text);
}

/* Whether each entity has its document: without them, an order by update has fewer rows. */
static enum status write_completeness(struct store_read *read) {
    const struct entity_list *list = read->state;
    struct slice value;
    enum status status =
        store_load_property(list->store, SLICE("unprojected_from"), &read->arena, &value);
    bool is_complete =
        status == STATUS_NOT_FOUND && repair_finds_missing(api_of(read->exchange)->writer);
    buffer_printf(&read->out, ",\"is_complete\":%s", is_complete ? "true" : "false");
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static void read_list(struct store_read *read, struct store_session *store) {
    struct entity_list *list = read->state;
    struct buffer *out = &read->out;
    bool is_empty = false;
    list->store = store;
    enum status status = choose(read, &is_empty);
    if (!list->filters[FILTER_AFTER].data)
        seek(list);
    buffer_append_slice(out, SLICE("{\"items\":["));
    if (status == STATUS_OK && !is_empty)
        status = walk(read);
    buffer_append_slice(out, SLICE("],\"next_cursor\":"));
    if (read->has_more)
        write_cursor(read);
    else
        buffer_append_slice(out, SLICE("null"));
    buffer_printf(out, ",\"has_more\":%s", read->has_more ? "true" : "false");
    if (status == STATUS_OK)
        status = write_completeness(read);
    if (status == STATUS_OK && list->filters[FILTER_COUNTS].data) {
        list->is_counting = true;
        list->count = 0;
        seek(list);
        if (!is_empty)
            status = walk(read);
        buffer_printf(out, ",\"count\":%" PRIu64 ",\"count_is_exact\":%s", list->count,
                      read->has_more ? "false" : "true");
    }
    buffer_append_slice(out, SLICE("}\n"));
    read->status = status;
}

/* ---- the request ---- */

/* RFC 3339, a duration before now, or milliseconds since 1970 as answers have them. */
static bool read_time(struct slice text, uint64_t now_ms, uint64_t *time_ms) {
    const struct json_limits limits = {TIME_BYTES_MAX, 0};
    struct json_value value;
    struct since since;
    if (!text.data)
        return true;
    if (json_parse(text, &limits, &value) == STATUS_OK)
        return json_u64(value, INT64_MAX, time_ms);
    if (since_read(text, &since) != STATUS_OK)
        return false;
    *time_ms = since_time_ms(&since, now_ms);
    return true;
}

static bool read_sort(struct slice sort, enum entity_kind kind, struct store_list *list) {
    list->is_descending = sort.size > 0 && sort.data[0] == '-';
    struct slice name = list->is_descending ? slice_from(sort, 1) : sort;
    if (slice_equal(name, SLICE("updated_at")))
        list->order = STORE_LIST_BY_UPDATE;
    else if (slice_equal(name, SLICE("created_at")))
        list->order = STORE_LIST_BY_CREATION;
    else
        list->order = STORE_LIST_BY_ID;
    return !sort.data || list->order != STORE_LIST_BY_ID ||
           slice_equal(name, kind == ENTITY_RUN ? SLICE("run_id") : SLICE("worker_id"));
}

/* What a cursor belongs to: the rows and their order. */
static void bind_cursor(struct entity_list *list) {
    struct sha256 hash;
    uint8_t digest[SHA256_BYTES];
    sha256_init(&hash);
    uint64_t kind = list->list.kind;
    sha256_update(&hash, &kind, sizeof(kind));
    for (size_t i = 0; i < FILTER_AFTER; i++) {
        uint64_t size = list->filters[i].data ? list->filters[i].size : UINT64_MAX;
        sha256_update(&hash, &size, sizeof(size));
        sha256_update(&hash, list->filters[i].data, list->filters[i].size);
    }
    sha256_final(&hash, digest);
    sha256_release(&hash);
    memcpy(list->bound, digest, sizeof(list->bound));
}

/* False: it is no cursor of this list. */
static bool read_cursor(struct entity_list *list) {
    struct slice text = list->filters[FILTER_AFTER];
    struct store_list_position *after = &list->list.after;
    const size_t head = sizeof(CURSOR_MARK) - 1 + BOUND_BYTES;
    uint64_t numbers[2];
    size_t size = 0;
    if (!text.data)
        return true;
    bool is_bound =
        base64url_decode(text, list->cursor, sizeof(list->cursor), &size) == STATUS_OK &&
        size >= head + sizeof(numbers) &&
        memcmp(list->cursor, CURSOR_MARK, sizeof(CURSOR_MARK) - 1) == 0;
    list->list.has_after = true;
    if (!list->filters[FILTER_SORT].data) {
        *after = (struct store_list_position){.id = text};
        return !is_bound;
    }
    if (!is_bound || memcmp(list->cursor + sizeof(CURSOR_MARK) - 1, list->bound, BOUND_BYTES) != 0)
        return false;
    memcpy(numbers, list->cursor + head, sizeof(numbers));
    *after = (struct store_list_position){
        .time_ms = be64toh(numbers[0]),
        .ref = be64toh(numbers[1]),
        .id = {list->cursor + head + sizeof(numbers), size - head - sizeof(numbers)}};
    return utf8_valid(after->id);
}

/* A filter as the JSON string that rows have. */
static enum status quote(struct store_read *read, struct slice text, struct slice *quoted) {
    struct buffer memory;
    if (!text.data)
        return STATUS_OK;
    buffer_init(&memory, 6 * QUERY_TEXT_BYTES_MAX + 2);
    enum status status = json_write_string(&memory, text);
    if (status == STATUS_OK) {
        *quoted = arena_copy(&read->arena, buffer_slice(&memory));
        status = quoted->data ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    }
    buffer_release(&memory);
    return status;
}

/* A misspelt value would match nothing. NULL: the request is sound. */
static const char *fault_of(struct entity_list *list, enum entity_kind kind, uint64_t now_ms) {
    const struct slice *filters = list->filters;
    struct slice counts = filters[FILTER_COUNTS];
    struct slice status = filters[FILTER_STATUS];
    enum run_state run_state;
    enum worker_state worker_state;
    for (size_t i = 0; i < FILTER_COUNT; i++)
        if (filters[i].data && !utf8_valid(filters[i]))
            return "A filter is not valid UTF-8.";
    if (status.data && kind == ENTITY_RUN && !run_state_parse(status, &run_state))
        return "status must be a state of a run.";
    if (status.data && kind == ENTITY_WORKER && !worker_state_parse(status, &worker_state))
        return "status must be a state of a worker.";
    if (!read_sort(filters[FILTER_SORT], kind, &list->list))
        return kind == ENTITY_RUN ? "sort must be updated_at, created_at or run_id, or one of them "
                                    "behind a -."
                                  : "sort must be updated_at, created_at or worker_id, or one of "
                                    "them behind a -.";
    if (!read_time(filters[FILTER_CREATED_AFTER], now_ms, &list->created.after_ms) ||
        !read_time(filters[FILTER_CREATED_BEFORE], now_ms, &list->created.before_ms) ||
        !read_time(filters[FILTER_UPDATED_AFTER], now_ms, &list->updated.after_ms) ||
        !read_time(filters[FILTER_UPDATED_BEFORE], now_ms, &list->updated.before_ms))
        return "A time must be milliseconds since 1970, or " SINCE_FORMS ".";
    if (counts.data && !slice_equal(counts, SLICE("true")) && !slice_equal(counts, SLICE("false")))
        return "count must be true or false.";
    if (counts.data && slice_equal(counts, SLICE("false")))
        list->filters[FILTER_COUNTS].data = NULL;
    return NULL;
}

static enum status read_request(struct store_read *read, const char **message) {
    struct exchange *exchange = read->exchange;
    struct entity_list *list = read->state;
    enum status status =
        query_number(exchange, SLICE("limit"), 1, LIST_PAGE_ITEMS_MAX, &read->limit);
    for (size_t i = 0; status == STATUS_OK && i < FILTER_COUNT; i++)
        status =
            query_text(exchange, slice_of(filter_names[i]), &list->memory[i], &list->filters[i]);
    if (status == STATUS_INVALID_REQUEST)
        *message = "limit is a whole number from 1 to 1000; a text has up to 2048 bytes.";
    if (status != STATUS_OK)
        return status;
    *message = fault_of(list, read->entity_kind, read->now_ms);
    if (*message)
        return STATUS_INVALID_REQUEST;
    bind_cursor(list);
    if (!read_cursor(list)) {
        *message = "after is not the next_cursor of a list with this sort and these filters.";
        return STATUS_INVALID_CURSOR;
    }
    status = quote(read, list->filters[FILTER_TAG], &list->tag);
    return status == STATUS_OK ? quote(read, list->filters[FILTER_PARENT], &list->parent) : status;
}

static void handle_list(struct exchange *exchange, enum entity_kind kind) {
    struct store_read *read = store_read_new(exchange, kind, read_list);
    const char *message = NULL;
    if (!read)
        return;
    struct entity_list *list = calloc(1, sizeof(*list));
    if (!list) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    buffer_init(&list->title, SUMMARY_BYTES_MAX);
    buffer_init(&list->last_id, APPEND_ID_BYTES_MAX);
    for (size_t i = 0; i < FILTER_COUNT; i++)
        buffer_init(&list->memory[i], QUERY_TEXT_BYTES_MAX);
    list->created.before_ms = list->updated.before_ms = UINT64_MAX;
    list->list.kind = kind;
    read->state = list;
    read->state_free = list_free;
    read->limit = LIMIT_DEFAULT;
    enum status status = read_request(read, &message);
    if (status == STATUS_OK)
        store_read_post(read);
    else
        exchange_answer_error(exchange,
                              &(struct exchange_error){.status = status, .message = message});
}

/* An operator's route. */
void handle_runs(struct exchange *exchange) {
    exchange->view = GRANT_VIEW_ALL;
    handle_list(exchange, ENTITY_RUN);
}

void handle_workers(struct exchange *exchange) {
    exchange->view = GRANT_VIEW_ALL;
    handle_list(exchange, ENTITY_WORKER);
}

/* Of a token: the rows that it would see on the topic of summaries. */
static void list_own_runs(struct exchange *exchange) {
    handle_list(exchange, ENTITY_RUN);
}

static void list_own_workers(struct exchange *exchange) {
    handle_list(exchange, ENTITY_WORKER);
}

void handle_own_runs(struct exchange *exchange) {
    entitle(exchange, topic_name(TOPIC_RUN_SUMMARIES), list_own_runs);
}

void handle_own_workers(struct exchange *exchange) {
    entitle(exchange, topic_name(TOPIC_CODEX_WORKER_SUMMARIES), list_own_workers);
}
