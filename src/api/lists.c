/* GET /internal/v1/topics: topics in the order of their names, those that match the filters.
 * GET /v1/topics/{topic}: one topic.
 *
 * A list is read by the index of the names. A request looks at a bounded number of rows, whether
 * they match or not, so that a rare class costs several requests and never one long read. */
#include <stdlib.h>

#include "api/api.h"
#include "api/handlers.h"
#include "base/limits.h"
#include "delivery/access.h"
#include "http/store_read.h"
#include "store/topic_history.h"
#include "topic/policy.h"
#include "wire/object_writer.h"

#define LIMIT_DEFAULT 100

enum filter {
    FILTER_AFTER,
    FILTER_CLASS,
    FILTER_PREFIX,
    FILTER_COUNT,
};

static const char *const filter_names[FILTER_COUNT] = {
    [FILTER_AFTER] = "after",
    [FILTER_CLASS] = "class",
    [FILTER_PREFIX] = "prefix",
};

struct row_list {
    struct slice filters[FILTER_COUNT]; /* absent: data NULL */
    struct buffer memory[FILTER_COUNT];
    struct buffer last; /* the key of the last row that was looked at */
    uint64_t rows_read;
    uint64_t count;
};

static void list_free(void *memory) {
    struct row_list *list = memory;
    for (size_t i = 0; i < FILTER_COUNT; i++)
        buffer_release(&list->memory[i]);
    buffer_release(&list->last);
    free(list);
}

/* ---- rows ---- */

/* False: the page is full, and the row of that key follows. */
static bool takes_row(struct store_read *read, struct slice key) {
    struct row_list *list = read->state;
    read->has_more = list->count == read->limit || read->out.size >= LIST_PAGE_BYTES ||
                     list->rows_read == LIST_PAGE_READS_MAX;
    list->rows_read++;
    if (read->has_more)
        return false;
    buffer_clear(&list->last);
    (void)buffer_note(&read->out, buffer_append_slice(&list->last, key));
    return true;
}

static bool matches(struct slice filter, struct slice value) {
    return !filter.data || (value.data && slice_equal(filter, value));
}

/* {topic, stream_id, topic_class, qos_tier, window{oldest_seq, head_seq, replay_budget_events}}. A
 * topic that does not exist has no window, except built-in ones, which have it before their first
 * event. A stream id without a topic has no name. */
static void write_topic(struct buffer *out, const struct policy_table *policies,
                        const struct topic_address *address) {
    const struct policy *policy =
        policy_of(policies, address->topic.data ? address->topic : address->stream_id);
    const struct store_topic empty = {.oldest_seq = 1};
    const struct topic_window window =
        enforced_window(address->exists ? &address->row : &empty, policy);
    enum topic_kind kind =
        address->topic.data ? topic_kind_of(address->topic, NULL) : TOPIC_APPLICATION;
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("topic"), address->topic);
    object_text(&object, SLICE("stream_id"), address->stream_id);
    object_text(&object, SLICE("topic_class"), slice_of(topic_class_name(policy->topic_class)));
    object_text(&object, SLICE("qos_tier"), slice_of(qos_tier_name(policy->qos_tier)));
    if (address->exists || topic_row(kind)->ownership == TOPIC_SHARED)
        buffer_printf(out,
                      ",\"window\":{\"oldest_seq\":%llu,\"head_seq\":%llu,"
                      "\"replay_budget_events\":%llu}",
                      (unsigned long long)window.oldest_seq, (unsigned long long)window.head_seq,
                      (unsigned long long)window.replay_budget_events);
    else
        object_json(&object, SLICE("window"), SLICE("null"));
    object_close(&object);
}

static enum status list_topic(void *user, const struct store_topic *topic) {
    struct store_read *read = user;
    struct row_list *list = read->state;
    const struct slice *filters = list->filters;
    const struct policy_table *policies = api_of(read->exchange)->policies;
    struct slice class_name =
        slice_of(topic_class_name(policy_of(policies, topic->name)->topic_class));
    /* Names are in order: none behind this one has the prefix. */
    if (filters[FILTER_PREFIX].data && !slice_starts(topic->name, filters[FILTER_PREFIX]))
        return STATUS_LIMIT_REACHED;
    if (!takes_row(read, topic->name))
        return STATUS_LIMIT_REACHED;
    if (!matches(filters[FILTER_CLASS], class_name))
        return buffer_status(&list->last);
    if (list->count++ > 0)
        buffer_append_byte(&read->out, ',');
    const struct topic_address address = {topic->name, topic->stream_id, true, *topic};
    write_topic(&read->out, policies, &address);
    return buffer_status(&read->out);
}

/* ---- a page ---- */

static void read_list(struct store_read *read, struct store_session *store) {
    const struct row_list *list = read->state;
    const struct slice *filters = list->filters;
    struct buffer *out = &read->out;
    struct slice after = filters[FILTER_AFTER].data ? filters[FILTER_AFTER] : SLICE("");
    struct slice prefix = filters[FILTER_PREFIX].data ? filters[FILTER_PREFIX] : SLICE("");
    buffer_append_slice(out, SLICE("{\"items\":["));
    enum status status =
        store_list_topics(store, prefix, after, LIST_PAGE_READS_MAX + 1, read, list_topic);
    if (status == STATUS_LIMIT_REACHED)
        status = STATUS_OK;
    buffer_append_slice(out, SLICE("],\"next_cursor\":"));
    if (read->has_more)
        json_write_string(out, buffer_slice(&list->last));
    else
        buffer_append_slice(out, SLICE("null"));
    buffer_printf(out, ",\"has_more\":%s}\n", read->has_more ? "true" : "false");
    read->status = status;
}

/* ---- the request ---- */

void handle_topics(struct exchange *exchange) {
    struct store_read *read = store_read_new(exchange, ENTITY_TOPIC, read_list);
    if (!read)
        return;
    struct row_list *list = calloc(1, sizeof(*list));
    if (!list) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    buffer_init(&list->last, STREAM_ID_BYTES_MAX);
    for (size_t i = 0; i < FILTER_COUNT; i++)
        buffer_init(&list->memory[i], QUERY_TEXT_BYTES_MAX);
    read->state = list;
    read->state_free = list_free;
    read->limit = LIMIT_DEFAULT;
    enum status status =
        query_number(exchange, SLICE("limit"), 1, LIST_PAGE_ITEMS_MAX, &read->limit);
    for (size_t i = 0; status == STATUS_OK && i < FILTER_COUNT; i++)
        status =
            query_text(exchange, slice_of(filter_names[i]), &list->memory[i], &list->filters[i]);
    const char *message =
        status == STATUS_INVALID_REQUEST
            ? "limit is a whole number from 1 to 1000; a text has up to 2048 bytes."
            : NULL;
    /* A misspelt class would match nothing. */
    struct slice class_name = list->filters[FILTER_CLASS];
    enum topic_class topic_class;
    if (status == STATUS_OK && class_name.data && !topic_class_of(class_name, &topic_class)) {
        message = "class must be a topic class.";
        status = STATUS_INVALID_REQUEST;
    }
    if (status == STATUS_OK)
        store_read_post(read);
    else
        exchange_answer_error(exchange,
                              &(struct exchange_error){.status = status, .message = message});
}

/* ---- one topic ---- */

static void read_topic(struct store_read *read, struct store_session *store) {
    struct topic_address address;
    struct grant grant = {STATUS_OK, read->exchange->view};
    enum status status = STATUS_OK;
    if (grant.view == GRANT_VIEW_PENDING)
        status = entitlement_load(store, read->exchange->principal, read->id, &read->arena, &grant);
    if (status == STATUS_OK)
        status = grant_view_is_pending(grant.view)
                     ? topic_address_absent(read->id, &read->arena, &address)
                     : topic_address_find(store, read->id, &read->arena, &address);
    if (status == STATUS_OK)
        write_topic(&read->out, api_of(read->exchange)->policies, &address);
    buffer_append_byte(&read->out, '\n');
    read->status = status;
}

void handle_topic(struct exchange *exchange) {
    struct store_read *read = store_read_new(exchange, ENTITY_TOPIC, read_topic);
    if (read)
        store_read_post(read);
}
