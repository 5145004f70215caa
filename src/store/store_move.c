/* The rows move table by table, in the order of their keys, a page in each transaction. So the last
 * key in the target says where an interrupted move goes on.
 *
 * The order of marks: the source is leaving; the target is arriving; all rows; the source has left;
 * the target has arrived. A source that is only leaving therefore has a target that was never
 * served, and the move can be given up without a new epoch. */
#include "store/store_move.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/store_engine.h"
#include "store/store_marks.h"

struct side {
    const char *url;
    char label[256];
    struct store *store;
    struct store_marks marks;
};

struct move {
    const struct store_move_options *options;
    struct store_message *message;
    struct side source;
    struct side target;
    struct store_session *reading; /* of the source */
    struct store_session *looking; /* of the target, for reading */
    struct store_page page;
    uint64_t done;
    uint64_t total;
};

/* ---- messages ---- */

static enum status refuse(struct store_message *message, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static enum status refuse(struct store_message *message, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message->text, sizeof(message->text), format, arguments);
    va_end(arguments);
    return STATUS_ALREADY_EXISTS;
}

/* Puts the error of a session into the message, unless it has one. */
static enum status explain(struct store_message *message, const struct store_session *session,
                           enum status status) {
    if (status != STATUS_OK && !message->text[0])
        snprintf(message->text, sizeof(message->text), "%s",
                 session && store_session_error(session)[0] ? store_session_error(session)
                                                            : status_message(status));
    return status;
}

/* ---- opening ---- */

/* A folder by its full path, because both stores remember the name. */
static void name_side(struct side *side) {
    char path[PATH_MAX];
    store_url_label(side->url, side->label, sizeof(side->label));
    if (!strstr(side->label, "://") && realpath(side->label, path))
        snprintf(side->label, sizeof(side->label), "%.255s", path);
}

/* must_exist: opened for reading first, because that creates nothing. */
static enum status open_side(struct side *side, bool must_exist, struct store_message *message) {
    struct store_session *session = NULL;
    enum status status = STATUS_OK;
    if (must_exist)
        status = store_open_unchecked(&side->store, side->url, false, message);
    if (status == STATUS_OK) {
        store_close(side->store);
        side->store = NULL;
        status = store_open_unchecked(&side->store, side->url, true, message);
    }
    name_side(side);
    if (status != STATUS_OK)
        return status;
    status = store_session_open(side->store, STORE_READ, &session);
    if (status == STATUS_OK)
        status = store_marks_read(session, &side->marks);
    status = explain(message, session, status);
    store_session_close(session);
    return status;
}

/* ---- which store may move where ---- */

static enum status check_empty(struct move *move) {
    enum status status = STATUS_OK;
    for (const struct store_table *table = store_tables; status == STATUS_OK && table->name;
         table++) {
        if (table->new_key_max < 0)
            continue;
        store_page_clear(&move->page, table);
        status = move->looking->engine->read_last_row(move->looking, &move->page);
        if (status == STATUS_OK && (table->new_key_max == 0 ||
                                    store_page_row(&move->page, 0)->number > table->new_key_max))
            return refuse(move->message,
                          "%s is not empty (it has rows in %s): name an empty database or folder",
                          move->target.label, table->name);
        if (status == STATUS_NOT_FOUND)
            status = STATUS_OK;
    }
    return explain(move->message, move->looking, status);
}

/* Whether the target is the one that the source's mark is about. */
static bool is_same_move(const struct move *move) {
    return move->source.marks.out.is_set && move->target.marks.in.is_set &&
           strcmp(move->source.marks.out.id, move->target.marks.in.id) == 0;
}

static enum status check_target(struct move *move) {
    const struct store_marks *source = &move->source.marks, *target = &move->target.marks;
    if (source->in.is_set && !source->in.is_complete)
        return refuse(move->message, "%s holds an unfinished move from %s: complete that first",
                      move->source.label, source->in.other);
    if (is_same_move(move))
        return STATUS_OK;
    if (source->out.is_set &&
        (source->out.is_complete || strcmp(source->out.other, move->target.label) != 0))
        return refuse(move->message,
                      "%s %s to %s: name that target, or give the move up with 'khala migrate "
                      "--undo-move'",
                      move->source.label, source->out.is_complete ? "was moved" : "is being moved",
                      source->out.other);
    if (target->in.is_set && !target->in.is_complete)
        return refuse(move->message,
                      "%s holds an unfinished move from %s: repeat that move, or remove the target "
                      "and make it again",
                      move->target.label, target->in.other);
    if (target->out.is_set)
        return refuse(move->message, "%s was moved to %s: name an empty database or folder",
                      move->target.label, target->out.other);
    return check_empty(move);
}

/* ---- marks ---- */

static enum status mark_source(struct move *move, bool is_complete) {
    struct store_session *session = NULL;
    struct store_mark mark = move->source.marks.out;
    enum status status = STATUS_OK;
    if (!mark.is_set)
        status = store_epoch_mint(mark.id);
    mark.is_set = true;
    mark.is_complete = is_complete;
    snprintf(mark.other, sizeof(mark.other), "%s", move->target.label);
    struct store_mark_text text = store_mark_write(&mark);
    const struct store_property property = {STORE_MOVE_OUT, slice_of(text.text)};
    if (status == STATUS_OK)
        status = store_session_open(move->source.store, STORE_WRITE, &session);
    if (status == STATUS_OK)
        status = session->engine->put_properties(session, &property, 1, STORE_APPENDING_CLOSED);
    status = explain(move->message, session, status);
    store_session_close(session);
    move->source.marks.out = mark;
    return status;
}

/* is_complete: the last step of the move. Otherwise the first, which empties the new store. */
static enum status mark_target(struct move *move, bool is_complete) {
    struct store_session *session = NULL;
    struct store_mark mark = {.is_set = true, .is_complete = is_complete};
    snprintf(mark.id, sizeof(mark.id), "%s", move->source.marks.out.id);
    snprintf(mark.other, sizeof(mark.other), "%s", move->source.label);
    struct store_mark_text text = store_mark_write(&mark);
    const struct store_property property = {STORE_MOVE_IN, slice_of(text.text)};
    enum status status = store_session_open(move->target.store, STORE_WRITE, &session);
    if (status == STATUS_OK)
        status = is_complete ? store_put_properties(session, &property, 1)
                             : session->engine->clear_rows(session, &property);
    status = explain(move->message, session, status);
    store_session_close(session);
    return status;
}

/* ---- rows ---- */

/* Pages until the source has no more rows. The first page begins behind the row in the page. */
static enum status copy_pages(struct move *move, const struct store_table *table,
                              struct store_session *writing) {
    struct store_value key[STORE_PAGE_COLUMNS_MAX];
    struct arena keys;
    enum status status = STATUS_OK;
    arena_init(&keys, 1 << 20);
    do {
        const struct store_value *after = NULL;
        arena_reset(&keys);
        if (move->page.row_count > 0) {
            const struct store_value *last = store_page_row(&move->page, move->page.row_count - 1);
            for (size_t i = 0; i < table->key_count; i++) {
                key[i] = last[i];
                if (key[i].bytes.data)
                    key[i].bytes = arena_copy(&keys, key[i].bytes);
            }
            after = key;
        }
        store_page_clear(&move->page, table);
        status = explain(move->message, move->reading,
                         move->reading->engine->read_rows(move->reading, after, &move->page));
        if (status == STATUS_OK && (move->page.row_count > 0 || table->is_replaced))
            status =
                explain(move->message, writing, writing->engine->write_rows(writing, &move->page));
        move->done += move->page.row_count;
        if (move->options->on_progress)
            move->options->on_progress(move->options->user, move->done, move->total);
    } while (status == STATUS_OK && move->page.row_count > 0 && !table->is_replaced);
    arena_release(&keys);
    return status;
}

static enum status copy_table(struct move *move, const struct store_table *table) {
    struct store_session *writing = NULL;
    uint64_t wanted = 0, found = 0;
    store_page_clear(&move->page, table);
    enum status status = STATUS_OK;
    if (!table->is_replaced) {
        status = move->looking->engine->count_rows(move->looking, table, &found);
        move->done += found;
        if (status == STATUS_OK)
            status = move->looking->engine->read_last_row(move->looking, &move->page);
        status =
            explain(move->message, move->looking, status == STATUS_NOT_FOUND ? STATUS_OK : status);
    }
    if (status == STATUS_OK)
        status = explain(move->message, NULL,
                         store_session_open(move->target.store, STORE_WRITE, &writing));
    if (status == STATUS_OK)
        status = copy_pages(move, table, writing);
    store_session_close(writing);
    if (status == STATUS_OK)
        status = explain(move->message, move->reading,
                         move->reading->engine->count_rows(move->reading, table, &wanted));
    if (status == STATUS_OK)
        status = explain(move->message, move->looking,
                         move->looking->engine->count_rows(move->looking, table, &found));
    if (status == STATUS_OK && wanted != found) {
        snprintf(move->message->text, sizeof(move->message->text),
                 "%.150s has %llu rows in %s, and %.150s has %llu", move->source.label,
                 (unsigned long long)wanted, table->name, move->target.label,
                 (unsigned long long)found);
        status = STATUS_INTERNAL_ERROR;
    }
    return status;
}

/* ---- the move ---- */

/* Each step is done once, whatever ended an earlier call. The marks say how far that came. */
static enum status run(struct move *move, struct store_moved *moved) {
    bool is_begun = is_same_move(move);
    enum status status = STATUS_OK;
    if (!move->source.marks.out.is_set)
        status = mark_source(move, false);
    moved->is_begun = status == STATUS_OK;
    if (status == STATUS_OK && !is_begun)
        status = mark_target(move, false);
    for (const struct store_table *table = store_tables; status == STATUS_OK && table->name;
         table++) {
        uint64_t count = 0;
        status = explain(move->message, move->reading,
                         move->reading->engine->count_rows(move->reading, table, &count));
        move->total += count;
    }
    for (const struct store_table *table = store_tables; status == STATUS_OK && table->name;
         table++)
        status = copy_table(move, table);
    if (status == STATUS_OK && move->options->copy_keys)
        status = explain(
            move->message, NULL,
            move->options->copy_keys(move->options->user, move->source.store, move->target.store));
    if (status == STATUS_OK && !move->source.marks.out.is_complete)
        status = mark_source(move, true);
    return status == STATUS_OK ? mark_target(move, true) : status;
}

enum status store_move(const struct store_move_options *options, struct store_moved *moved,
                       struct store_message *message) {
    struct move move = {.options = options,
                        .message = message,
                        .source.url = options->source_url,
                        .target.url = options->target_url};
    struct store_state state = {.log_id = 0};
    *moved = (struct store_moved){.was_complete = false};
    message->text[0] = '\0';
    enum status status = open_side(&move.source, true, message);
    name_side(&move.target);
    if (status == STATUS_OK && strcmp(move.source.label, move.target.label) == 0) {
        snprintf(message->text, sizeof(message->text),
                 "%s cannot be moved into itself: name another database or folder",
                 move.source.label);
        status = STATUS_INVALID_REQUEST;
    }
    if (status == STATUS_OK)
        status = open_side(&move.target, false, message);
    if (status == STATUS_OK)
        status = store_session_open(move.source.store, STORE_READ, &move.reading);
    if (status == STATUS_OK)
        status = store_session_open(move.target.store, STORE_READ, &move.looking);
    if (status == STATUS_OK)
        status = store_page_init(&move.page);
    status = explain(message, NULL, status);
    if (status == STATUS_OK)
        status = check_target(&move);
    if (status == STATUS_OK) {
        moved->was_complete = is_same_move(&move) && move.target.marks.in.is_complete;
        if (!moved->was_complete)
            status = run(&move, moved);
    }
    if (status == STATUS_OK) {
        status = explain(message, move.looking, store_read_state(move.looking, &state));
        snprintf(moved->source, sizeof(moved->source), "%s", move.source.label);
        snprintf(moved->target, sizeof(moved->target), "%s", move.target.label);
        memcpy(moved->epoch, state.epoch, sizeof(moved->epoch));
        moved->events = state.log_id;
    }
    if (move.page.values)
        store_page_release(&move.page);
    store_session_close(move.looking);
    store_session_close(move.reading);
    store_close(move.target.store);
    store_close(move.source.store);
    return status;
}

/* ---- the undo ---- */

enum status store_move_undo(const char *url, struct store_move_undone *undone,
                            struct store_message *message) {
    struct side side = {.url = url};
    struct store_session *session = NULL;
    struct store_state state = {.log_id = 0};
    message->text[0] = '\0';
    *undone = (struct store_move_undone){.is_epoch_new = false};
    enum status status = open_side(&side, true, message);
    if (status == STATUS_OK && !side.marks.out.is_set) {
        snprintf(message->text, sizeof(message->text), "%s was not moved", side.label);
        status = STATUS_NOT_FOUND;
    }
    if (status == STATUS_OK)
        status = store_session_open(side.store, STORE_WRITE, &session);
    if (status == STATUS_OK)
        status = store_read_state(session, &state);
    /* Clients may have read events of the target under the old epoch. */
    undone->is_epoch_new = side.marks.out.is_complete;
    if (status == STATUS_OK && undone->is_epoch_new)
        status = store_note_fork(session);
    if (status == STATUS_OK && undone->is_epoch_new)
        status = store_epoch_mint(state.epoch);
    const struct store_property properties[] = {{STORE_MOVE_OUT, {0}},
                                                {SLICE("epoch"), slice_of(state.epoch)}};
    if (status == STATUS_OK)
        status = session->engine->put_properties(session, properties, 2, STORE_APPENDING_OPENED);
    status = explain(message, session, status);
    store_session_close(session);
    memcpy(undone->epoch, state.epoch, sizeof(undone->epoch));
    snprintf(undone->target, sizeof(undone->target), "%s", side.marks.out.other);
    store_close(side.store);
    return status;
}
