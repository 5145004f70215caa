/* POST /api/events/import: imports an export into an empty store, or into one that holds the
 * beginning of the same log.
 *
 *   body ──▶ spool file, each line checked ──▶ ids compared ──▶ links followed, log compared
 *        ──▶ written in groups
 *
 * The body is spooled to a file without a name, so that all of it is checked before the first write
 * in bounded memory. From then on the writer refuses other appends. Lines that the store holds are
 * skipped, so that a repeated import continues an interrupted one. Each step runs on a thread of
 * the store pool, which also opens the files. The file thread closes them. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/api.h"
#include "api/handlers.h"
#include "authority/chain_hash.h"
#include "authority/import/import_check.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "http/exchange.h"
#include "wire/json_items.h"

#define RECEIVE_BYTES        (256u << 10)
#define ERROR_LINE_BYTES_MAX 4096
#define PROGRESS_MS          1000
#define NOT_OF_A_LOG         "no request could have made this event"

enum import_phase {
    IMPORT_RECEIVE, /* the body is spooled, and each line checked */
    IMPORT_IDS,     /* no event id may be used twice */
    IMPORT_LINK,    /* links are followed; the first pass compares the log with the store */
    IMPORT_FORK,    /* the store notes the fork point of the file's log */
    IMPORT_WRITE,
};

struct import_work {
    struct exchange_call call;
    struct file_task release;
    struct exchange *exchange;
    struct api *api;
    enum import_phase phase;
    int spool_fd;
    uint64_t spooled_bytes;
    uint64_t read_bytes; /* read from the spool in this pass */
    struct buffer chunk; /* a piece of the body or the spool */
    struct slice rest;   /* the part of the chunk that is not used yet */
    bool body_over;
    bool pass_over;
    struct json_items items;
    struct import_check check;
    struct import_ids ids;
    struct append_parser parser;
    struct buffer scratch;
    struct arena line_arena;
    uint64_t line;         /* the number of the line, from 1; an event's number in the log */
    uint64_t event_count;  /* events of the file */
    uint64_t stored_count; /* events of the store when the log was compared */
    uint64_t imported_count;
    bool is_importing; /* the writer refuses other appends */
    enum status status;
    const char *reason; /* why the file is refused */
    struct append_group group;
    uint64_t last_sent_ms;
};

static void work_release(struct file_task *task) {
    struct import_work *work = container_of(task, struct import_work, release);
    if (work->spool_fd >= 0)
        close(work->spool_fd);
    buffer_release(&work->chunk);
    buffer_release(&work->scratch);
    json_items_release(&work->items);
    import_check_release(&work->check);
    import_ids_release(&work->ids);
    append_parser_release(&work->parser);
    arena_release(&work->line_arena);
    arena_release(&work->group.arena);
    free(work->group.requests);
    free(work);
}

/* The file thread closes the files, which takes long if they are large. */
static void work_free(void *memory) {
    struct import_work *work = memory;
    bool was_importing = work->is_importing && writer_set_importing(work->api->writer, false);
    assert(was_importing == work->is_importing);
    (void)was_importing;
    work->release.run = work_release;
    file_thread_post(&work->api->files, &work->release);
}

/* ---- steps, on a thread of the store pool -------------------------------------------------- */

static enum status refuse_file(struct import_work *work, const char *reason) {
    work->reason = reason;
    return STATUS_IMPORT_REFUSED;
}

/* The line must be the event that the store has at its number. */
static enum status compare(struct import_work *work, struct store_session *store,
                           const struct store_event *event) {
    struct store_event stored;
    enum status status = store_load_event(store, work->line, &work->line_arena, &stored);
    if (status != STATUS_OK)
        return status;
    bool is_same = memcmp(stored.chain_hash, event->chain_hash, SHA256_BYTES) == 0 &&
                   stored.entity_kind == event->entity_kind && stored.seq == event->seq &&
                   slice_equal(stored.entity_id, event->entity_id);
    return is_same ? STATUS_OK
                   : refuse_file(work, "the store holds another event at this position");
}

static enum status check_line(struct import_work *work, struct json_value value,
                              const struct import_line *line) {
    struct append_request request;
    enum status status = import_check_line(&work->check, line, value.raw, &work->reason);
    if (status == STATUS_OK && !line->is_manifest)
        status = import_request_read(&work->parser, value, line, &work->line_arena, &request);
    if (status == STATUS_OK && !line->is_manifest)
        status = import_ids_add(&work->ids, &line->event.event_id);
    if (status == STATUS_IMPORT_REFUSED && !work->reason)
        work->reason = NOT_OF_A_LOG;
    return status;
}

static enum status take_line(struct import_work *work, struct store_session *store,
                             struct json_value value) {
    struct import_line line;
    arena_reset(&work->line_arena);
    work->line++;
    enum status status =
        import_line_read(value, &work->scratch, &work->line_arena, &line, &work->reason);
    if (status != STATUS_OK)
        return status;
    if (work->phase == IMPORT_RECEIVE)
        return check_line(work, value, &line);
    if (line.is_manifest)
        return STATUS_OK;
    line.event.log_id = work->line;
    if (work->phase == IMPORT_WRITE) {
        struct append_group *group = &work->group;
        if (work->line <= work->stored_count)
            return STATUS_OK;
        status = import_request_read(&work->parser, value, &line, &group->arena,
                                     &group->requests[group->request_count]);
        if (status == STATUS_OK)
            group->request_count++;
        return status == STATUS_IMPORT_REFUSED ? refuse_file(work, NOT_OF_A_LOG) : status;
    }
    status = import_check_link(&work->check, &line.event, &work->reason);
    if (status != STATUS_OK || work->check.part > 0)
        return status;
    return work->line <= work->stored_count ? compare(work, store, &line.event)
                                            : import_check_names(&line.event, &work->reason);
}

static bool group_is_full(const struct import_work *work) {
    return work->group.request_count == APPEND_GROUP_REQUESTS_MAX ||
           work->group.arena.bytes_held >= IMPORT_GROUP_BYTES;
}

static enum status take_item(struct import_work *work, struct store_session *store,
                             const struct json_item *item) {
    if (item->kind == JSON_ITEM_VALUE)
        return take_line(work, store, item->value);
    work->line++;
    return refuse_file(work, "the line is not JSON, or too long");
}

static enum status take_lines(struct import_work *work, struct store_session *store) {
    enum status status = STATUS_OK;
    while (status == STATUS_OK && !group_is_full(work)) {
        struct json_item item = json_items_next(&work->items, &work->rest);
        if (item.kind == JSON_ITEM_MORE)
            return STATUS_OK;
        status = take_item(work, store, &item);
    }
    return status;
}

static enum status finish_lines(struct import_work *work, struct store_session *store) {
    struct json_item item = json_items_finish(&work->items);
    enum status status = STATUS_OK;
    while (status == STATUS_OK && item.kind != JSON_ITEM_END) {
        status = take_item(work, store, &item);
        item = json_items_finish(&work->items);
    }
    work->pass_over = status == STATUS_OK;
    return status;
}

/* Writes a piece of the body to the spool, and checks its lines. */
static enum status receive(struct import_work *work, struct store_session *store) {
    struct slice left = buffer_slice(&work->chunk);
    /* The files are not opened on the loop, which may have its own descriptor table. */
    if (work->spool_fd < 0) {
        work->spool_fd = file_open_unnamed(work->api->folder, "import");
        if (work->spool_fd < 0 || !import_ids_open(&work->ids, work->api->folder))
            return STATUS_STORE_UNAVAILABLE;
    }
    while (left.size > 0) {
        ssize_t written = pwrite(work->spool_fd, left.data, left.size, (off_t)work->spooled_bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return STATUS_STORE_UNAVAILABLE;
        work->spooled_bytes += (uint64_t)written;
        left = slice_from(left, (size_t)written);
    }
    work->rest = buffer_slice(&work->chunk);
    enum status status = take_lines(work, store);
    if (status == STATUS_OK && work->body_over)
        status = finish_lines(work, store);
    if (status != STATUS_OK || !work->pass_over)
        return status;
    work->event_count = work->check.count;
    return import_check_end(&work->check, &work->reason);
}

/* Reads a piece of the spool, and takes its lines. */
static enum status read_pass(struct import_work *work, struct store_session *store) {
    if (work->rest.size == 0) {
        buffer_clear(&work->chunk);
        enum status status = buffer_reserve(&work->chunk, IMPORT_STEP_BYTES);
        if (status != STATUS_OK)
            return status;
        ssize_t size;
        do
            size =
                pread(work->spool_fd, work->chunk.data, IMPORT_STEP_BYTES, (off_t)work->read_bytes);
        while (size < 0 && errno == EINTR);
        if (size < 0)
            return STATUS_STORE_UNAVAILABLE;
        work->chunk.size = (size_t)size;
        work->read_bytes += (uint64_t)size;
        work->rest = buffer_slice(&work->chunk);
    }
    bool is_end = work->chunk.size == 0;
    return is_end ? finish_lines(work, store) : take_lines(work, store);
}

static void begin_pass(struct import_work *work) {
    const struct json_limits limits = work->items.limits;
    json_items_release(&work->items);
    json_items_init(&work->items, JSON_ITEMS_LINES, &limits);
    work->read_bytes = 0;
    work->line = 0;
    work->pass_over = false;
    work->rest = (struct slice){NULL, 0};
}

static enum status link_step(struct import_work *work, struct store_session *store) {
    enum status status = STATUS_OK;
    if (work->check.part == 0 && work->read_bytes == 0) {
        struct store_state state;
        status = store_read_state(store, &state);
        work->stored_count = state.log_id;
    }
    return status == STATUS_OK ? read_pass(work, store) : status;
}

static void run_step(struct call *call, struct store_session *store) {
    struct import_work *work = container_of(call, struct import_work, call.call);
    switch (work->phase) {
    case IMPORT_RECEIVE:
        work->status = receive(work, store);
        break;
    case IMPORT_IDS:
        work->reason = "an earlier line has the same event_id";
        work->status = import_ids_check(&work->ids, &work->line);
        break;
    case IMPORT_LINK:
        work->status = link_step(work, store);
        break;
    case IMPORT_FORK:
        work->status = store_lower_fork(store, work->check.fork_log_id);
        break;
    case IMPORT_WRITE:
        while (work->status == STATUS_OK && !work->pass_over && !group_is_full(work) &&
               (work->group.request_count == 0 || work->rest.size > 0))
            work->status = read_pass(work, store);
        break;
    }
}

/* ---- on the loop ---------------------------------------------------------------------------- */

static void fail(struct import_work *work, enum status status) {
    struct exchange *exchange = work->exchange;
    struct buffer line;
    char details[96];
    snprintf(details, sizeof(details), "{\"line\":%llu,\"imported\":%llu}",
             (unsigned long long)work->line, (unsigned long long)work->imported_count);
    const struct exchange_error error = {.status = status,
                                         .message =
                                             status == STATUS_IMPORT_REFUSED ? work->reason : NULL,
                                         .details = slice_of(details)};
    log_event(LOG_WARN, "import.failed", log_str("status", status_code(status)),
              log_str("reason", work->reason ? work->reason : ""),
              log_int("line", (int64_t)work->line),
              log_int("imported", (int64_t)work->imported_count));
    if (!exchange_is_answered(exchange)) {
        exchange_answer_error(exchange, &error);
        return;
    }
    buffer_init(&line, ERROR_LINE_BYTES_MAX);
    buffer_note(&line, exchange_error_write(exchange, &error, &line));
    buffer_append_byte(&line, '\n');
    if (buffer_status(&line) == STATUS_OK)
        exchange_end(exchange, buffer_slice(&line));
    else
        exchange_abort(exchange, status);
    buffer_release(&line);
}

static void post_step(struct import_work *work) {
    if (atomic_load(&work->api->http->is_draining))
        fail(work, STATUS_SHUTTING_DOWN);
    else if (work->phase == IMPORT_FORK)
        exchange_call_writer(&work->call);
    else
        exchange_call_store(&work->call);
}

static void finish(struct import_work *work) {
    char text[192];
    int size = snprintf(
        text, sizeof(text), "{\"events\":%llu,\"imported\":%llu,\"already_stored\":%llu}\n",
        (unsigned long long)work->event_count, (unsigned long long)work->imported_count,
        (unsigned long long)(work->event_count - work->imported_count));
    /* No event records it: the log ends where the imported one ends, so that a longer export of the
     * same log continues it. */
    log_event(LOG_INFO, "import.done", log_slice("key", work->exchange->principal->subject),
              log_int("events", (int64_t)work->event_count),
              log_int("imported", (int64_t)work->imported_count));
    if (!exchange_is_answered(work->exchange))
        exchange_begin(work->exchange, 200, SLICE("application/x-ndjson"));
    exchange_end(work->exchange, (struct slice){text, (size_t)size});
}

/* Reports to the client once a second how far the import is. */
static void advance(struct import_work *work) {
    struct exchange *exchange = work->exchange;
    uint64_t now_ms = clock_mono_ms(&exchange->loop->clock);
    char text[96];
    if (now_ms - work->last_sent_ms < PROGRESS_MS) {
        post_step(work);
        return;
    }
    work->last_sent_ms = now_ms;
    int size = snprintf(text, sizeof(text), "{\"progress\":{\"done\":%llu,\"total\":%llu}}\n",
                        (unsigned long long)work->imported_count,
                        (unsigned long long)(work->event_count - work->stored_count));
    if (!exchange_is_answered(exchange))
        exchange_begin(exchange, 200, SLICE("application/x-ndjson"));
    if (exchange_send(exchange, (struct slice){text, (size_t)size}))
        post_step(work);
}

/* On the writer's thread. */
static void group_done(struct append_group *group) {
    struct import_work *work = group->user;
    call_return_post(&work->call.call);
}

static void step_answer(struct exchange_call *call);

static void group_answer(struct exchange_call *call) {
    struct import_work *work = container_of(call, struct import_work, call);
    enum status status = call->call.status;
    call->answer = step_answer;
    for (size_t i = 0; status == STATUS_OK && i < work->group.request_count; i++) {
        status = work->group.requests[i].status;
        work->imported_count += status == STATUS_OK;
        if (status != STATUS_OK)
            work->line = work->stored_count + work->imported_count + 1;
    }
    work->reason = "the store does not accept this event after the previous one";
    work->group.request_count = 0;
    arena_reset(&work->group.arena);
    if (status != STATUS_OK)
        fail(work, status);
    else if (work->pass_over)
        finish(work);
    else
        advance(work);
}

static void begin_phase(struct import_work *work, enum import_phase phase) {
    work->phase = phase;
    begin_pass(work);
    if (phase == IMPORT_LINK)
        import_check_begin_part(&work->check, 0);
    if (phase == IMPORT_LINK && !work->is_importing) {
        work->is_importing = writer_set_importing(work->api->writer, true);
        if (!work->is_importing) {
            fail(work, STATUS_IMPORT_IN_PROGRESS);
            return;
        }
    }
    post_step(work);
}

static void step_answer(struct exchange_call *call) {
    struct import_work *work = container_of(call, struct import_work, call);
    enum status status = call->call.status == STATUS_OK ? work->status : call->call.status;
    work->status = status;
    if (work->phase == IMPORT_RECEIVE && !work->body_over) {
        /* The rest of a body that is refused is read and dropped, so that the client can read the
         * answer. */
        buffer_clear(&work->chunk);
        exchange_resume(work->exchange);
    } else if (status != STATUS_OK) {
        fail(work, status);
    } else if (work->phase == IMPORT_RECEIVE) {
        begin_phase(work, IMPORT_IDS);
    } else if (work->phase == IMPORT_IDS) {
        if (import_ids_is_checked(&work->ids))
            begin_phase(work, IMPORT_LINK);
        else
            post_step(work);
    } else if (work->phase == IMPORT_WRITE) {
        if (work->group.request_count == 0) {
            finish(work);
            return;
        }
        work->call.answer = group_answer;
        exchange_call_begin(&work->call);
        status = writer_post(work->api->writer, &work->group);
        if (status != STATUS_OK)
            exchange_call_fail(&work->call, status);
    } else if (work->phase == IMPORT_FORK) {
        begin_phase(work, IMPORT_WRITE);
    } else if (!work->pass_over) {
        post_step(work);
    } else if (work->check.part + 1 < work->check.part_count) {
        import_check_begin_part(&work->check, work->check.part + 1);
        begin_pass(work);
        post_step(work);
    } else {
        bool adds = work->event_count > work->stored_count;
        begin_phase(work, adds && work->check.has_fork ? IMPORT_FORK : IMPORT_WRITE);
    }
}

static void import_body(struct exchange *exchange, struct slice piece) {
    struct import_work *work = exchange->work;
    if (work->status == STATUS_OK)
        work->status = buffer_append_slice(&work->chunk, piece);
    if (work->status != STATUS_OK || work->chunk.size < RECEIVE_BYTES)
        return;
    exchange_pause(exchange);
    exchange_call_store(&work->call);
}

static void import_body_end(struct exchange *exchange) {
    struct import_work *work = exchange->work;
    work->body_over = true;
    if (work->status != STATUS_OK)
        fail(work, work->status);
    else
        post_step(work);
}

static void piece_sent(struct exchange *exchange) {
    post_step(exchange->work);
}

static const struct exchange_stream import_stream = {
    .body = import_body,
    .body_end = import_body_end,
    .sent = piece_sent,
};

void handle_event_import(struct exchange *exchange) {
    uint64_t line_bytes_max = exchange->http->options.append_bytes_max;
    const struct json_limits limits = {line_bytes_max, JSON_DEPTH_MAX};
    struct import_work *work = calloc(1, sizeof(*work));
    if (!work) {
        exchange_answer_status(exchange, STATUS_STORE_UNAVAILABLE);
        return;
    }
    work->exchange = exchange;
    work->api = api_of(exchange);
    work->call =
        (struct exchange_call){.call.run = run_step, .exchange = exchange, .answer = step_answer};
    work->status = STATUS_OK;
    buffer_init(&work->chunk, IMPORT_STEP_BYTES + LOOP_READ_BYTES);
    buffer_init(&work->scratch, CHAIN_HASH_SCRATCH_BYTES);
    json_items_init(&work->items, JSON_ITEMS_LINES, &limits);
    import_check_init(&work->check);
    append_parser_init(&work->parser, line_bytes_max);
    arena_init(&work->line_arena, IMPORT_LINE_ARENA_BYTES_MAX);
    arena_init(&work->group.arena, BATCH_GROUP_ARENA_BYTES_MAX);
    work->group.requests = calloc(APPEND_GROUP_REQUESTS_MAX, sizeof(work->group.requests[0]));
    work->group.done = group_done;
    work->group.user = work;
    work->spool_fd = -1;
    import_ids_init(&work->ids);
    exchange->work = work;
    exchange->work_free = work_free;
    if (work->group.requests)
        exchange->stream = &import_stream;
    else
        exchange_answer_status(exchange, STATUS_STORE_UNAVAILABLE);
}
