#include "cell.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CELL_SECONDS_MAX 180

/* Written by the process of the measurement. */
struct outcome {
    struct sample samples[2];
    bool is_done;
};

/* The reason that bench_fail printed, or else the first line. */
static void problem_read(int fd, struct cell *cell) {
    char text[4096];
    ssize_t size = pread(fd, text, sizeof(text) - 1, 0);
    text[size > 0 ? size : 0] = '\0';
    const char *found = strstr(text, "bench: ");
    const char *reason = found ? found + strlen("bench: ") : text;
    int reason_size = (int)strcspn(reason, "\n");
    snprintf(cell->problem, sizeof(cell->problem), "%.*s", reason_size > 0 ? reason_size : 9,
             reason_size > 0 ? reason : "no reason");
}

/* Waits for the process, and ends it when it takes too long. Its servers end with it. Returns
 * whether it ended in time. */
static bool cell_wait(pid_t pid) {
    struct pollfd ended = {.fd = pidfd_open(pid, 0), .events = POLLIN};
    bool is_late = poll(&ended, 1, CELL_SECONDS_MAX * 1000) != 1;
    if (is_late)
        kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ended.fd);
    return !is_late;
}

void cell_run(struct cell *cell, const struct work *work) {
    struct outcome *outcome =
        mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int errors = memfd_create("errors", MFD_CLOEXEC);
    if (outcome == MAP_FAILED || errors < 0)
        bench_fail("no shared memory");
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        bench_fail("cannot fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(errors, STDERR_FILENO);
        work->run(cell->peer, work, outcome->samples);
        outcome->is_done = true;
        _exit(0);
    }
    bool is_in_time = cell_wait(pid);
    if (!is_in_time)
        snprintf(cell->problem, sizeof(cell->problem), "not ready after %d s", CELL_SECONDS_MAX);
    else if (outcome->is_done)
        memcpy(cell->samples[cell->runs++], outcome->samples, sizeof(outcome->samples));
    else
        problem_read(errors, cell);
    close(errors);
    munmap(outcome, sizeof(*outcome));
}

/* PostgreSQL may run as another user, which must be able to enter the folder. */
void cell_scratch(char path[64]) {
    strcpy(path, "/tmp/khala-peers-XXXXXX");
    if (!mkdtemp(path) || chmod(path, 0711) != 0 || setenv("TMPDIR", path, 1) != 0)
        bench_fail("cannot make a folder");
}
