/* GET and PUT /internal/v1/quotas/{owner}, DELETE of it, GET /internal/v1/quotas, and
 * GET /internal/v1/usage: what operators allow owners, and what the owners have stored.
 *
 * A change is durable and in force at the writer before it is answered. The other nodes of the
 * store read it with their next beat, or before they show quotas. */
#include <stdlib.h>

#include "api/api.h"
#include "api/handlers.h"
#include "api/record.h"
#include "authority/quota.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/utf8.h"
#include "http/store_read.h"
#include "topic/topic_name.h"
#include "wire/object_writer.h"

#define LIMIT_DEFAULT 100

/* ---- one owner in an answer ---- */

static void put_limits(struct buffer *out, const struct quota_limits *limits,
                       const bool *is_shown) {
    struct object_writer object = object_begin(out);
    for (unsigned i = 0; i < QUOTA_COUNT; i++)
        if (!is_shown || is_shown[i])
            object_number(&object, slice_of(quota_name((enum quota)i)), limits->of[i]);
    object_close(&object);
}

/* owner, the quotas that were set for it, all limits that follow, and the usage. */
static void put_owner(struct buffer *out, struct quota_table *table,
                      const struct store_usage *usage) {
    struct quota_limits limits;
    struct quota_settings settings;
    quota_limits_of(table, usage->owner, &limits, &settings);
    struct object_writer owner = object_begin(out);
    object_text(&owner, SLICE("owner"), usage->owner);
    buffer_append_slice(out, SLICE(",\"quotas\":"));
    put_limits(out, &limits, settings.is_set);
    buffer_append_slice(out, SLICE(",\"limits\":"));
    put_limits(out, &limits, NULL);
    buffer_append_slice(out, SLICE(",\"usage\":"));
    struct object_writer used = object_begin(out);
    object_number(&used, SLICE("bytes_stored"), usage_bytes_stored(usage));
    object_number(&used, SLICE("events"), usage->events);
    object_number(&used, SLICE("metadata_bytes"), usage->metadata_bytes);
    object_number(&used, SLICE("open_runs"), usage->open_runs);
    object_number(&used, SLICE("open_workers"), usage->open_workers);
    object_close(&used);
    object_close(&owner);
}

static void refuse_shape(struct exchange *exchange, const char *message) {
    exchange_answer_error(
        exchange, &(struct exchange_error){.status = STATUS_INVALID_REQUEST, .message = message});
}

/* False: the owner of the path is none, and the exchange was answered. */
static bool has_owner(struct exchange *exchange) {
    struct slice owner = exchange->match.parameters[0];
    bool is_owner = utf8_valid(owner) && quota_owner_is_valid(owner);
    if (is_owner) {
        size_t prefix_size =
            (size_t)((const char *)memchr(owner.data, ':', owner.size) + 1 - owner.data);
        is_owner = !entity_name_problem(
            (struct slice){owner.data + prefix_size, owner.size - prefix_size});
    }
    if (!is_owner)
        refuse_shape(exchange, "An owner is user:ID, guest:SCOPE or org:ID.");
    return is_owner;
}

/* ---- changing ---- */

struct quota_work {
    struct exchange_call call;
    struct store_quota quotas[QUOTA_COUNT];
    size_t quota_count;
    struct store_usage usage;
    enum status status;
};

static void work_free(void *memory) {
    free(memory);
}

/* On the writer's thread. */
static void change_run(struct call *call, struct store_session *store) {
    struct quota_work *work = container_of(call, struct quota_work, call.call);
    struct quota_table *table = api_of(work->call.exchange)->quotas;
    bool sets = false;
    for (size_t i = 0; i < work->quota_count; i++)
        sets = sets || work->quotas[i].is_set;
    work->status = STATUS_OK;
    if (sets && !quota_table_has_room(table, work->usage.owner)) {
        work->status = STATUS_LIMIT_REACHED;
        return;
    }
    if (work->quota_count > 0)
        work->status = store_put_quotas(store, work->quotas, work->quota_count);
    if (work->status == STATUS_OK)
        work->status = quota_table_read(table, store);
    if (work->status == STATUS_OK)
        work->status = store_load_usages(store, &work->usage, 1);
}

static void change_answer(struct exchange_call *call) {
    struct quota_work *work = container_of(call, struct quota_work, call);
    struct exchange *exchange = call->exchange;
    enum status status = call->call.status == STATUS_OK ? work->status : call->call.status;
    struct buffer out;
    buffer_init(&out, LIST_PAGE_BYTES);
    if (status == STATUS_OK) {
        log_event(
            LOG_INFO, "quotas.changed", log_slice("request_id", exchange_request_id(exchange)),
            log_slice("owner", work->usage.owner), log_int("changed", (int64_t)work->quota_count));
        put_owner(&out, api_of(exchange)->quotas, &work->usage);
        buffer_append_byte(&out, '\n');
    }
    exchange_answer_text(exchange, status, &out);
    buffer_release(&out);
}

static void change_post(struct exchange *exchange) {
    struct quota_work *work = exchange->work;
    exchange_call_writer(&work->call);
}

/* {"by":…,"owner":…,"quotas":[{"name":"open_runs","value":5}]}: the value of a removed one is
 * null. */
static void record_change(struct quota_work *work, bool removes_all) {
    struct record *record = record_new(work->call.exchange, 1);
    if (!record)
        return;
    struct object_writer event = record_begin(record);
    object_text(&event, SLICE("owner"), work->usage.owner);
    if (!removes_all) {
        (void)buffer_append_slice(event.out, SLICE(",\"quotas\":["));
        for (size_t i = 0; i < work->quota_count; i++) {
            const struct store_quota *quota = &work->quotas[i];
            if (i > 0)
                (void)buffer_append_byte(event.out, ',');
            struct object_writer one = object_begin(event.out);
            object_text(&one, SLICE("name"), quota->name);
            if (quota->is_set)
                object_number(&one, SLICE("value"), quota->value);
            else
                object_json(&one, SLICE("value"), SLICE("null"));
            object_close(&one);
        }
        (void)buffer_append_byte(event.out, ']');
    }
    record_end(record, &event, removes_all ? "operator.quotas_removed" : "operator.quotas_set");
    record_post(record, change_post);
}

static void change(struct exchange *exchange, bool removes_all) {
    char message[QUOTA_MESSAGE_BYTES_MAX];
    struct quota_change given = {{false}, {{false}, {0}}};
    if (!has_owner(exchange))
        return;
    struct quota_work *work = calloc(1, sizeof(*work));
    if (!work) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    work->call = (struct exchange_call){.exchange = exchange, .answer = change_answer};
    work->call.call.run = change_run;
    work->usage.owner = exchange->match.parameters[0];
    exchange->work = work;
    exchange->work_free = work_free;
    const char *fault =
        removes_all ? NULL : quota_read_change(buffer_slice(&exchange->body), &given, message);
    for (unsigned i = 0; i < QUOTA_COUNT; i++)
        if (removes_all || given.is_given[i])
            work->quotas[work->quota_count++] =
                (struct store_quota){work->usage.owner, slice_of(quota_name((enum quota)i)),
                                     given.settings.is_set[i], given.settings.value[i], 0};
    if (fault)
        refuse_shape(exchange, fault);
    else
        record_change(work, removes_all);
}

void handle_quota_put(struct exchange *exchange) {
    change(exchange, false);
}

void handle_quota_delete(struct exchange *exchange) {
    change(exchange, true);
}

/* ---- reading ---- */

static void read_one(struct store_read *read, struct store_session *store) {
    struct quota_table *table = api_of(read->exchange)->quotas;
    struct store_usage usage = {.owner = read->id};
    enum status status = quota_table_read(table, store);
    if (status == STATUS_OK)
        status = store_load_usages(store, &usage, 1);
    if (status == STATUS_OK)
        put_owner(&read->out, table, &usage);
    buffer_append_byte(&read->out, '\n');
    read->status = status;
}

void handle_quota_get(struct exchange *exchange) {
    if (!has_owner(exchange))
        return;
    struct store_read *read = store_read_new(exchange, ENTITY_TOPIC, read_one);
    if (!read)
        return;
    read->id = exchange->match.parameters[0];
    store_read_post(read);
}

struct owner_list {
    struct buffer memory;
    struct slice after;
    struct buffer last;
    uint64_t count;
};

static void list_free(void *memory) {
    struct owner_list *list = memory;
    buffer_release(&list->memory);
    buffer_release(&list->last);
    free(list);
}

/* STATUS_LIMIT_REACHED: the page is full, and another owner follows. */
static enum status list_owner(void *user, const struct store_usage *usage) {
    struct store_read *read = user;
    struct owner_list *list = read->state;
    read->has_more = list->count == read->limit || read->out.size >= LIST_PAGE_BYTES;
    if (read->has_more)
        return STATUS_LIMIT_REACHED;
    buffer_clear(&list->last);
    buffer_append_slice(&list->last, usage->owner);
    if (list->count++ > 0)
        buffer_append_byte(&read->out, ',');
    put_owner(&read->out, api_of(read->exchange)->quotas, usage);
    return buffer_status(&list->last) == STATUS_OK ? buffer_status(&read->out)
                                                   : buffer_status(&list->last);
}

static enum status list_quotas(struct store_read *read, struct store_session *store) {
    const struct owner_list *list = read->state;
    char text[QUOTA_OWNER_BYTES_MAX];
    struct slice after = list->after;
    enum status status = STATUS_OK;
    size_t size;
    while (status == STATUS_OK &&
           quota_table_next(api_of(read->exchange)->quotas, after, text, &size)) {
        struct store_usage usage = {.owner = {text, size}};
        status = store_load_usages(store, &usage, 1);
        if (status == STATUS_OK)
            status = list_owner(read, &usage);
        after = (struct slice){text, size};
    }
    return status;
}

static void read_list(struct store_read *read,
                      enum status (*rows)(struct store_read *read, struct store_session *store),
                      struct store_session *store) {
    const struct owner_list *list = read->state;
    enum status status = quota_table_read(api_of(read->exchange)->quotas, store);
    buffer_append_slice(&read->out, SLICE("{\"items\":["));
    if (status == STATUS_OK)
        status = rows(read, store);
    if (status == STATUS_LIMIT_REACHED)
        status = STATUS_OK;
    buffer_append_slice(&read->out, SLICE("],\"next_cursor\":"));
    if (read->has_more)
        json_write_string(&read->out, buffer_slice(&list->last));
    else
        buffer_append_slice(&read->out, SLICE("null"));
    buffer_printf(&read->out, ",\"has_more\":%s}\n", read->has_more ? "true" : "false");
    read->status = status;
}

static void read_quota_list(struct store_read *read, struct store_session *store) {
    read_list(read, list_quotas, store);
}

static enum status list_usages(struct store_read *read, struct store_session *store) {
    const struct owner_list *list = read->state;
    return store_walk_usages(store, list->after, read->limit + 1, read, list_owner);
}

static void read_usage_list(struct store_read *read, struct store_session *store) {
    read_list(read, list_usages, store);
}

static void handle_list(struct exchange *exchange,
                        void (*run)(struct store_read *read, struct store_session *store)) {
    struct store_read *read = store_read_new(exchange, ENTITY_TOPIC, run);
    if (!read)
        return;
    struct owner_list *list = calloc(1, sizeof(*list));
    if (!list) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    buffer_init(&list->memory, QUERY_TEXT_BYTES_MAX);
    buffer_init(&list->last, QUOTA_OWNER_BYTES_MAX);
    list->after = SLICE("");
    read->state = list;
    read->state_free = list_free;
    read->limit = LIMIT_DEFAULT;
    enum status status =
        query_number(exchange, SLICE("limit"), 1, LIST_PAGE_ITEMS_MAX, &read->limit);
    if (status == STATUS_OK)
        status = query_text(exchange, SLICE("after"), &list->memory, &list->after);
    if (status == STATUS_OK)
        store_read_post(read);
    else
        refuse_shape(exchange,
                     "limit is a whole number from 1 to 1000; after has up to 2048 bytes.");
}

void handle_quotas(struct exchange *exchange) {
    handle_list(exchange, read_quota_list);
}

void handle_usage(struct exchange *exchange) {
    handle_list(exchange, read_usage_list);
}
