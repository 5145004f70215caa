/* POST /internal/v1/events:batch: reads items, posts them to the writer in groups, and sends the
 * answers, all at the same time.
 *
 *   body ──json_items──▶ filling ──post──▶ groups ──returned──▶ page ──send──▶ answer
 *                                                                 └─▶ spool ─▶┘
 *
 * At most BATCH_GROUPS_MAX groups are posted and not answered. Then the body waits, so that a
 * writer that is behind costs bounded memory. A group is posted when it is full, or when no other
 * group is posted. So a single item is answered at once, and groups grow under load. A group is one
 * slice of the batch in the writer's fair queue, so it is full soon. When the connection is gone,
 * the groups that still wait there are dropped.
 *
 * Most clients write their whole body before they read. So answers that the socket does not take go
 * to a spool, and the body is read on. The file thread writes and reads the spool's file. When the
 * spool is full, the body waits until the client reads. While the disk is behind, the body waits
 * for a write of the file, and the answer for a read of it.
 *
 * The memory of all batches is divided among their principals (api/batch_shares.h). Beyond
 * the share of its principal a group does not grow. A batch then waits while it has posted groups
 * or unread answers, and otherwise it is refused. A batch that holds much and moves little while
 * memory is short ends as unread (http/unread_answers.h).
 *
 * The kernel of a client that has vanished sends the body that it was given, megabytes of it,
 * before the end. It answers our bytes with a reset. So a batch that writes nothing, because only
 * errors are answered, begins its answer after a second, and then sends bytes that change nothing.
 *
 * An item that is refused with 429 or 503 must not be overtaken by later items of its entity. The
 * writer keeps these entities for all groups of the batch (authority/append.h). The loop
 * keeps those of groups that the writer did not take.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "api/api.h"
#include "api/append.h"
#include "api/handlers.h"
#include "api/health.h"
#include "api/spool.h"
#include "authority/append.h"
#include "authority/append_read.h"
#include "authority/call.h"
#include "base/limits.h"
#include "base/metrics.h"
#include "wire/json_items.h"

#define REQUESTS_INITIAL 16

struct batch_group {
    struct call call;
    struct append_group group;
    struct exchange *exchange;
    struct list_node node;
    uint64_t index_first;
    size_t capacity; /* room for requests */
    size_t item_bytes;
    size_t answered_count;
    size_t charged_bytes; /* its part of its principal's bytes */
    bool is_returned;     /* the writer has returned it */
};

struct batch {
    struct exchange *exchange;
    struct json_items items;
    struct buffer input; /* bytes of the body that wait for room */
    uint64_t item_count;
    uint64_t sound_count;   /* items that were not refused before the writer got them */
    unsigned renewal_count; /* renewals of the body's deadline since an item was stored */
    struct batch_group *filling;
    struct list groups; /* posted, in order, until answered */
    size_t group_count;
    struct buffer page;
    char principal[PRINCIPAL_KEY_BYTES_MAX];
    struct batch_holder *holder;    /* the bytes of its principal */
    size_t charged_bytes;           /* without groups */
    struct deadline deadline;       /* the client must have made progress when it passes */
    uint64_t body_bytes;            /* bytes of the body that have arrived */
    uint64_t moved_bytes;           /* in both directions, when the deadline was set */
    uint64_t held_bytes;            /* then */
    bool is_fresh;                  /* it was the server's turn since the deadline was set */
    struct deadline peer_check;     /* while the body is read */
    uint64_t peer_bytes;            /* written to the client at the last check */
    unsigned silent_checks;         /* since then nothing was written */
    struct spool spool;             /* answers before those of the groups */
    uint64_t written_count;         /* items in the answer */
    bool has_answers;               /* the writer has returned a group */
    bool errors_only;               /* answers=errors */
    struct append_order order;      /* the writer's while groups are posted */
    struct append_order not_posted; /* entities of groups that the writer did not take */
    bool items_over;
    bool body_over;     /* the items may end before the body */
    enum status broken; /* why the items ended early */
    bool broken_reported;
};

static void group_charge(struct batch_group *group, size_t bytes) {
    const struct batch *batch = group->exchange->work;
    batch_shares_charge(&api_of(group->exchange)->batch_shares, batch->holder, group->charged_bytes,
                        bytes);
    group->charged_bytes = bytes;
}

/* Must not be called while the writer has the group. */
static size_t group_bytes(const struct batch_group *group) {
    return sizeof(*group) + group->capacity * sizeof(group->group.requests[0]) +
           group->group.arena.bytes_held;
}

static void group_free(struct batch_group *group) {
    if (!group)
        return;
    group_charge(group, 0);
    arena_release(&group->group.arena);
    free(group->group.requests);
    free(group);
}

static void batch_free(void *memory) {
    struct batch *batch = memory;
    struct batch_shares *shares = &api_of(batch->exchange)->batch_shares;
    group_free(batch->filling);
    struct list_node *node;
    while ((node = list_pop_front(&batch->groups)))
        group_free(container_of(node, struct batch_group, node));
    append_order_release(&batch->order);
    append_order_release(&batch->not_posted);
    json_items_release(&batch->items);
    buffer_release(&batch->input);
    buffer_release(&batch->page);
    spool_release(&batch->spool);
    deadline_drop(&batch->deadline);
    deadline_drop(&batch->peer_check);
    batch_shares_charge(shares, batch->holder, batch->charged_bytes, 0);
    batch_shares_leave(shares, batch->holder);
    free(batch);
}

/* ---- items to groups ---------------------------------------------------------------------- */

static void batch_advance(struct batch *batch);

static void group_returned(struct call *call) {
    struct batch_group *group = container_of(call, struct batch_group, call);
    struct exchange *exchange = group->exchange;
    group->is_returned = true;
    group_charge(group, group_bytes(group));
    if (exchange_unref(exchange))
        batch_advance(exchange->work);
}

/* On the writer's thread. */
static void group_done(struct append_group *posted) {
    struct batch_group *group = posted->user;
    struct api *api = api_of(group->exchange);
    for (size_t i = 0; i < posted->request_count; i++)
        store_health_note(&api->health, posted->requests[i].status);
    call_return_post(&group->call);
}

static void batch_post(struct batch *batch) {
    struct batch_group *group = batch->filling;
    struct append_request *requests = group->group.requests;
    size_t count = group->group.request_count;
    batch->filling = NULL;
    batch->group_count++;
    list_push_back(&batch->groups, &group->node);
    exchange_ref(batch->exchange);
    call_begin(&group->call, batch->exchange->loop);
    /* A request must not overtake one of a group that the writer did not take. */
    for (size_t i = 0; i < count; i++)
        if (requests[i].status == STATUS_OK &&
            append_order_blocks(&batch->not_posted, &requests[i]))
            append_refuse(&requests[i], STATUS_NOT_ATTEMPTED, NULL);
    enum status status =
        call_post_group(&group->call, api_of(batch->exchange)->writer, &group->group);
    if (status == STATUS_OK)
        return;
    /* The items of a group that the writer refused are answered too. */
    for (size_t i = 0; i < count; i++) {
        if (requests[i].status == STATUS_OK)
            append_refuse(&requests[i], status, NULL);
        append_order_note(&batch->not_posted, &requests[i]);
    }
    call_return_post(&group->call);
}

static void batch_break(struct batch *batch, enum status status) {
    batch->broken = status;
    batch->items_over = true;
}

/* A request for the next item, in the group that is filled. The caller sets all of it. NULL: no
 * memory is left. */
static struct append_request *batch_request(struct batch *batch) {
    struct batch_group *group = batch->filling;
    if (!group) {
        group = calloc(1, sizeof(*group));
        if (!group)
            return NULL;
        group->exchange = batch->exchange;
        group->index_first = batch->item_count;
        group->call.done = group_returned;
        group->group.done = group_done;
        group->group.user = group;
        group->group.order = &batch->order;
        arena_init(&group->group.arena, BATCH_GROUP_ARENA_BYTES_MAX);
        batch->filling = group;
    }
    struct append_group *requests = &group->group;
    assert(requests->request_count < APPEND_SLICE_REQUESTS_MAX);
    if (requests->request_count == group->capacity) {
        size_t capacity = group->capacity ? group->capacity * 4 : REQUESTS_INITIAL;
        void *memory = realloc(requests->requests, capacity * sizeof(requests->requests[0]));
        if (!memory)
            return NULL;
        requests->requests = memory;
        group->capacity = capacity;
    }
    return &requests->requests[requests->request_count++];
}

static void batch_item(struct batch *batch, const struct json_item *item) {
    struct append_parser *parser = &api_appends(batch->exchange)->parser;
    struct append_request *request = batch_request(batch);
    if (!request) {
        batch_break(batch, STATUS_OUT_OF_MEMORY);
        return;
    }
    batch->item_count++;
    enum status admitted =
        item->kind == JSON_ITEM_BAD ? item->status : api_check_producer(batch->exchange);
    if (admitted != STATUS_OK) {
        *request = (struct append_request){.status = STATUS_OK};
        append_refuse(request, admitted, NULL);
        return;
    }
    batch->filling->item_bytes += item->value.raw.size;
    parser->producer = api_producer(batch->exchange);
    /* A refusal stays in the request. */
    enum status status =
        append_read_item(parser, item->value, &batch->filling->group.arena, request);
    assert(status == request->status);
    if (status == STATUS_OK)
        batch->sound_count++;
    group_charge(batch->filling, group_bytes(batch->filling));
}

/* Something that the batch holds is on its way: to the writer, or to the client. */
static bool has_backlog(const struct batch *batch) {
    return batch->group_count > 0 || !spool_is_empty(&batch->spool) ||
           exchange_is_sending(batch->exchange);
}

/* Reads items until the input is used up (true), or until no further group may be posted (false).
 */
static bool batch_take(struct batch *batch, struct slice *input) {
    const struct batch_shares *shares = &api_of(batch->exchange)->batch_shares;
    while (!batch->items_over) {
        const struct batch_group *filling = batch->filling;
        bool is_waiting = has_backlog(batch);
        enum status room =
            batch_shares_check(shares, batch->holder, is_waiting ? 0 : batch->charged_bytes);
        bool is_over = room != STATUS_OK;
        if (filling && (is_over || filling->group.request_count == APPEND_SLICE_REQUESTS_MAX ||
                        filling->item_bytes >= APPEND_SLICE_BYTES_MAX)) {
            if (batch->group_count == BATCH_GROUPS_MAX)
                return false;
            batch_post(batch);
        }
        if (!batch->filling && is_over && has_backlog(batch))
            return false;
        if (!batch->filling && is_over) {
            metrics_add(METRIC_BATCHES_REFUSED, METRIC_LABELS(room), 1);
            batch_break(batch, room);
            return true;
        }
        struct json_item item = json_items_next(&batch->items, input);
        if (item.kind == JSON_ITEM_MORE)
            return true;
        if (item.kind == JSON_ITEM_BROKEN)
            batch_break(batch, item.status);
        else
            batch_item(batch, &item);
    }
    return true;
}

/* ---- groups to answers -------------------------------------------------------------------- */

static bool is_array(const struct batch *batch) {
    return batch->items.format == JSON_ITEMS_ARRAY;
}

static enum status page_item(struct batch *batch, uint64_t index,
                             const struct append_request *request) {
    struct buffer *page = &batch->page;
    batch->has_answers = true;
    if (request->status == STATUS_OK)
        batch->renewal_count = 0;
    if (batch->errors_only && request->status == STATUS_OK)
        return STATUS_OK;
    if (is_array(batch))
        buffer_append_slice(page, batch->written_count > 0 ? SLICE(",\n") : SLICE("["));
    batch->written_count++;
    buffer_note(page, append_write_item(page, batch->exchange, index, request));
    if (!is_array(batch))
        buffer_append_byte(page, '\n');
    return buffer_status(page);
}

/* The first posted group, if the writer has returned it. */
static struct batch_group *returned_group(const struct batch *batch) {
    struct list_node *node = list_first(&batch->groups);
    struct batch_group *group = node ? container_of(node, struct batch_group, node) : NULL;
    return group && group->is_returned ? group : NULL;
}

/* Fills the page from the groups that the writer has returned. */
static enum status page_fill(struct batch *batch) {
    struct batch_group *group;
    /* A principal beyond its share gets small pages: the connection holds each until it is sent. */
    bool has_room =
        batch_shares_check(&api_of(batch->exchange)->batch_shares, batch->holder, 0) == STATUS_OK;
    size_t bytes = has_room ? BATCH_PAGE_BYTES : BATCH_PAGE_BYTES / 8;
    while ((group = returned_group(batch)) && batch->page.size < bytes) {
        if (group->answered_count == group->group.request_count) {
            struct list_node *node = list_pop_front(&batch->groups);
            batch->group_count--;
            group_free(container_of(node, struct batch_group, node));
            continue;
        }
        enum status status = page_item(batch, group->index_first + group->answered_count,
                                       &group->group.requests[group->answered_count]);
        if (status != STATUS_OK)
            return status;
        group->answered_count++;
    }
    return STATUS_OK;
}

static void batch_begin(struct batch *batch) {
    if (!exchange_is_answered(batch->exchange))
        exchange_begin(batch->exchange, 200,
                       is_array(batch) ? SLICE("application/json") : SLICE("application/x-ndjson"));
}

/* Moves the answers of returned groups to the spool, while the socket is full or the file of the
 * spool is read. */
static enum status spool_answers(struct batch *batch) {
    enum status status = STATUS_OK;
    while (status == STATUS_OK && returned_group(batch) && spool_has_room(&batch->spool)) {
        buffer_clear(&batch->page);
        status = page_fill(batch);
        if (status == STATUS_OK)
            status = spool_append(&batch->spool, buffer_slice(&batch->page));
    }
    return status;
}

/* Sends pages while the socket takes them; spooled answers come first. False: the connection is
 * gone, and the batch with it. */
static bool batch_answer(struct batch *batch) {
    struct exchange *exchange = batch->exchange;
    enum status status = STATUS_OK;
    bool more = true;
    exchange_ref(exchange);
    while (more && exchange->conn && !exchange_is_sending(exchange)) {
        buffer_clear(&batch->page);
        status = spool_is_empty(&batch->spool)
                     ? page_fill(batch)
                     : spool_take(&batch->spool, BATCH_PAGE_BYTES, &batch->page);
        if (status != STATUS_OK || batch->page.size == 0)
            break;
        batch_begin(batch);
        more = exchange_send(exchange, buffer_slice(&batch->page));
    }
    if (status == STATUS_OK && exchange->conn &&
        (exchange_is_sending(exchange) || !spool_is_empty(&batch->spool)))
        status = spool_answers(batch);
    if (status != STATUS_OK)
        exchange_abort(exchange, status);
    return exchange_unref(exchange);
}

/* Answers why the items ended early, before any other answer. */
static void batch_refuse(struct batch *batch) {
    struct http1_header retry = {SLICE("Retry-After"), SLICE("1")};
    struct exchange_error error = {.status = batch->broken, .headers = &retry};
    const struct batch_shares *shares = &api_of(batch->exchange)->batch_shares;
    char text[128];
    error.header_count =
        batch->broken == STATUS_QUOTA_EXCEEDED || status_http(batch->broken) == 503;
    if (batch->broken == STATUS_QUOTA_EXCEEDED) {
        snprintf(text, sizeof(text), "{\"quota\":\"batch_bytes\",\"used\":%llu,\"limit\":%llu}",
                 (unsigned long long)batch_holder_bytes(batch->holder),
                 (unsigned long long)batch_shares_quota(shares, batch->holder));
        error.details = slice_of(text);
    }
    exchange_answer_error(batch->exchange, &error);
}

/* Every item is answered. If the items ended early, the answer for the position at which they ended
 * follows. The remaining body is read and discarded, so that the connection can be used again. A
 * client may also read this answer and stop. */
static void batch_end(struct batch *batch) {
    struct exchange *exchange = batch->exchange;
    struct slice tail = SLICE("");
    if (batch->broken != STATUS_OK && !batch->broken_reported) {
        const struct append_request last = {.status = batch->broken};
        batch->broken_reported = true;
        /* No answer was sent yet, so a plain error is possible. */
        if (!exchange_is_answered(exchange)) {
            batch_refuse(batch);
            return;
        }
        buffer_clear(&batch->page);
        enum status status = page_item(batch, batch->item_count, &last);
        if (status != STATUS_OK) {
            exchange_abort(exchange, status);
            return;
        }
        if (!exchange_send(exchange, buffer_slice(&batch->page)))
            return;
    }
    if (!batch->body_over) {
        exchange_resume(exchange);
        return;
    }
    if (is_array(batch))
        tail = batch->written_count > 0 ? SLICE("]\n") : SLICE("[]\n");
    batch_begin(batch);
    exchange_end(exchange, tail);
}

/* ---- the stream --------------------------------------------------------------------------- */

/* Sends answers and posts groups for as long as possible. The exchange may be freed afterwards. */
static void batch_advance(struct batch *batch) {
    struct exchange *exchange = batch->exchange;
    bool used_up;
    do {
        if (!batch_answer(batch))
            return;
        struct slice input = buffer_slice(&batch->input);
        used_up = batch_take(batch, &input);
        buffer_consume(&batch->input, batch->input.size - input.size);
        if (used_up)
            buffer_release(&batch->input);
        if (used_up && batch->filling &&
            (batch->group_count == 0 ||
             (batch->items_over && batch->group_count < BATCH_GROUPS_MAX)))
            batch_post(batch);
    } while (returned_group(batch) &&
             (spool_has_room(&batch->spool) ||
              (!exchange_is_sending(exchange) && spool_is_empty(&batch->spool))));
    bool is_sending = exchange_is_sending(exchange);
    bool answered = batch->items_over && !batch->filling && batch->group_count == 0 &&
                    spool_is_empty(&batch->spool);
    batch->is_fresh = batch->is_fresh ||
                      ((batch->group_count > 0 || !spool_is_empty(&batch->spool)) && !is_sending);
    /* The connection has a copy of it. */
    if (is_sending)
        buffer_release(&batch->page);
    /* The memory beside the groups. The piece that is being sent counts too. */
    size_t bytes = batch->items.pending.capacity + batch->input.capacity + batch->page.capacity +
                   spool_memory_bytes(&batch->spool) +
                   (exchange->conn ? exchange_sending_bytes(exchange) : 0);
    batch_shares_charge(&api_of(exchange)->batch_shares, batch->holder, batch->charged_bytes,
                        bytes);
    batch->charged_bytes = bytes;
    if (answered && !is_sending)
        batch_end(batch);
    else if (used_up)
        exchange_resume(exchange);
}

static void set_deadline(struct batch *batch) {
    size_t file_bytes = batch->spool.file_end - batch->spool.file_begin;
    batch->moved_bytes = batch->body_bytes + exchange_taken_bytes(batch->exchange);
    batch->held_bytes = batch->charged_bytes + file_bytes;
    for (struct list_node *node = list_first(&batch->groups); node;
         node = list_next(&batch->groups, node))
        batch->held_bytes += container_of(node, struct batch_group, node)->charged_bytes;
    batch->is_fresh = false;
    io_loop_deadline(batch->exchange->loop, &batch->deadline, DEADLINE_BATCH);
}

/* While memory is short, a client must move a part of what its batch holds, in one direction or the
 * other. Small batches are left to the deadlines of the connection. */
void batch_expired(struct deadline *deadline) {
    struct batch *batch = container_of(deadline, struct batch, deadline);
    struct exchange *exchange = batch->exchange;
    const struct spool_files *files = &api_of(exchange)->batch_spools;
    /* The groups of a connection that is gone return soon. */
    if (!exchange->conn || exchange->state == EXCHANGE_ANSWERED)
        return;
    /* The disk space of unread answers is shared like the memory. */
    bool is_short =
        batch_shares_is_short(&api_of(exchange)->batch_shares, batch->holder) ||
        (spool_has_file(&batch->spool) &&
         atomic_load_explicit(&files->bytes, memory_order_relaxed) > files->bytes_max / 4 * 3);
    uint64_t moved_bytes = batch->body_bytes + exchange_taken_bytes(exchange) - batch->moved_bytes;
    bool is_clients_turn =
        !batch->is_fresh && (exchange_is_sending(exchange) ||
                             (batch->group_count == 0 && spool_is_empty(&batch->spool)));
    if (is_clients_turn && batch->held_bytes > BATCH_HELD_BYTES_MIN && is_short &&
        moved_bytes < unread_progress_min(batch->held_bytes, true))
        exchange_end_unread(exchange);
    else
        set_deadline(batch);
}

/* The checks in which a silent batch sends a byte, because few may be sent. */
static bool is_probe_due(unsigned checks) {
    return checks <= 5 || (checks & (checks - 1)) == 0;
}

void batch_peer_check(struct deadline *deadline) {
    struct batch *batch = container_of(deadline, struct batch, peer_check);
    struct exchange *exchange = batch->exchange;
    if (!exchange->conn || exchange->state == EXCHANGE_ANSWERED || batch->body_over)
        return;
    uint64_t written_bytes = exchange_written_bytes(exchange);
    batch->silent_checks = written_bytes == batch->peer_bytes ? batch->silent_checks + 1 : 0;
    batch->peer_bytes = written_bytes;
    io_loop_deadline(exchange->loop, &batch->peer_check, DEADLINE_BATCH_PEER);
    if (batch->silent_checks == 0 || exchange_is_sending(exchange))
        return;
    if (exchange_is_answered(exchange)) {
        if (is_probe_due(batch->silent_checks))
            exchange_probe_peer(exchange);
    } else if (batch->has_answers) {
        batch_begin(batch);
        bool may_go_on = exchange_send(exchange, SLICE(""));
        (void)may_go_on; /* nothing follows before the next group */
    }
}

static void batch_body(struct exchange *exchange, struct slice piece) {
    struct batch *batch = exchange->work;
    uint64_t sound_before = batch->sound_count;
    assert(batch->input.size == 0);
    batch->body_bytes += piece.size;
    bool used_up = batch_take(batch, &piece);
    /* Sound items prolong the deadline of the body, however small they are, but only a few times
     * while the writer stores none of them. Unsound ones do not: two bytes make one. A client with
     * answers in a file must send more, because the space is shared. */
    if (batch->sound_count > sound_before && !spool_has_file(&batch->spool) &&
        batch->renewal_count < BATCH_RENEWALS_MAX) {
        batch->renewal_count++;
        exchange_renew_deadline(exchange);
    }
    if (!used_up) {
        exchange_pause(exchange);
        if (buffer_append_slice(&batch->input, piece) != STATUS_OK)
            batch_break(batch, STATUS_OUT_OF_MEMORY);
    }
    batch_advance(batch);
}

static void batch_body_end(struct exchange *exchange) {
    struct batch *batch = exchange->work;
    struct json_item item;
    batch->body_over = true;
    while (!batch->items_over) {
        item = json_items_finish(&batch->items);
        if (item.kind == JSON_ITEM_BROKEN)
            batch_break(batch, item.status);
        else if (item.kind == JSON_ITEM_END)
            batch->items_over = true;
        else
            batch_item(batch, &item);
    }
    batch_advance(batch);
}

static void batch_sent(struct exchange *exchange) {
    batch_advance(exchange->work);
}

/* The groups that the writer has not begun are not appended. The client has no answer for them, so
 * it sends them again, or not, as after any lost connection. */
static void batch_gone(struct exchange *exchange) {
    struct batch *batch = exchange->work;
    atomic_store(&batch->order.is_abandoned, true);
    spool_close(&batch->spool);
}

static void spool_begun(struct spool *spool) {
    exchange_ref(container_of(spool, struct batch, spool)->exchange);
}

static void spool_returned(struct spool *spool) {
    struct batch *batch = container_of(spool, struct batch, spool);
    if (exchange_unref(batch->exchange))
        batch_advance(batch);
}

static const struct spool_events spool_events = {.begun = spool_begun, .returned = spool_returned};

static const struct exchange_stream batch_stream = {
    .body = batch_body,
    .body_end = batch_body_end,
    .sent = batch_sent,
    .gone = batch_gone,
};

static bool media_type_is(struct slice value, struct slice wanted) {
    const char *semicolon = memchr(value.data, ';', value.size);
    if (semicolon)
        value.size = (size_t)(semicolon - value.data);
    while (value.size > 0 && value.data[value.size - 1] == ' ')
        value.size--;
    return value.size == wanted.size && strncasecmp(value.data, wanted.data, wanted.size) == 0;
}

/* The parameter answers: all of them, or only errors. */
static enum status read_answers(const struct exchange *exchange, bool *errors_only) {
    char memory[8];
    struct buffer text = buffer_over(memory, sizeof(memory));
    bool found;
    enum status status =
        http1_query_find(exchange->request->query, SLICE("answers"), &text, &found);
    *errors_only =
        status == STATUS_OK && found && slice_equal(buffer_slice(&text), SLICE("errors"));
    if (status == STATUS_OK && found && !*errors_only &&
        !slice_equal(buffer_slice(&text), SLICE("all")))
        return STATUS_INVALID_REQUEST;
    return status == STATUS_PAYLOAD_TOO_LARGE ? STATUS_INVALID_REQUEST : status;
}

void handle_batch(struct exchange *exchange) {
    const struct json_limits limits = {api_of(exchange)->item_bytes_max, JSON_DEPTH_MAX};
    struct slice type = {"", 0};
    (void)http1_header_find(exchange->request, SLICE("content-type"), &type);
    bool is_json = media_type_is(type, SLICE("application/json"));
    if (!is_json && !media_type_is(type, SLICE("application/x-ndjson")) &&
        !media_type_is(type, SLICE("application/ndjson"))) {
        exchange_answer_error(exchange,
                              &(struct exchange_error){
                                  .status = STATUS_UNSUPPORTED_MEDIA_TYPE,
                                  .message = "A batch is application/x-ndjson, or application/json "
                                             "for an array."});
        return;
    }
    bool errors_only;
    if (read_answers(exchange, &errors_only) != STATUS_OK) {
        exchange_answer_error(exchange, &(struct exchange_error){
                                            .status = STATUS_INVALID_REQUEST,
                                            .message = "The parameter answers is all or errors."});
        return;
    }
    struct batch *batch = calloc(1, sizeof(*batch));
    if (!batch) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    batch->exchange = exchange;
    batch->broken = STATUS_OK;
    list_init(&batch->groups);
    append_order_init(&batch->order);
    append_order_init(&batch->not_posted);
    json_items_init(&batch->items, is_json ? JSON_ITEMS_ARRAY : JSON_ITEMS_LINES, &limits);
    buffer_init(&batch->input, LOOP_READ_BYTES);
    buffer_init(&batch->page, BATCH_PAGE_BYTES_MAX);
    struct store_client client = exchange_client(exchange, batch->principal);
    if (batch_shares_join(&api_of(exchange)->batch_shares, exchange->principal, &batch->holder) !=
        STATUS_OK) {
        free(batch);
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    spool_init(&batch->spool, &api_of(exchange)->batch_spools,
               client.is_bounded ? client.key : (struct slice){NULL, 0}, BATCH_PAGE_BYTES_MAX,
               exchange->loop, &spool_events);
    batch->errors_only = errors_only;
    exchange->work = batch;
    exchange->work_free = batch_free;
    exchange->stream = &batch_stream;
    batch->peer_bytes = exchange_written_bytes(exchange);
    set_deadline(batch);
    io_loop_deadline(exchange->loop, &batch->peer_check, DEADLINE_BATCH_PEER);
}
