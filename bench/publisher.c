#include "publisher.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_BYTES_MAX ((size_t)16 << 20)
#define PACE_EVENTS_MAX   500 /* in one call, after a backlog */

void publisher_open(struct publisher *publisher, const struct bench_server *server,
                    const char *topic, unsigned payload_bytes) {
    *publisher =
        (struct publisher){.server = server, .topic = topic, .payload_bytes = payload_bytes};
    buffer_init(&publisher->request, REQUEST_BYTES_MAX);
    buffer_init(&publisher->answer, REQUEST_BYTES_MAX);
    publisher->fd = bench_connect(server->port);
}

static void request_prepare(struct publisher *publisher, unsigned events) {
    struct buffer body;
    unsigned pad = publisher->payload_bytes > 10 ? publisher->payload_bytes - 10 : 0;
    buffer_init(&body, REQUEST_BYTES_MAX);
    for (unsigned i = 0; i < events; i++)
        if (buffer_printf(
                &body,
                "{\"topic\":\"%s\",\"event_type\":\"tick\",\"payload\":{\"pad\":\"%0*d\"}}\n",
                publisher->topic, (int)pad, 0) != STATUS_OK)
            bench_fail("out of memory");
    buffer_clear(&publisher->request);
    bench_post(&publisher->request, publisher->server, "/internal/v1/events:batch",
               "application/x-ndjson", buffer_slice(&body));
    buffer_release(&body);
    publisher->prepared = events;
}

void publisher_send(struct publisher *publisher, unsigned events) {
    if (publisher->prepared != events)
        request_prepare(publisher, events);
    bench_ask(publisher->fd, buffer_slice(&publisher->request), &publisher->answer);
    unsigned taken = 0;
    const char *at = publisher->answer.data, *end = at + publisher->answer.size;
    while ((at = memmem(at, (size_t)(end - at), "\"status\":200", 12))) {
        taken++;
        at += 12;
    }
    if (taken != events)
        bench_fail("the server took %u of %u events: %.300s", taken, events,
                   publisher->answer.data);
    publisher->published += events;
}

uint64_t *pace_table(uint64_t count) {
    uint64_t *table = mmap(NULL, count * sizeof(uint64_t), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        bench_fail("cannot map shared memory");
    return table;
}

double pace_run(const struct pace *pace) {
    uint64_t begun_ns = bench_nanoseconds();
    uint64_t sent = 0;
    while (sent < pace->events) {
        uint64_t passed_ns = bench_nanoseconds() - begun_ns;
        uint64_t due = passed_ns * pace->per_second / 1000000000 + 1;
        if (due <= sent) {
            uint64_t next_ns = begun_ns + sent * 1000000000 / pace->per_second;
            struct timespec until = {.tv_sec = (time_t)(next_ns / 1000000000),
                                     .tv_nsec = (long)(next_ns % 1000000000)};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
            continue;
        }
        uint64_t batch = (due < pace->events ? due : pace->events) - sent;
        batch = batch < PACE_EVENTS_MAX ? batch : PACE_EVENTS_MAX;
        for (uint64_t i = sent; i < sent + batch; i++)
            pace->due_ns[pace->first + i] = begun_ns + i * 1000000000 / pace->per_second;
        pace->send(pace->user, (unsigned)batch);
        sent += batch;
        if (passed_ns > (uint64_t)BENCH_SECONDS_MAX * 1000000000)
            bench_fail("%llu events per second are too many", (unsigned long long)pace->per_second);
    }
    return (double)(bench_nanoseconds() - begun_ns) / 1e9;
}

void publisher_close(struct publisher *publisher) {
    close(publisher->fd);
    buffer_release(&publisher->request);
    buffer_release(&publisher->answer);
}
