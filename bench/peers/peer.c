#include "peer.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"

#define NUMBER_DIGITS   20
#define PROCESSES_MAX   4096
#define ASK_SECONDS     30
#define DESCENDANTS_MAX 512

void peer_event(char out[PEER_EVENT_BYTES], uint64_t number) {
    static const char head[] = "{\"n\":\"", tail[] = "\",\"pad\":\"";
    memset(out, 'x', PEER_EVENT_BYTES);
    memcpy(out, head, sizeof(head) - 1);
    char *digits = out + sizeof(head) - 1;
    for (int i = NUMBER_DIGITS; i-- > 0; number /= 10)
        digits[i] = (char)('0' + number % 10);
    memcpy(digits + NUMBER_DIGITS, tail, sizeof(tail) - 1);
    memcpy(out + PEER_EVENT_BYTES - 2, "\"}", 2);
}

struct uuid ingest_id(struct ingest *ingest) {
    return uuid7_next(&ingest->ids, clock_now().wall_ms);
}

void ingest_ack(struct ingest *ingest, unsigned connection, uint64_t position) {
    struct ingest_conn *conn = &ingest->conns[connection];
    uint64_t target = ingest->shape == INGEST_RUNS ? (conn->first + conn->acked) % PEER_RUNS : 0;
    if (position <= conn->positions[target])
        bench_fail("position %llu was acknowledged after %llu", (unsigned long long)position,
                   (unsigned long long)conn->positions[target]);
    if (++conn->acked > conn->events)
        bench_fail("more acknowledgements than events");
    conn->positions[target] = position;
    if (ingest->drop_ack)
        ingest->drop_ack = false;
    else
        ingest->acked++;
}

void peer_put(struct buffer *out, const void *data, size_t size) {
    if (buffer_append(out, data, size) != STATUS_OK)
        bench_fail("out of memory");
}

void peer_put_text(struct buffer *out, const char *text) {
    peer_put(out, text, strlen(text));
}

void peer_ask(int fd, const char *text, const char *until, struct buffer *answer) {
    char piece[4096];
    struct timeval limit = {.tv_sec = ASK_SECONDS};
    size_t size = strlen(text);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (send(fd, text, size, MSG_NOSIGNAL) != (ssize_t)size)
        bench_fail("cannot send %s", text);
    buffer_clear(answer);
    while (answer->size == 0 || !memmem(answer->data, answer->size, until, strlen(until))) {
        ssize_t got = recv(fd, piece, sizeof(piece), 0);
        if (got <= 0)
            bench_fail("no answer to %.40s", text);
        peer_put(answer, piece, (size_t)got);
    }
}

uint64_t peer_number(struct slice text, const char *name) {
    const char *found = memmem(text.data, text.size, name, strlen(name));
    if (!found)
        bench_fail("no %s in %.*s", name, (int)(text.size < 300 ? text.size : 300), text.data);
    return strtoull(found + strlen(name), NULL, 10);
}

void peer_line(const char *command, char line[256]) {
    FILE *output = popen(command, "r");
    line[0] = '\0';
    if (!output)
        bench_fail("cannot run %s", command);
    if (fgets(line, 256, output))
        line[strcspn(line, "\n")] = '\0';
    pclose(output);
}

/* ---- CPU of a tree of processes ---- */

struct process {
    pid_t pid;
    pid_t parent;
};

static pid_t parent_of(const char *name) {
    char path[300], text[512];
    snprintf(path, sizeof(path), "/proc/%s/stat", name);
    FILE *file = fopen(path, "r");
    size_t size = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    if (file)
        fclose(file);
    text[size] = '\0';
    /* The name of the program is in parentheses and may contain any byte. */
    const char *end = strrchr(text, ')');
    return end && strlen(end) > 4 ? (pid_t)strtol(end + 4, NULL, 10) : 0;
}

static size_t processes_list(struct process *processes) {
    size_t count = 0;
    DIR *folder = opendir("/proc");
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && count < PROCESSES_MAX)
            processes[count++] =
                (struct process){(pid_t)strtol(entry->d_name, NULL, 10), parent_of(entry->d_name)};
    if (folder)
        closedir(folder);
    return count;
}

double peer_cpu_seconds(pid_t pid) {
    static struct process processes[PROCESSES_MAX];
    pid_t tree[DESCENDANTS_MAX] = {pid};
    size_t count = processes_list(processes), known = 1;
    double seconds = 0;
    for (size_t i = 0; i < known; i++) {
        clockid_t clock;
        struct timespec used;
        if (clock_getcpuclockid(tree[i], &clock) == 0 && clock_gettime(clock, &used) == 0)
            seconds += (double)used.tv_sec + (double)used.tv_nsec / 1e9;
        for (size_t j = 0; j < count && known < DESCENDANTS_MAX; j++)
            if (processes[j].parent == tree[i])
                tree[known++] = processes[j].pid;
    }
    return seconds;
}
