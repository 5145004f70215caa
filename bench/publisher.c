#include "publisher.h"

#include <unistd.h>

#define REQUEST_BYTES_MAX ((size_t)16 << 20)

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
            bench_fail("no memory");
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
        bench_fail("%u of %u events were taken: %.300s", taken, events, publisher->answer.data);
    publisher->published += events;
}

void publisher_close(struct publisher *publisher) {
    close(publisher->fd);
    buffer_release(&publisher->request);
    buffer_release(&publisher->answer);
}
