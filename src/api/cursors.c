/* POST /v1/cursors/plan: what resuming from each of many topic cursors would do and cost.
 *
 * A topic that the token excludes is answered "denied", and a run or worker of another owner as if
 * it did not exist, both with names derived from the request only. Nothing in these answers comes
 * from the store, so they do not reveal whether the topic exists.
 *
 * A plan runs in slices of STORE_TASK_ROWS rows, so that reads of other principals have their turn
 * between them. A slice may end within a cursor: its row and its progress stay in the plan. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "api/handlers.h"
#include "base/limits.h"
#include "base/map.h"
#include "delivery/access.h"
#include "delivery/replay_budget.h"
#include "delivery/telemetry.h"
#include "http/store_read.h"
#include "store/topic_history.h"
#include "topic/cursor_list.h"
#include "topic/stream_id.h"
#include "wire/json.h"

/* The plan of a cursor, in the answer. */
struct planned {
    size_t offset;
    size_t size;
};

/* The answer to one cursor. Absent names have data NULL. Without a window the topic is unknown. */
struct plan_row {
    struct slice stream_id;
    struct slice topic_name;
    struct slice address; /* the name that the principal must be entitled to */
    bool is_conflict;     /* another topic has the stream id */
    struct store_topic topic;
    bool has_window;
    struct topic_window window;
    struct topic_epoch epoch;
    struct grant grant; /* the view of the principal */
    struct continuity continuity;
    uint64_t rows_max; /* the most rows to look at for this cursor */
    bool is_measured;  /* false: that would take more rows */
    uint64_t from_seq; /* the last sequence before the replay, or before its unmeasured rest */
    struct store_replay replay;
    const struct policy *policy;
};

/* What is to do next. */
enum plan_stage {
    PLAN_NEXT,    /* the next cursor */
    PLAN_JUDGE,   /* the frames of the reader are counted, if the row is over the budget */
    PLAN_MEASURE, /* the cost of the replay is measured */
    PLAN_WRITE,
    PLAN_END,
};

struct plan {
    struct cursor_list list;
    struct buffer name;       /* the derived name of a cursor: its stream id or its topic */
    struct store_state state; /* as of the start */
    bool has_started;
    uint64_t count;
    enum plan_stage stage;
    struct cursor_list_item item; /* the cursor under way, as the next three */
    struct buffer key;
    struct plan_row row;
    struct replay_progress judged;
    uint64_t slice_rows; /* looked at by this slice */
    uint64_t rows;       /* looked at by the whole plan */
    struct map planned;  /* plans by cursor, so that a repeated cursor is planned once */
    struct arena keys;   /* memory of the keys of that map */
};

static void plan_free(void *memory) {
    struct plan *plan = memory;
    cursor_list_release(&plan->list);
    buffer_release(&plan->name);
    buffer_release(&plan->key);
    map_release(&plan->planned);
    arena_release(&plan->keys);
    free(plan);
}

/* ---- the topic ---------------------------------------------------------------------------- */

static enum status name_by_rule(struct plan *plan, const struct topic_cursor *cursor,
                                struct plan_row *row) {
    bool by_topic = cursor->kind == TOPIC_CURSOR_TOPIC;
    buffer_clear(&plan->name);
    enum status status = by_topic ? topic_to_stream(cursor->name, &plan->name)
                                  : stream_to_topic(cursor->name, &plan->name);
    struct slice other = status == STATUS_OK ? buffer_slice(&plan->name) : (struct slice){NULL, 0};
    row->stream_id = by_topic ? other : cursor->name;
    row->topic_name = by_topic ? cursor->name : other;
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/* The store is read first: a derived name cannot distinguish a.b from a:b. */
static enum status find_topic(struct store_read *read, struct store_session *store,
                              const struct topic_cursor *cursor, struct plan_row *row) {
    struct topic_address found;
    enum status status = topic_address_find(store, cursor->name, &read->arena, &found);
    row->is_conflict = status == STATUS_STREAM_ID_CONFLICT;
    /* Not a stream id, although it was given as one: no topic has it. */
    if (status == STATUS_INVALID_TOPIC && cursor->kind == TOPIC_CURSOR_STREAM)
        status = STATUS_OK;
    else if (status == STATUS_OK && found.exists) {
        row->has_window = true;
        row->topic = found.row;
        row->stream_id = found.stream_id;
        row->topic_name = row->address = found.topic;
        return STATUS_OK;
    }
    if (status != STATUS_OK && !row->is_conflict)
        return status;
    status = name_by_rule(read->state, cursor, row);
    bool is_stored = address_kind(cursor->name) == ADDRESS_STORED_STREAM;
    row->address = is_stored ? cursor->name : row->topic_name;
    return status;
}

/* ---- the cost of the replay --------------------------------------------------------------- */

/* If the principal may not read every frame of a topic, only the readable frames count. */
struct measure {
    struct viewer viewer;
    struct store_replay *replay;
};

static enum status measure_event(void *user, const struct store_event *event) {
    struct measure *measure = user;
    bool may_read;
    enum status status = viewer_check(&measure->viewer, event->entity_ref, event, &may_read);
    if (status == STATUS_OK && may_read) {
        measure->replay->frame_count++;
        measure->replay->payload_bytes += event->payload.size;
    }
    return status;
}

static enum status measure_row(void *user, const struct store_journal_row *row,
                               const struct store_event *event) {
    struct measure *measure = user;
    bool may_read;
    enum status status = viewer_check(&measure->viewer, row->entity_ref, event, &may_read);
    if (status == STATUS_OK && may_read) {
        measure->replay->frame_count++;
        measure->replay->payload_bytes +=
            row->payload.data ? row->payload.size : event->payload.size;
    }
    return status;
}

/* A client that must rebootstrap gets a snapshot if the topic has one. Otherwise it gets the frames
 * that the topic still holds, within the budget. */
static void measure_begin(struct plan *plan) {
    struct plan_row *row = &plan->row;
    row->from_seq = plan->item.cursor.after_seq;
    plan->stage = PLAN_WRITE;
    if (row->continuity.decision == CONTINUITY_REBOOTSTRAP) {
        if (policy_has_snapshot(row->policy))
            return;
        row->from_seq = continuity_bootstrap(&row->window).from_seq - 1;
    }
    if (row->from_seq >= row->window.head_seq)
        return;
    uint64_t count = row->window.head_seq - row->from_seq;
    row->is_measured = plan->judged.rows + count <= row->rows_max;
    if (row->is_measured)
        plan->stage = PLAN_MEASURE;
}

/* One slice. */
static enum status plan_measure(struct store_read *read, struct store_session *store) {
    struct plan *plan = read->state;
    struct plan_row *row = &plan->row;
    const struct store_topic *topic = &row->topic;
    uint64_t left = row->window.head_seq - row->from_seq;
    uint64_t count = left < STORE_TASK_ROWS ? left : STORE_TASK_ROWS;
    enum status status;
    if (row->grant.view == GRANT_VIEW_ALL) {
        struct store_replay replay = {0};
        status = store_measure_replay(store, topic, row->from_seq, count, &replay);
        row->replay.frame_count += replay.frame_count;
        row->replay.payload_bytes += replay.payload_bytes;
    } else {
        struct measure measure = {.replay = &row->replay};
        viewer_init(&measure.viewer, store, read->exchange->principal, row->grant.view);
        status = topic->entity_ref > 0
                     ? store_walk_entity_events(store, topic->entity_ref, row->from_seq, count,
                                                &measure, measure_event)
                     : store_walk_journal(store, topic->ref, row->from_seq, count, &measure,
                                          measure_row);
        viewer_release(&measure.viewer);
    }
    plan->slice_rows += count;
    row->from_seq += count;
    if (row->from_seq == row->window.head_seq)
        plan->stage = PLAN_WRITE;
    return status;
}

/* ---- the decision ------------------------------------------------------------------------- */

static enum status judge_begin(struct plan *plan, struct store_session *store) {
    struct plan_row *row = &plan->row;
    const struct topic_cursor *cursor = &plan->item.cursor;
    const struct position position = {cursor->after_seq, cursor->epoch};
    const struct topic_window *window = row->has_window ? &row->window : NULL;
    row->epoch = topic_epoch_of(&plan->state, row->has_window ? &row->topic : NULL);
    struct topic_fork fork;
    enum status status = topic_fork_find(store, &plan->state, row->has_window ? &row->topic : NULL,
                                         &position, &fork);
    struct lineage lineage = lineage_of(window, &position, &row->epoch, &fork);
    lineage.is_damaged = row->has_window && cursor->after_seq < row->topic.damaged_seq;
    row->continuity = continuity_judge(window, cursor->after_seq, lineage);
    uint64_t rows = plan->rows + plan->slice_rows;
    uint64_t left = rows < CURSORS_PLAN_ROWS_MAX ? CURSORS_PLAN_ROWS_MAX - rows : 0;
    row->rows_max = left < CURSORS_PLAN_CURSOR_ROWS_MAX ? left : CURSORS_PLAN_CURSOR_ROWS_MAX;
    row->is_measured = !row->has_window || row->rows_max > 0;
    plan->judged = (struct replay_progress){0};
    plan->stage = row->has_window && row->is_measured ? PLAN_JUDGE : PLAN_WRITE;
    return status;
}

/* One slice: counts the frames of a row that is over the budget. */
static enum status plan_judge(struct store_read *read, struct store_session *store) {
    struct plan *plan = read->state;
    struct plan_row *row = &plan->row;
    const struct replay_reader reader = {.policy = row->policy,
                                         .principal = read->exchange->principal,
                                         .view = row->grant.view,
                                         .now_ms = clock_now().wall_ms,
                                         .rows_max = row->rows_max};
    uint64_t before = plan->judged.rows;
    enum status status =
        replay_budget_judge(store, &row->topic, &reader, &row->continuity, &plan->judged);
    plan->slice_rows += plan->judged.rows - before;
    if (status != STATUS_OK || plan->judged.has_more)
        return status;
    row->is_measured = !plan->judged.is_short;
    plan->stage = PLAN_WRITE;
    if (row->is_measured)
        measure_begin(plan);
    return STATUS_OK;
}

static enum status plan_cursor(struct store_read *read, struct store_session *store) {
    struct plan *plan = read->state;
    struct plan_row *row = &plan->row;
    const struct topic_cursor *cursor = &plan->item.cursor;
    *row = (struct plan_row){.has_window = false};
    arena_reset(&read->arena);
    plan->stage = PLAN_WRITE;
    enum status status = find_topic(read, store, cursor, row);
    if (status == STATUS_OK)
        status = entitlement_load(store, read->exchange->principal, row->address, &read->arena,
                                  &row->grant);
    if (status != STATUS_OK)
        return status;
    if (row->grant.status == STATUS_OK && row->is_conflict)
        row->grant = (struct grant){STATUS_STREAM_ID_CONFLICT, GRANT_VIEW_NONE};
    bool is_denied = row->grant.status != STATUS_OK;
    if (is_denied || row->grant.view == GRANT_VIEW_NONE) {
        struct exchange *exchange = read->exchange;
        char name[PRINCIPAL_NAME_BYTES_MAX];
        const struct cause cause = {.connection = slice_of(exchange->request_id),
                                    .principal = {name, principal_name(exchange->principal, name)},
                                    .topic = row->topic_name,
                                    .dialect = LABEL_DIALECT_HTTP};
        telemetry_refused(exchange->http->telemetry, cause,
                          is_denied ? row->grant.status : STATUS_OWNER_MISMATCH);
    }
    if (is_denied || grant_view_is_pending(row->grant.view)) {
        /* The answer has nothing but what follows from the request. */
        row->has_window = false;
        status = name_by_rule(plan, cursor, row);
    }
    if (status != STATUS_OK || is_denied)
        return status;
    if (row->has_window) {
        row->policy = policy_of(api_of(read->exchange)->policies, row->topic_name);
        row->window = enforced_window(&row->topic, row->policy);
    }
    return judge_begin(plan, store);
}

/* ---- the answer --------------------------------------------------------------------------- */

static void write_name(struct buffer *out, const char *before, struct slice name) {
    buffer_append_slice(out, slice_of(before));
    if (name.data)
        json_write_string(out, name);
    else
        buffer_append_slice(out, SLICE("null"));
}

static void write_row(struct buffer *out, const struct plan_row *row, uint64_t after_seq) {
    const struct continuity *continuity = &row->continuity;
    bool is_denied = row->grant.status != STATUS_OK;
    write_name(out, "{\"stream_id\":", row->stream_id);
    write_name(out, ",\"topic\":", row->topic_name);
    buffer_printf(out, ",\"after_seq\":%llu,\"decision\":\"%s\",\"reason_codes\":[",
                  (unsigned long long)(is_denied ? after_seq : continuity->after_seq),
                  is_denied                                   ? "denied"
                  : continuity->decision == CONTINUITY_RESUME ? "resume"
                                                              : "rebootstrap");
    if (is_denied)
        buffer_printf(out, "\"%s\"", status_code(row->grant.status));
    for (size_t i = 0; !is_denied && i < continuity->reason_count; i++)
        buffer_printf(out, "%s\"%s\"", i > 0 ? "," : "", reason_code(continuity->reasons[i]));
    if (!is_denied && !row->is_measured)
        buffer_append_slice(out, SLICE("],\"replay_events\":null,\"replay_bytes\":null"));
    else
        buffer_printf(out, "],\"replay_events\":%llu,\"replay_bytes\":%llu",
                      (unsigned long long)row->replay.frame_count,
                      (unsigned long long)row->replay.payload_bytes);
    if (!row->has_window) {
        buffer_append_slice(out, SLICE(",\"window\":null}"));
        return;
    }
    buffer_printf(
        out,
        ",\"window\":{\"oldest_seq\":%llu,\"head_seq\":%llu,"
        "\"replay_budget_events\":%llu,\"qos_tier\":\"%s\"}}",
        (unsigned long long)row->window.oldest_seq, (unsigned long long)row->window.head_seq,
        (unsigned long long)row->window.replay_budget_events, qos_tier_name(row->policy->qos_tier));
}

/* A cursor that is repeated gets its first answer again. */
static enum status plan_next(struct store_read *read, struct store_session *store) {
    struct plan *plan = read->state;
    const struct topic_cursor *cursor = &plan->item.cursor;
    struct buffer *out = &read->out;
    if (!cursor_list_next(&plan->list, &plan->item)) {
        plan->stage = PLAN_END;
        return buffer_append_slice(out, SLICE("]}\n"));
    }
    buffer_clear(&plan->key);
    buffer_printf(&plan->key, "%d %llu %s ", (int)cursor->kind,
                  (unsigned long long)cursor->after_seq, cursor->epoch.text);
    buffer_append_slice(&plan->key, cursor->name);
    if (plan->count++ > 0)
        buffer_append_byte(out, ',');
    if (buffer_status(&plan->key) != STATUS_OK)
        return buffer_status(&plan->key);
    const struct planned *planned = map_find(&plan->planned, buffer_slice(&plan->key));
    if (!planned)
        return plan_cursor(read, store);
    /* The memory must not move while the buffer is copied into itself. */
    if (buffer_note(out, buffer_reserve(out, planned->size)) != STATUS_OK)
        return buffer_status(out);
    return buffer_append_slice(out, (struct slice){out->data + planned->offset, planned->size});
}

static enum status plan_write(struct store_read *read) {
    struct plan *plan = read->state;
    size_t offset = read->out.size;
    plan->stage = PLAN_NEXT;
    write_row(&read->out, &plan->row, plan->item.cursor.after_seq);
    struct planned *planned = arena_alloc(&plan->keys, sizeof(*planned));
    struct slice key = arena_copy(&plan->keys, buffer_slice(&plan->key));
    if (!planned || !key.data)
        return STATUS_OUT_OF_MEMORY;
    *planned = (struct planned){offset, read->out.size - offset};
    return map_insert(&plan->planned, key, planned);
}

/* One slice. */
static void read_plan(struct store_read *read, struct store_session *store) {
    struct plan *plan = read->state;
    uint64_t end = plan->count + OPENING_SLICE_TOPICS;
    enum status status = STATUS_OK;
    if (!plan->has_started) {
        status = store_read_state(store, &plan->state);
        plan->has_started = status == STATUS_OK;
        buffer_printf(&read->out, "{\"epoch\":\"%s\",\"plans\":[", plan->state.epoch);
    }
    plan->slice_rows = 0;
    while (status == STATUS_OK && plan->stage != PLAN_END && plan->slice_rows < STORE_TASK_ROWS &&
           plan->count < end)
        switch (plan->stage) {
        case PLAN_NEXT:
            status = plan_next(read, store);
            break;
        case PLAN_JUDGE:
            status = plan_judge(read, store);
            break;
        case PLAN_MEASURE:
            status = plan_measure(read, store);
            break;
        case PLAN_WRITE:
            status = plan_write(read);
            break;
        case PLAN_END:
            break;
        }
    plan->rows += plan->slice_rows;
    read->runs_again = plan->stage != PLAN_END;
    read->status = status;
}

static void plan_answer(struct store_read *read) {
    exchange_answer_text(read->exchange, read->status, &read->out);
}

/* ---- the request -------------------------------------------------------------------------- */

void handle_cursors_plan(struct exchange *exchange) {
    const struct json_limits limits = {CURSORS_PLAN_BYTES_MAX, JSON_DEPTH_MAX};
    struct slice text = buffer_slice(&exchange->body);
    struct store_read *read = store_read_new(exchange, ENTITY_TOPIC, read_plan);
    if (!read)
        return;
    struct plan *plan = calloc(1, sizeof(*plan));
    if (!plan) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    cursor_list_init(&plan->list);
    buffer_init(&plan->name, STREAM_ID_BYTES_MAX);
    buffer_init(&plan->key, CURSORS_PLAN_BYTES_MAX);
    map_init(&plan->planned, CURSORS_PLAN_CURSORS_MAX);
    arena_init(&plan->keys, CURSORS_PLAN_KEYS_BYTES_MAX);
    read->state = plan;
    read->state_free = plan_free;
    read->answer = plan_answer;
    enum status status = cursor_list_begin(&plan->list, text, &limits);
    if (status != STATUS_OK) {
        exchange_answer_status(exchange, status);
        return;
    }
    /* All cursors are checked before the store is read. */
    struct cursor_list_item item = {.status = STATUS_OK};
    uint64_t index = 0;
    for (; status == STATUS_OK && cursor_list_next(&plan->list, &item); index++)
        status = index == CURSORS_PLAN_CURSORS_MAX ? STATUS_INVALID_REQUEST : item.status;
    if (status != STATUS_OK) {
        char details[48];
        bool is_too_long = --index == CURSORS_PLAN_CURSORS_MAX;
        snprintf(details, sizeof(details), "{\"index\":%llu}", (unsigned long long)index);
        exchange_answer_error(exchange,
                              &(struct exchange_error){
                                  .status = status,
                                  .message = is_too_long ? "A plan has up to 1000 cursors." : NULL,
                                  .details = slice_of(details)});
        return;
    }
    status = cursor_list_begin(&plan->list, text, &limits);
    assert(status == STATUS_OK);
    (void)exchange_request_id(exchange); /* made here, for the log lines of the store pool */
    store_read_post(read);
}
