#include "store/store_marks.h"

#include <stdio.h>

#define ARENA_BYTES_MAX 4096

static enum status read_mark(struct store_session *session, struct slice name,
                             struct store_mark *mark) {
    struct arena arena;
    struct slice value;
    char text[sizeof(struct store_mark_text)];
    char state[16];
    *mark = (struct store_mark){.is_set = false};
    arena_init(&arena, ARENA_BYTES_MAX);
    enum status status = store_load_property(session, name, &arena, &value);
    if (status == STATUS_OK) {
        snprintf(text, sizeof(text), "%.*s", (int)value.size, value.data);
        int count = sscanf(text, "%15s %36s %255[^\n]", state, mark->id, mark->other);
        mark->is_set = true;
        mark->is_complete = count == 3 && strcmp(state, "complete") == 0;
    }
    arena_release(&arena);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

enum status store_marks_read(struct store_session *session, struct store_marks *marks) {
    enum status status = read_mark(session, STORE_MOVE_OUT, &marks->out);
    return status == STATUS_OK ? read_mark(session, STORE_MOVE_IN, &marks->in) : status;
}

struct store_mark_text store_mark_write(const struct store_mark *mark) {
    struct store_mark_text text;
    snprintf(text.text, sizeof(text.text), "%s %s %s",
             mark->is_complete ? "complete" : "unfinished", mark->id, mark->other);
    return text;
}

static enum status refuse(const struct store_marks *marks, bool exclusive, const char *label,
                          struct store_message *message) {
    const struct store_mark *out = &marks->out;
    if (marks->in.is_set && !marks->in.is_complete)
        snprintf(message->text, sizeof(message->text),
                 "%.150s holds a part of %.150s, whose move is not complete: repeat the command "
                 "that moves it",
                 label, marks->in.other);
    else if (exclusive && out->is_set && out->is_complete)
        snprintf(message->text, sizeof(message->text),
                 "%.150s was moved to %.150s: serve that store; or serve this one as it was before "
                 "the move, in a new epoch, after 'khala migrate --undo-move'",
                 label, out->other);
    else if (exclusive && out->is_set)
        snprintf(message->text, sizeof(message->text),
                 "%.150s is being moved to %.150s: repeat the command that moves it, or give the "
                 "move up with 'khala migrate --undo-move'",
                 label, out->other);
    else
        return STATUS_OK;
    return STATUS_INVALID_CONFIG;
}

enum status store_marks_check(struct store *store, bool exclusive, const char *label,
                              struct store_message *message) {
    struct store_session *session = NULL;
    struct store_marks marks;
    enum status status = store_session_open(store, STORE_READ, &session);
    if (status == STATUS_OK)
        status = store_marks_read(session, &marks);
    if (status == STATUS_OK)
        status = refuse(&marks, exclusive, label, message);
    else
        snprintf(message->text, sizeof(message->text), "%.150s: %s", label,
                 session ? store_session_error(session) : status_message(status));
    store_session_close(session);
    return status;
}
