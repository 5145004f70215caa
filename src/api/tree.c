/* GET /internal/v1/runs/{run_id}/tree and /v1/runs/{run_id}/tree: what a timeline of a run needs.
 *
 *   {run, steps[…], next_after_seq, has_more, children[…], children_has_more}
 *
 * Steps come from the step events behind after_seq, and a page of them ends after a bounded number
 * of events. A step that began on an earlier page shows here only its end, and one that goes on
 * behind this page only its begin: a client joins them by step_id. A run that the principal may not
 * read is answered like one that does not exist. */
#include <stdlib.h>

#include "api/api.h"
#include "api/handlers.h"
#include "api/run_read.h"
#include "authority/event_write.h"
#include "authority/run_report.h"
#include "base/limits.h"
#include "base/map.h"
#include "delivery/access.h"
#include "http/store_read.h"
#include "topic/topic_name.h"
#include "wire/object_writer.h"

#define LIMIT_DEFAULT 200

/* Values are JSON; absent: data NULL. */
struct run_step {
    struct slice step_id;
    struct slice name;
    struct slice kind;
    struct slice parent_step_id;
    struct slice status;
    struct slice error;
    uint64_t started_at_ms; /* 0: before this page */
    uint64_t started_seq;
    uint64_t finished_at_ms; /* 0: not on this page */
    uint64_t finished_seq;
};

struct tree {
    struct store_session *store;
    struct run_step *steps;
    size_t step_count;
    struct map by_id; /* the newest step of each id */
    uint64_t last_seq;
    uint64_t events_read;
    uint64_t bytes_read;
    size_t child_count;
    bool has_more_children;
};

static void tree_free(void *memory) {
    struct tree *tree = memory;
    map_release(&tree->by_id);
    free(tree);
}

/* ---- steps ---- */

/* An absent member leaves what an earlier event said. */
static bool take(struct arena *arena, const struct json_field *member, struct slice *text) {
    if (member->present)
        *text = arena_copy(arena, member->value.raw);
    return !member->present || text->data;
}

static enum status add_step(struct store_read *read, const struct store_event *event,
                            const struct run_report *report) {
    struct tree *tree = read->state;
    const struct json_field *members = report->members;
    bool is_begin = report->kind == RUN_REPORT_STEP_STARTED;
    struct slice step_id = members[RUN_MEMBER_STEP_ID].value.raw;
    struct run_step *step = is_begin ? NULL : map_find(&tree->by_id, step_id);
    if (!step) {
        if (tree->step_count == read->limit) {
            read->has_more = true;
            return STATUS_LIMIT_REACHED;
        }
        step = &tree->steps[tree->step_count++];
        *step = (struct run_step){.started_at_ms = 0};
        if (!take(&read->arena, &members[RUN_MEMBER_STEP_ID], &step->step_id))
            return STATUS_OUT_OF_MEMORY;
        (void)map_remove(&tree->by_id, step->step_id);
        enum status status = map_insert(&tree->by_id, step->step_id, step);
        if (status != STATUS_OK)
            return status;
    }
    *(is_begin ? &step->started_at_ms : &step->finished_at_ms) = event->recorded_at_ms;
    *(is_begin ? &step->started_seq : &step->finished_seq) = event->seq;
    return take(&read->arena, &members[RUN_MEMBER_NAME], &step->name) &&
                   take(&read->arena, &members[RUN_MEMBER_KIND], &step->kind) &&
                   take(&read->arena, &members[RUN_MEMBER_PARENT_STEP_ID], &step->parent_step_id) &&
                   take(&read->arena, &members[RUN_MEMBER_STATUS], &step->status) &&
                   take(&read->arena, &members[RUN_MEMBER_ERROR], &step->error)
               ? STATUS_OK
               : STATUS_OUT_OF_MEMORY;
}

static enum status take_event(void *user, const struct store_event *event) {
    struct store_read *read = user;
    struct tree *tree = read->state;
    struct run_report report;
    struct run_fault fault;
    if (tree->events_read == TREE_PAGE_EVENTS_MAX || tree->bytes_read >= TREE_PAGE_BYTES) {
        read->has_more = true;
        return STATUS_LIMIT_REACHED;
    }
    /* An event of another form is free, and no step. */
    bool is_sound = run_report_read(event->type, event->payload, &report, &fault) == STATUS_OK;
    bool is_step = is_sound && (report.kind == RUN_REPORT_STEP_STARTED ||
                                report.kind == RUN_REPORT_STEP_FINISHED);
    enum status status = is_step ? add_step(read, event, &report) : STATUS_OK;
    if (status != STATUS_OK)
        return status;
    tree->events_read++;
    tree->bytes_read += event->payload.size;
    tree->last_seq = event->seq;
    return STATUS_OK;
}

static void put_json(struct object_writer *object, struct slice name, struct slice json) {
    object_json(object, name, json.data ? json : SLICE("null"));
}

static void put_number(struct object_writer *object, struct slice name, uint64_t number) {
    if (number > 0)
        object_number(object, name, number);
    else
        object_json(object, name, SLICE("null"));
}

static void write_step(struct buffer *out, const struct run_step *step) {
    struct object_writer object = object_begin(out);
    put_json(&object, SLICE("step_id"), step->step_id);
    put_json(&object, SLICE("name"), step->name);
    put_json(&object, SLICE("kind"), step->kind);
    put_json(&object, SLICE("parent_step_id"), step->parent_step_id);
    put_json(&object, SLICE("status"), step->status);
    put_json(&object, SLICE("error"), step->error);
    put_number(&object, SLICE("started_at"), step->started_at_ms);
    put_number(&object, SLICE("finished_at"), step->finished_at_ms);
    put_number(&object, SLICE("started_seq"), step->started_seq);
    put_number(&object, SLICE("finished_seq"), step->finished_seq);
    object_close(&object);
}

/* ---- child runs ---- */

/* A grant for a run is none for its children. */
static enum status may_read(struct store_read *read, const struct store_list_row *row,
                            bool *may_read) {
    struct slice topic;
    *may_read = !(read->exchange->match.route->flags & ROUTE_RUN);
    if (*may_read)
        return STATUS_OK;
    enum status status = topic_name_of_entity(&read->arena, ENTITY_RUN, row->id, &topic);
    if (status != STATUS_OK)
        return status;
    struct grant grant = grant_check(read->exchange->principal, topic, &row->owner);
    *may_read = grant.status == STATUS_OK && !grant_view_is_pending(grant.view);
    return STATUS_OK;
}

static enum status write_child(void *user, const struct store_list_row *row) {
    struct store_read *read = user;
    struct tree *tree = read->state;
    struct store_entity run;
    bool is_shown;
    if (tree->child_count == LIST_PAGE_ITEMS_MAX) {
        tree->has_more_children = true;
        return STATUS_LIMIT_REACHED;
    }
    enum status status = may_read(read, row, &is_shown);
    if (status != STATUS_OK || !is_shown)
        return status;
    status = store_load_entity_ref(tree->store, row->ref, &read->arena, &run);
    if (status != STATUS_OK)
        return status;
    if (tree->child_count++ > 0)
        buffer_append_byte(&read->out, ',');
    struct object_writer object = object_begin(&read->out);
    object_text(&object, SLICE("run_id"), run.id);
    object_text(&object, SLICE("status"), run.status);
    put_json(&object, SLICE("title"), row->title);
    object_text(&object, SLICE("worker_id"), run.worker_id);
    put_number(&object, SLICE("created_at"), run.created_at_ms);
    put_number(&object, SLICE("started_at"), run.started_at_ms);
    put_number(&object, SLICE("finished_at"), run.stopped_at_ms);
    put_number(&object, SLICE("updated_at"), row->updated_at_ms);
    object_number(&object, SLICE("latest_seq"), run.head_seq);
    object_close(&object);
    return buffer_status(&read->out);
}

static enum status write_children(struct store_read *read, struct slice run_id) {
    struct tree *tree = read->state;
    struct buffer parent;
    buffer_init(&parent, 6 * APPEND_ID_BYTES_MAX + 2);
    enum status status = json_write_string(&parent, run_id);
    const struct store_list list = {.kind = ENTITY_RUN,
                                    .order = STORE_LIST_BY_CREATION,
                                    .filter = STORE_LIST_OF_PARENT,
                                    .value = buffer_slice(&parent),
                                    .status_count = 1,
                                    .limit = LIST_PAGE_ITEMS_MAX + 1};
    if (status == STATUS_OK)
        status = store_list_rows(tree->store, &list, read, write_child);
    buffer_release(&parent);
    return status == STATUS_LIMIT_REACHED ? STATUS_OK : status;
}

/* ---- the answer, on a thread of the store pool ---- */

static void read_tree(struct store_read *read, struct store_session *store) {
    struct tree *tree = read->state;
    struct buffer *out = &read->out;
    struct store_entity run;
    tree->store = store;
    tree->last_seq = read->after_seq;
    tree->steps = arena_alloc(&read->arena, read->limit * sizeof(*tree->steps));
    enum status status = tree->steps ? run_load_entitled(read, store, &run) : STATUS_OUT_OF_MEMORY;
    if (status == STATUS_OK)
        status = store_walk_entity_frames(store, run.ref, read->after_seq, TREE_PAGE_EVENTS_MAX + 1,
                                          read, take_event);
    if (status == STATUS_LIMIT_REACHED)
        status = STATUS_OK;
    if (status != STATUS_OK) {
        read->status = status;
        return;
    }
    buffer_append_slice(out, SLICE("{\"run\":"));
    status = run_write(read, store, &run);
    buffer_append_slice(out, SLICE(",\"steps\":["));
    for (size_t i = 0; i < tree->step_count; i++) {
        if (i > 0)
            buffer_append_byte(out, ',');
        write_step(out, &tree->steps[i]);
    }
    if (read->has_more)
        buffer_printf(out, "],\"next_after_seq\":%llu,\"has_more\":true",
                      (unsigned long long)tree->last_seq);
    else
        buffer_append_slice(out, SLICE("],\"next_after_seq\":null,\"has_more\":false"));
    buffer_append_slice(out, SLICE(",\"children\":["));
    if (status == STATUS_OK)
        status = write_children(read, run.id);
    buffer_printf(out, "],\"children_has_more\":%s}\n", tree->has_more_children ? "true" : "false");
    read->status = status;
}

/* ---- the request ---- */

void handle_run_tree(struct exchange *exchange) {
    struct store_read *read = store_read_new(exchange, ENTITY_RUN, read_tree);
    if (!read)
        return;
    struct tree *tree = calloc(1, sizeof(*tree));
    if (!tree) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    map_init(&tree->by_id, LIST_PAGE_ITEMS_MAX);
    read->state = tree;
    read->state_free = tree_free;
    read->limit = LIMIT_DEFAULT;
    enum status status =
        query_number(exchange, SLICE("limit"), 1, LIST_PAGE_ITEMS_MAX, &read->limit);
    if (status == STATUS_OK)
        status = query_number(exchange, SLICE("after_seq"), 0, STORE_SEQ_MAX, &read->after_seq);
    if (status == STATUS_OK)
        store_read_post(read);
    else
        exchange_answer_status(exchange, status);
}
