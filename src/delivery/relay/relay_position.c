#include "delivery/relay/relay_position.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "authority/job/writer_property.h"
#include "base/buffer.h"
#include "base/decimal.h"

#define PATH_BYTES_MAX  4352
#define LINE_BYTES_MAX  512
#define STATE_BYTES_MAX 4096

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

/* One fact a line: "position DOCUMENT SEQ EPOCH" or "failing SINCE_MS REASON". */
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
        state->positions[kind].seq = number;
        strcpy(state->positions[kind].epoch.text, text);
        state->has_position[kind] = true;
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

static void take_file(struct relay_state *state, const char *folder, enum label_sink sink) {
    char path[PATH_BYTES_MAX];
    char text[STATE_BYTES_MAX];
    FILE *file = path_of(path, folder, sink) ? fopen(path, "re") : NULL;
    if (!file)
        return;
    size_t size = fread(text, 1, sizeof(text), file);
    fclose(file);
    take_text(state, (struct slice){text, size});
}

void relay_state_load(struct relay_state *state, struct store_session *session, const char *folder,
                      enum label_sink sink) {
    struct sink_name name = name_of(sink);
    struct arena arena;
    struct slice text;
    *state = (struct relay_state){.failing_since_ms = 0};
    arena_init(&arena, STATE_BYTES_MAX);
    enum status status = store_load_property(session, slice_of(name.text), &arena, &text);
    if (status == STATUS_OK)
        take_text(state, text);
    else if (status == STATUS_NOT_FOUND)
        take_file(state, folder, sink);
    arena_release(&arena);
}

static enum status write_state(const struct relay_state *state, struct buffer *text) {
    enum status status = STATUS_OK;
    for (unsigned i = 0; status == STATUS_OK && i < DOCUMENT_KIND_COUNT; i++)
        if (state->has_position[i])
            status = buffer_printf(text, "position %s %" PRIu64 " %s\n",
                                   document_kind_name((enum document_kind)i),
                                   state->positions[i].seq, state->positions[i].epoch.text);
    if (status == STATUS_OK && state->failing_since_ms > 0)
        status =
            buffer_printf(text, "failing %" PRIu64 " %s\n", state->failing_since_ms, state->error);
    return status;
}

enum status relay_state_save(const struct relay_state *state, struct writer *writer,
                             const char *folder, enum label_sink sink) {
    struct sink_name name = name_of(sink);
    char path[PATH_BYTES_MAX];
    struct buffer text;
    buffer_init(&text, STATE_BYTES_MAX);
    enum status status = write_state(state, &text);
    const struct store_property property = {slice_of(name.text),
                                            text.size > 0 ? buffer_slice(&text) : SLICE("")};
    if (status == STATUS_OK)
        status = writer_put_property(writer, &property);
    if (status == STATUS_OK && path_of(path, folder, sink))
        (void)unlink(path);
    buffer_release(&text);
    return status;
}
