#include "delivery/relay/relay_position.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/decimal.h"

#define PATH_BYTES_MAX 4352
#define LINE_BYTES_MAX 512

static bool path_of(char path[PATH_BYTES_MAX], const char *folder, enum label_sink sink,
                    const char *suffix) {
    int size =
        snprintf(path, PATH_BYTES_MAX, "%s/sink-%s%s", folder, label_sink_name(sink), suffix);
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

void relay_state_load(struct relay_state *state, const char *folder, enum label_sink sink) {
    char path[PATH_BYTES_MAX];
    char line[LINE_BYTES_MAX];
    *state = (struct relay_state){.failing_since_ms = 0};
    FILE *file = path_of(path, folder, sink, "") ? fopen(path, "re") : NULL;
    if (!file)
        return;
    while (fgets(line, sizeof(line), file))
        take_line(state, line);
    fclose(file);
}

static bool write_state(const struct relay_state *state, FILE *file) {
    bool is_ok = true;
    for (unsigned i = 0; is_ok && i < DOCUMENT_KIND_COUNT; i++)
        if (state->has_position[i])
            is_ok = fprintf(file, "position %s %" PRIu64 " %s\n",
                            document_kind_name((enum document_kind)i), state->positions[i].seq,
                            state->positions[i].epoch.text) > 0;
    if (is_ok && state->failing_since_ms > 0)
        is_ok =
            fprintf(file, "failing %" PRIu64 " %s\n", state->failing_since_ms, state->error) > 0;
    return is_ok && fflush(file) == 0;
}

enum status relay_state_save(const struct relay_state *state, const char *folder,
                             enum label_sink sink) {
    char path[PATH_BYTES_MAX];
    char fresh[PATH_BYTES_MAX];
    if (!path_of(path, folder, sink, "") || !path_of(fresh, folder, sink, ".new"))
        return STATUS_SYSTEM_ERROR;
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file) {
        if (fd >= 0)
            close(fd);
        return STATUS_SYSTEM_ERROR;
    }
    bool is_written = write_state(state, file);
    is_written = fclose(file) == 0 && is_written;
    return is_written && rename(fresh, path) == 0 ? STATUS_OK : STATUS_SYSTEM_ERROR;
}
