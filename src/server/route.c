#include "server/route.h"

#include <stdio.h>

#include "server/handlers.h"

static const struct route routes[] = {
    {HTTP1_METHOD_GET, "/healthz/live", handle_live, 0, 0},
    {HTTP1_METHOD_GET, "/healthz/ready", handle_ready, 0, 0},
};

#define ROUTE_COUNT (sizeof(routes) / sizeof(routes[0]))

static struct slice segment_take(struct slice *path) {
    const char *slash = memchr(path->data, '/', path->size);
    size_t size = slash ? (size_t)(slash - path->data) : path->size;
    struct slice segment = {path->data, size};
    *path = slice_from(*path, slash ? size + 1 : size);
    return segment;
}

/* Both paths begin with '/'; raw parameters go to parameters, which may be NULL. */
static bool path_matches(const char *pattern, struct slice path, struct slice *parameters,
                         size_t *parameter_count) {
    struct slice wanted = slice_of(pattern);
    if (path.size == 0 || path.data[0] != '/')
        return false;
    *parameter_count = 0;
    while (wanted.size > 0 && path.size > 0) {
        /* A slash stands at the front of both: a path that ends in one has one segment more. */
        wanted = slice_from(wanted, 1);
        path = slice_from(path, 1);
        struct slice expected = segment_take(&wanted);
        struct slice segment = segment_take(&path);
        if (expected.size > 0 && expected.data[0] == '{') {
            if (segment.size == 0)
                return false;
            parameters[(*parameter_count)++] = segment;
        } else if (!slice_equal(expected, segment)) {
            return false;
        }
        if (wanted.size > 0)
            wanted = (struct slice){wanted.data - 1, wanted.size + 1};
        if (path.size > 0)
            path = (struct slice){path.data - 1, path.size + 1};
    }
    return wanted.size == 0 && path.size == 0;
}

static enum status parameters_decode(struct exchange *exchange, const struct slice *raw) {
    size_t ends[EXCHANGE_PARAMETERS_MAX];
    for (size_t i = 0; i < exchange->parameter_count; i++) {
        enum status status = http1_percent_decode(raw[i], &exchange->parameter_memory);
        if (status != STATUS_OK)
            return status;
        ends[i] = exchange->parameter_memory.size;
    }
    for (size_t i = 0, start = 0; i < exchange->parameter_count; start = ends[i++])
        exchange->parameters[i] =
            (struct slice){exchange->parameter_memory.data + start, ends[i] - start};
    return STATUS_OK;
}

static bool method_matches(enum http1_method wanted, enum http1_method given) {
    return wanted == given || (wanted == HTTP1_METHOD_GET && given == HTTP1_METHOD_HEAD);
}

enum status route_find(struct exchange *exchange) {
    struct slice raw[EXCHANGE_PARAMETERS_MAX];
    bool path_known = false;
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        if (!path_matches(routes[i].path, exchange->request->path, raw, &exchange->parameter_count))
            continue;
        path_known = true;
        if (method_matches(routes[i].method, exchange->request->method)) {
            exchange->route = &routes[i];
            return parameters_decode(exchange, raw);
        }
    }
    return path_known ? STATUS_METHOD_NOT_ALLOWED : STATUS_NOT_FOUND;
}

void route_allowed(struct slice path, char text[64]) {
    static const char *const names[] = {"GET, HEAD", "HEAD",   "POST",    "PUT",
                                        "PATCH",     "DELETE", "OPTIONS", ""};
    struct slice raw[EXCHANGE_PARAMETERS_MAX];
    size_t count;
    size_t size = 0;
    text[0] = '\0';
    for (size_t i = 0; i < ROUTE_COUNT; i++)
        if (path_matches(routes[i].path, path, raw, &count) && size < 64)
            size += (size_t)snprintf(text + size, 64 - size, size ? ", %s" : "%s",
                                     names[routes[i].method]);
}
