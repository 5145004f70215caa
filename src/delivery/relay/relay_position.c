#include "delivery/relay/relay_position.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "authority/call.h"
#include "base/buffer.h"
#include "base/decimal.h"
#include "base/limits.h"

#define PATH_BYTES_MAX 4352
#define LINE_BYTES_MAX 512
#define FILE_BYTES_MAX 4096

/* The name of the property, and of the file of earlier versions. */
struct sink_name {
    char text[64];
};

static struct sink_name name_of(enum label_sink sink) {
    struct sink_name name;
    snprintf(name.text, sizeof(name.text), "sink-%s", label_sink_name(sink));
    return name;
}

static bool path_of(char path[PATH_BYTES_MAX], const char *folder, enum label_sink sink) {
    int size = snprintf(path, PATH_BYTES_MAX, "%s/%s", folder, name_of(sink).text);
    return size > 0 && size < PATH_BYTES_MAX;
}

/* ---- the table of held documents ---- */

struct relay_held *relay_state_find(const struct relay_state *state, struct slice key) {
    for (size_t i = 0; i < state->held_count; i++)
        if (slice_equal(slice_of(state->held[i].key), key))
            return &state->held[i];
    return NULL;
}

struct relay_held *relay_state_add(struct relay_state *state, enum document_kind kind,
                                   struct slice key) {
    if (!state->held)
        state->held = calloc(RELAY_HELD_MAX, sizeof(*state->held));
    if (!state->held || state->held_count == RELAY_HELD_MAX || key.size > RELAY_KEY_BYTES_MAX)
        return NULL;
    struct relay_held *held = &state->held[state->held_count++];
    *held = (struct relay_held){.kind = kind};
    memcpy(held->key, key.data, key.size);
    return held;
}

void relay_state_remove(struct relay_state *state, struct relay_held *held) {
    size_t after = state->held_count - (size_t)(held - state->held) - 1;
    memmove(held, held + 1, after * sizeof(*held));
    state->held_count--;
}

struct relay_waiting relay_state_waiting(const struct relay_state *state) {
    struct relay_waiting waiting = {.count = 0};
    for (size_t i = 0; i < state->held_count; i++) {
        const struct relay_held *held = &state->held[i];
        if (held->is_suspect || held->settled_seq > 0)
            continue;
        waiting.count++;
        if (!waiting.oldest || held->since_ms < waiting.oldest->since_ms)
            waiting.oldest = held;
    }
    return waiting;
}

void relay_state_release(struct relay_state *state) {
    free(state->held);
    *state = (struct relay_state){.held = NULL};
}

/* ---- reading ---- */

static void take_held(struct relay_state *state, enum document_kind kind, const char *text) {
    char since[32];
    char settled[32];
    char key[RELAY_KEY_BYTES_MAX + 1];
    struct relay_held read = {.kind = kind};
    if (kind == DOCUMENT_NONE || sscanf(text, "%31s %31s %319[^\n]", since, settled, key) != 3 ||
        !decimal_parse_u64(slice_of(since), &read.since_ms) ||
        !decimal_parse_u64(slice_of(settled), &read.settled_seq))
        return;
    struct relay_held *held = relay_state_add(state, kind, slice_of(key));
    if (!held)
        return;
    held->since_ms = read.since_ms;
    held->settled_seq = read.settled_seq;
}

/* One fact a line: "position DOCUMENT SEQ EPOCH", "held DOCUMENT SINCE_MS SETTLED_SEQ KEY",
 * "refusal REASON" or "failing SINCE_MS REASON". */
static void take_line(struct relay_state *state, const char *line) {
    char name[64];
    char digits[32];
    uint64_t number = 0;
    char text[LINE_BYTES_MAX];
    if (sscanf(line, "position %63s %31s %511s", name, digits, text) == 3 &&
        decimal_parse_u64(slice_of(digits), &number)) {
        enum document_kind kind = document_kind_of(slice_of(name));
        if (kind == DOCUMENT_NONE || strlen(text) > TOPIC_EPOCH_BYTES_MAX)
            return;
        state->positions.at[kind].seq = number;
        strcpy(state->positions.at[kind].epoch.text, text);
        state->positions.is_known[kind] = true;
    } else if (sscanf(line, "held %63s %511[^\n]", name, text) == 2) {
        take_held(state, document_kind_of(slice_of(name)), text);
    } else if (sscanf(line, "refusal %511[^\n]", text) == 1) {
        snprintf(state->refusal, sizeof(state->refusal), "%.*s", RELAY_ERROR_BYTES_MAX - 1, text);
    } else if (sscanf(line, "failing %31s %511[^\n]", digits, text) == 2 &&
               decimal_parse_u64(slice_of(digits), &number)) {
        state->failing_since_ms = number;
        snprintf(state->error, sizeof(state->error), "%.*s", RELAY_ERROR_BYTES_MAX - 1, text);
    }
}

static void take_text(struct relay_state *state, struct slice text) {
    char line[LINE_BYTES_MAX];
    while (text.size > 0) {
        const char *end = memchr(text.data, '\n', text.size);
        size_t size = end ? (size_t)(end - text.data) : text.size;
        snprintf(line, sizeof(line), "%.*s", (int)size, text.data);
        take_line(state, line);
        text = slice_from(text, end ? size + 1 : size);
    }
}

void relay_state_load(struct relay_state *state, struct store_session *session, const char *folder,
                      enum label_sink sink) {
    struct sink_name name = name_of(sink);
    struct arena arena;
    struct slice text;
    *state = (struct relay_state){.held = NULL};
    arena_init(&arena, RELAY_STATE_BYTES_MAX);
    enum status status = store_load_property(session, slice_of(name.text), &arena, &text);
    if (status == STATUS_OK) {
        take_text(state, text);
    } else if (status == STATUS_NOT_FOUND) {
        char path[PATH_BYTES_MAX];
        char held[FILE_BYTES_MAX];
        FILE *file = path_of(path, folder, sink) ? fopen(path, "re") : NULL;
        size_t size = file ? fread(held, 1, sizeof(held), file) : 0;
        if (file)
            fclose(file);
        take_text(state, (struct slice){held, size});
    }
    arena_release(&arena);
}

/* ---- writing ---- */

enum status relay_state_save(const struct relay_state *state, struct writer *writer,
                             const char *folder, enum label_sink sink) {
    struct sink_name name = name_of(sink);
    char path[PATH_BYTES_MAX];
    struct buffer text;
    buffer_init(&text, RELAY_STATE_BYTES_MAX);
    for (unsigned i = 0; i < DOCUMENT_KIND_COUNT; i++)
        if (state->positions.is_known[i])
            buffer_printf(&text, "position %s %" PRIu64 " %s\n",
                          document_kind_name((enum document_kind)i), state->positions.at[i].seq,
                          state->positions.at[i].epoch.text);
    for (size_t i = 0; i < state->held_count; i++) {
        const struct relay_held *held = &state->held[i];
        if (!held->is_suspect)
            buffer_printf(&text, "held %s %" PRIu64 " %" PRIu64 " %s\n",
                          document_kind_name(held->kind), held->since_ms, held->settled_seq,
                          held->key);
    }
    if (relay_state_waiting(state).count > 0)
        buffer_printf(&text, "refusal %s\n", state->refusal);
    if (state->failing_since_ms > 0)
        buffer_printf(&text, "failing %" PRIu64 " %s\n", state->failing_since_ms, state->error);
    enum status status = buffer_status(&text);
    const struct store_property property = {slice_of(name.text),
                                            text.size > 0 ? buffer_slice(&text) : SLICE("")};
    if (status == STATUS_OK)
        status = call_put_property(writer, &property);
    if (status == STATUS_OK && path_of(path, folder, sink))
        (void)unlink(path);
    buffer_release(&text);
    return status;
}
