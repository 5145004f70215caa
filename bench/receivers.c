#include "receivers.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "receiver_process.h"

#define STILL_SECONDS_MAX 10
#define WAIT_SECONDS_MAX  120

enum receiver_dialect receiver_dialect_of(const char *name) {
    if (strcmp(name, "phoenix") == 0)
        return RECEIVER_PHOENIX;
    if (strcmp(name, "topic_ws") == 0)
        return RECEIVER_TOPIC_WS;
    if (strcmp(name, "sse") == 0)
        return RECEIVER_SSE;
    bench_fail("--dialect must be phoenix, topic_ws or sse, not %s", name);
}

static unsigned share_of(const struct receiver_options *options, unsigned process) {
    unsigned each = options->count / options->process_count;
    return each + (process < options->count % options->process_count ? 1 : 0);
}

static void process_begin(const struct receivers *receivers, unsigned process) {
    int reached = 3;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* Open descriptors of the benchmark would count against the limit of this process. */
    if (receivers->reached != reached && dup2(receivers->reached, reached) < 0)
        _exit(1);
    close_range(4, ~0U, 0);
    receiver_process(&receivers->options, &receivers->shared[process],
                     share_of(&receivers->options, process), reached);
}

void receivers_fork(struct receivers *receivers, const struct receiver_options *options) {
    receivers->options = *options;
    if (options->process_count == 0 || options->process_count > RECEIVER_PROCESSES_MAX)
        bench_fail("the number of client processes must be 1 to %d", RECEIVER_PROCESSES_MAX);
    receivers->shared = mmap(NULL, sizeof(*receivers->shared) * options->process_count,
                             PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    receivers->reached = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    if (receivers->shared == MAP_FAILED || receivers->reached < 0)
        bench_fail("cannot map shared memory");
    receivers_expect(receivers, options->expected);
    receivers_frame_bytes(receivers, options->frame_bytes);
    for (unsigned i = 0; i < options->process_count; i++) {
        receivers->pids[i] = fork();
        if (receivers->pids[i] < 0)
            bench_fail("cannot fork a client process");
        if (receivers->pids[i] == 0)
            process_begin(receivers, i);
    }
}

void receivers_check(const struct receivers *receivers) {
    for (unsigned i = 0; i < receivers->options.process_count; i++)
        if (receivers->shared[i].problem[0] ||
            waitpid(receivers->pids[i], NULL, WNOHANG) == receivers->pids[i])
            bench_fail("client: %s", receivers->shared[i].problem);
}

unsigned receivers_wait_ready(const struct receivers *receivers) {
    uint64_t ready = 0, ended = 0;
    double moved = bench_seconds();
    while (ready + ended < receivers->options.count &&
           bench_seconds() - moved < STILL_SECONDS_MAX) {
        struct receiver_totals totals = receivers_totals(receivers);
        ended = totals.ended;
        if (totals.ready != ready)
            moved = bench_seconds();
        ready = totals.ready;
        receivers_check(receivers);
        poll(NULL, 0, 5);
    }
    return (unsigned)ready;
}

void receivers_start(struct receivers *receivers, const struct receiver_options *options) {
    receivers_fork(receivers, options);
    unsigned ready = receivers_wait_ready(receivers);
    if (ready < options->count)
        bench_fail("%u of %u clients are subscribed", ready, options->count);
}

void receivers_frame_bytes(struct receivers *receivers, size_t bytes) {
    for (unsigned i = 0; i < receivers->options.process_count; i++)
        receivers->shared[i].frame_bytes = bytes;
}

void receivers_expect(struct receivers *receivers, uint64_t updates_each) {
    for (unsigned i = 0; i < receivers->options.process_count; i++)
        receivers->shared[i].expected = updates_each * share_of(&receivers->options, i);
}

void receivers_wait(struct receivers *receivers) {
    double begun = bench_seconds();
    for (unsigned left = receivers->options.process_count; left > 0;) {
        uint64_t token;
        struct pollfd wait = {.fd = receivers->reached, .events = POLLIN};
        if (poll(&wait, 1, 1000) == 1 && read(receivers->reached, &token, sizeof(token)) > 0)
            left--;
        else
            receivers_check(receivers);
        if (bench_seconds() - begun > WAIT_SECONDS_MAX)
            bench_fail("%llu updates came, not all",
                       (unsigned long long)receivers_totals(receivers).updates);
    }
}

struct receiver_totals receivers_totals(const struct receivers *receivers) {
    struct receiver_totals totals = {0};
    for (unsigned i = 0; i < receivers->options.process_count; i++) {
        struct receiver_shared *shared = &receivers->shared[i];
        totals.ready += shared->ready;
        totals.updates += shared->updates;
        totals.messages += shared->messages;
        totals.bytes += shared->bytes;
        totals.ended += shared->ended;
    }
    return totals;
}

double receivers_seconds(const struct receivers *receivers) {
    uint64_t begun_ns = UINT64_MAX, reached_ns = 0;
    for (unsigned i = 0; i < receivers->options.process_count; i++) {
        if (receivers->shared[i].begun_ns < begun_ns)
            begun_ns = receivers->shared[i].begun_ns;
        if (receivers->shared[i].reached_ns > reached_ns)
            reached_ns = receivers->shared[i].reached_ns;
    }
    return (double)(reached_ns - begun_ns) / 1e9;
}

double receivers_latency(const struct receivers *receivers, double share) {
    static uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t all = 0, seen = 0;
    unsigned bucket;
    for (bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
        counts[bucket] = 0;
        for (unsigned i = 0; i < receivers->options.process_count; i++)
            counts[bucket] += receivers->shared[i].latency.counts[bucket];
        all += counts[bucket];
    }
    for (bucket = 0; bucket < HISTOGRAM_BUCKETS - 1; bucket++) {
        seen += counts[bucket];
        if ((double)seen >= share * (double)all)
            break;
    }
    return (double)histogram_value(bucket) / 1e9;
}

void receivers_latency_clear(struct receivers *receivers) {
    for (unsigned i = 0; i < receivers->options.process_count; i++)
        receivers->shared[i].latency = (struct histogram){0};
}

void receivers_stop(struct receivers *receivers) {
    receivers_check(receivers);
    for (unsigned i = 0; i < receivers->options.process_count; i++) {
        kill(receivers->pids[i], SIGKILL);
        waitpid(receivers->pids[i], NULL, 0);
    }
    munmap(receivers->shared, sizeof(*receivers->shared) * receivers->options.process_count);
    close(receivers->reached);
}
