/* Cuts the power at random moments of a trace, and judges the files that are left.
 *
 *     power_cut log FOLDER
 *     power_cut cut TRACE BASE WORK [first SEED] [count N] [without TEXT]
 *     power_cut leave TRACE BASE SEED FOLDER
 *
 * "log" prints the log of a store, for the mark "store". "cut" makes one cut for each seed. BASE is
 * the folder as it was when the trace began. For every fourth seed the power fails again while the
 * store recovers. Without: syncs of paths that end in that text are left out, and the cuts come
 * behind them. The broken promises are printed, then a sum; the exit code is 1 if there is one.
 * "leave" writes the files that one cut leaves into FOLDER.
 *
 * The disk replays the trace once, and a child process judges each cut on its way. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk.h"
#include "promises.h"
#include "recorder.h"

#define CHILDREN_MAX 2
#define AGAIN_EVERY  4
#define SOON_RECORDS 12
#define SECONDS_MAX  120

struct trace {
    uint8_t *bytes;
    size_t *offsets;
    size_t count;
    size_t *syncs; /* indexes of records */
    size_t sync_count;
};

struct cut {
    uint64_t seed;
    size_t at; /* so many records are before it */
};

struct run {
    struct trace trace;
    struct disk *disk;
    struct promises *promises;
    const char *work;
    struct cut *cuts;
    size_t cut_count;
    size_t running, broken;
    struct {
        pid_t pid;
        struct cut cut;
    } children[CHILDREN_MAX];
};

static void usage(void) {
    fputs("power_cut log FOLDER | cut TRACE BASE WORK [first SEED] [count N] [without TEXT] | "
          "leave TRACE BASE SEED FOLDER\n",
          stderr);
    exit(2);
}

static const struct trace_head *record_at(const struct trace *trace, size_t index) {
    return (const struct trace_head *)(const void *)(trace->bytes + trace->offsets[index]);
}

static void read_trace(const char *path, struct trace *trace) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat found;
    *trace = (struct trace){.count = 0};
    if (fd < 0 || fstat(fd, &found) != 0) {
        perror(path);
        exit(2);
    }
    size_t size = (size_t)found.st_size;
    uint8_t *bytes = malloc(size + 1);
    size_t done = 0;
    ssize_t part = 1;
    while (bytes && done < size && (part = read(fd, bytes + done, size - done)) > 0)
        done += (size_t)part;
    close(fd);
    trace->bytes = bytes;
    trace->offsets = calloc(size / sizeof(struct trace_head) + 1, sizeof(*trace->offsets));
    trace->syncs = calloc(size / sizeof(struct trace_head) + 1, sizeof(*trace->syncs));
    if (!bytes || !trace->offsets || !trace->syncs || done != size)
        abort();
    for (size_t at = 0; at < size; trace->count++) {
        struct trace_head head;
        memcpy(&head, bytes + at, sizeof(head));
        trace->offsets[trace->count] = at;
        if (head.kind == TRACE_SYNC)
            trace->syncs[trace->sync_count++] = trace->count;
        at += head.size;
    }
}

static void release_trace(struct trace *trace) {
    free(trace->bytes);
    free(trace->offsets);
    free(trace->syncs);
}

static uint64_t mix(uint64_t seed) {
    seed = (seed + UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (seed ^ (seed >> 29)) * UINT64_C(0x94d049bb133111eb) >> 8;
}

/* Half of the cuts are anywhere, the others just before or behind a sync, where most is at stake.
 */
static struct cut cut_of(const struct trace *trace, uint64_t seed) {
    uint64_t mixed = mix(seed);
    struct cut cut = {seed, mixed / 4 % (trace->count + 1)};
    if (trace->sync_count > 0 && mixed & 1)
        cut.at = trace->syncs[mixed / 4 % trace->sync_count] + (mixed >> 1 & 1);
    return cut;
}

/* Somewhere behind a sync that was left out, and half of the time soon after it. */
static struct cut cut_behind(const struct trace *trace, uint64_t seed) {
    uint64_t mixed = mix(seed);
    size_t after = trace->syncs[mixed / 2 % trace->sync_count] + 1;
    size_t left = trace->count + 1 - after;
    size_t most = mixed & 1 && left > SOON_RECORDS ? SOON_RECORDS : left;
    return (struct cut){seed, after + mix(mixed) % most};
}

/* Keeps only the syncs that the disk ignores. */
static void find_ignored(struct trace *trace, const char *folder, const char *text) {
    struct disk *disk = disk_load(folder);
    size_t count = 0;
    disk_ignore_syncs(disk, text);
    for (size_t i = 0; i < trace->count; i++) {
        size_t before = disk_ignored_syncs(disk);
        disk_apply(disk, record_at(trace, i));
        if (disk_ignored_syncs(disk) > before)
            trace->syncs[count++] = i;
    }
    trace->sync_count = count;
    if (count == 0) {
        fprintf(stderr, "power_cut: nothing syncs %s\n", text);
        exit(2);
    }
}

static int compare_cuts(const void *a, const void *b) {
    const struct cut *left = a, *right = b;
    return left->at < right->at ? -1 : left->at > right->at;
}

static void make_folder(const char *path) {
    if (mkdir(path, 0700) != 0) {
        perror(path);
        exit(2);
    }
}

static void remove_folder(const char *path) {
    DIR *folder = opendir(path);
    if (!folder)
        return;
    for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        char inside[PATH_MAX];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(inside, sizeof(inside), "%s/%s", path, entry->d_name);
        if (unlink(inside) != 0)
            remove_folder(inside);
    }
    closedir(folder);
    rmdir(path);
}

/* ---- one cut, in a process of its own ---- */

/* A name in the work folder. */
static char *place_of(const struct run *run, uint64_t seed, const char *suffix) {
    char *path = NULL;
    if (asprintf(&path, "%s/%llu%s", run->work, (unsigned long long)seed, suffix) < 0)
        abort();
    return path;
}

/* Judges while the recorder runs, cuts the power inside of that, and judges again. */
static bool holds_again(const struct run *run, const char *folder, uint64_t seed) {
    char *again = place_of(run, seed, ".again"), *file = place_of(run, seed, ".trace");
    struct trace trace;
    struct disk *disk = disk_load(folder);
    recorder_begin(folder, file);
    bool holds = promises_hold(run->promises, folder);
    recorder_end();
    if (!holds)
        return false;
    read_trace(file, &trace);
    unlink(file);
    struct cut cut = cut_of(&trace, ~seed);
    for (size_t i = 0; i < cut.at; i++)
        disk_apply(disk, record_at(&trace, i));
    make_folder(again);
    disk_cut(disk, mix(~seed), again);
    holds = promises_hold(run->promises, again);
    if (!holds)
        printf("after a second cut, at record %zu of %zu of the recovery\n", cut.at, trace.count);
    remove_folder(again);
    release_trace(&trace);
    return holds;
}

static int judge(const struct run *run, struct cut cut) {
    char *folder = place_of(run, cut.seed, "");
    if (!freopen(place_of(run, cut.seed, ".out"), "w", stdout) ||
        dup2(fileno(stdout), STDERR_FILENO) < 0)
        return 2;
    const struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) != 0)
        return 2;
    alarm(SECONDS_MAX);
    make_folder(folder);
    disk_cut(run->disk, mix(cut.seed), folder);
    bool holds = cut.seed % AGAIN_EVERY == 0 ? holds_again(run, folder, cut.seed)
                                             : promises_hold(run->promises, folder);
    fflush(stdout);
    remove_folder(folder);
    return holds ? 0 : 1;
}

/* ---- all cuts ---- */

static void print_file(const char *path) {
    char text[4096];
    FILE *file = fopen(path, "r");
    size_t size = file ? fread(text, 1, sizeof(text), file) : 0;
    if (file)
        fclose(file);
    fwrite(text, 1, size, stdout);
}

static void print_broken(const struct run *run, struct cut cut, int status) {
    static const char *const names[] = {
        [TRACE_OPEN] = "open",         [TRACE_CREATE] = "create",     [TRACE_FOLDER_MADE] = "mkdir",
        [TRACE_WRITE] = "write",       [TRACE_TRUNCATE] = "truncate", [TRACE_RENAME] = "rename",
        [TRACE_LINK] = "link",         [TRACE_UNLINK] = "unlink",     [TRACE_SYNC] = "sync",
        [TRACE_MARK] = "acknowledged", [TRACE_UNKNOWN] = "unknown"};
    const struct trace_head *last = cut.at ? record_at(&run->trace, cut.at - 1) : NULL;
    printf("seed %llu, behind record %zu of %zu (%s %.*s)%s:\n", (unsigned long long)cut.seed,
           cut.at, run->trace.count, last ? names[last->kind] : "none",
           last ? (int)(last->path_size) : 0, last ? (const char *)(last + 1) : "",
           WIFSIGNALED(status) ? ", died of a signal" : "");
}

static void await_child(struct run *run) {
    int status = 0;
    pid_t pid = wait(&status);
    size_t at = 0;
    while (at < run->running && run->children[at].pid != pid)
        at++;
    if (at == run->running)
        abort();
    struct cut cut = run->children[at].cut;
    char *output = place_of(run, cut.seed, ".out");
    if (status != 0) {
        run->broken++;
        print_broken(run, cut, status);
        print_file(output);
    }
    unlink(output);
    free(output);
    run->children[at] = run->children[--run->running];
}

static void begin_child(struct run *run, struct cut cut) {
    if (run->running == CHILDREN_MAX)
        await_child(run);
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        abort();
    if (pid == 0)
        _exit(judge(run, cut));
    run->children[run->running].pid = pid;
    run->children[run->running++].cut = cut;
}

static void replay(struct run *run) {
    size_t next = 0;
    for (size_t at = 0; next < run->cut_count; at++) {
        while (next < run->cut_count && run->cuts[next].at == at)
            begin_child(run, run->cuts[next++]);
        if (at == run->trace.count)
            break;
        disk_apply(run->disk, record_at(&run->trace, at));
        promises_note(run->promises, run->disk, record_at(&run->trace, at));
    }
    while (run->running > 0)
        await_child(run);
}

static int cut_all(int argc, char **argv) {
    struct run run = {.work = argv[2], .promises = promises_new()};
    uint64_t first = 1, count = 1;
    const char *without = NULL;
    read_trace(argv[0], &run.trace);
    run.disk = disk_load(argv[1]);
    for (int i = 3; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "first") == 0)
            first = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "count") == 0)
            count = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "without") == 0)
            without = argv[i + 1];
        else
            usage();
    }
    if (without) {
        find_ignored(&run.trace, argv[1], without);
        disk_ignore_syncs(run.disk, without);
    }
    run.cuts = calloc(count, sizeof(*run.cuts));
    if (!run.cuts)
        abort();
    for (run.cut_count = 0; run.cut_count < count; run.cut_count++)
        run.cuts[run.cut_count] = without ? cut_behind(&run.trace, first + run.cut_count)
                                          : cut_of(&run.trace, first + run.cut_count);
    qsort(run.cuts, count, sizeof(*run.cuts), compare_cuts);
    replay(&run);
    printf("%zu cuts, seeds %llu to %llu, in %zu records with %zu syncs: %zu broke a promise\n",
           run.cut_count, (unsigned long long)first, (unsigned long long)(first + count - 1),
           run.trace.count, run.trace.sync_count, run.broken);
    release_trace(&run.trace);
    return run.broken > 0;
}

static int leave(char **argv) {
    struct trace trace;
    read_trace(argv[0], &trace);
    struct disk *disk = disk_load(argv[1]);
    struct cut cut = cut_of(&trace, strtoull(argv[2], NULL, 10));
    for (size_t i = 0; i < cut.at; i++)
        disk_apply(disk, record_at(&trace, i));
    disk_cut(disk, mix(cut.seed), argv[3]);
    release_trace(&trace);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "log") == 0)
        return promises_print_log(argv[2]) ? 0 : 1;
    if (argc >= 5 && strcmp(argv[1], "cut") == 0)
        return cut_all(argc - 2, argv + 2);
    if (argc == 6 && strcmp(argv[1], "leave") == 0)
        return leave(argv + 2);
    usage();
    return 2;
}
