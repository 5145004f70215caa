#include "http/route.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Most requests are compared with many patterns, so each is left at its first byte that differs. */
bool route_path_matches(const char *pattern, struct slice path, struct slice *parameters,
                        size_t *parameter_count) {
    const char *at = path.data, *end = path.data + path.size;
    assert(pattern[0] == '/');
    *parameter_count = 0;
    while (*pattern != '\0') {
        if (*pattern != '{') {
            if (at == end || *at++ != *pattern++)
                return false;
            continue;
        }
        struct slice rest = {at, (size_t)(end - at)};
        const char *slash = rest.size > 0 ? memchr(rest.data, '/', rest.size) : NULL;
        at = slash ? slash : end;
        if (at == rest.data)
            return false;
        assert(*parameter_count < ROUTE_PARAMETERS_MAX);
        parameters[(*parameter_count)++] = (struct slice){rest.data, (size_t)(at - rest.data)};
        pattern += strcspn(pattern, "}") + 1;
    }
    return at == end;
}

enum status route_find(const struct route_table *table, const struct http1_request *request,
                       unsigned hidden, struct buffer *memory, struct route_match *match) {
    struct slice raw[ROUTE_PARAMETERS_MAX];
    enum http1_method method = request->method;
    bool is_path_known = false;
    match->parameter_count = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct route *row = &table->rows[i];
        size_t count;
        if (row->flags & hidden || !route_path_matches(row->path, request->path, raw, &count))
            continue;
        is_path_known = true;
        /* A GET handler also answers HEAD. */
        if (row->method != method &&
            !(row->method == HTTP1_METHOD_GET && method == HTTP1_METHOD_HEAD))
            continue;
        match->route = row;
        match->parameter_count = count;
        for (size_t j = 0; j < count; j++) {
            size_t begin = memory->size;
            enum status status = http1_percent_decode(raw[j], memory);
            if (status != STATUS_OK)
                return status;
            match->parameters[j].size = memory->size - begin;
        }
        /* The data pointers are set last, because the memory may have moved while it grew. */
        const char *data = memory->data;
        for (size_t j = 0; j < count; j++) {
            match->parameters[j].data = data;
            data += match->parameters[j].size;
        }
        return STATUS_OK;
    }
    return is_path_known ? STATUS_METHOD_NOT_ALLOWED : STATUS_NOT_FOUND;
}

void route_allowed(const struct route_table *table, struct slice path, unsigned hidden,
                   char text[64]) {
    static const char *const names[] = {"GET, HEAD", "HEAD",   "POST",    "PUT",
                                        "PATCH",     "DELETE", "OPTIONS", ""};
    struct slice raw[ROUTE_PARAMETERS_MAX];
    size_t count;
    size_t size = 0;
    text[0] = '\0';
    for (size_t i = 0; i < table->count; i++) {
        const struct route *row = &table->rows[i];
        if (!(row->flags & hidden) && size < 64 && route_path_matches(row->path, path, raw, &count))
            size +=
                (size_t)snprintf(text + size, 64 - size, size ? ", %s" : "%s", names[row->method]);
    }
}

static bool is_listed(const char *names, struct slice name) {
    struct slice left = slice_of(names);
    while (left.size > 0) {
        const char *blank = memchr(left.data, ' ', left.size);
        size_t size = blank ? (size_t)(blank - left.data) : left.size;
        if (slice_equal((struct slice){left.data, size}, name))
            return true;
        left = slice_from(left, blank ? size + 1 : size);
    }
    return false;
}

bool route_takes(const struct route *route, struct slice parameter) {
    /* The token and the versions are read before the handler runs. "_" is the name under which
     * browser libraries add a number against caches. */
    return !route->parameters || is_listed(route->parameters, parameter) ||
           is_listed("token client_build_id protocol_version schema_version _", parameter);
}

/* The first row that fits the route's pattern decides. The request's own path is not used, so the
 * number of labels is bounded. */
static const struct {
    const char *prefix;
    const char *suffix;
    enum label_route_class route_class;
} route_classes[] = {
    {"/healthz/", "", LABEL_ROUTE_CLASS_HEALTH},
    {"/metrics", "", LABEL_ROUTE_CLASS_METRICS},
    {"/internal/v1/events:batch", "", LABEL_ROUTE_CLASS_BATCH},
    {"/v1/events:batch", "", LABEL_ROUTE_CLASS_BATCH},
    {"/", "/sync/token", LABEL_ROUTE_CLASS_TOKEN},
    {"/v1/cursors/", "", LABEL_ROUTE_CLASS_CURSORS},
    {"/", "/messages", LABEL_ROUTE_CLASS_POLL},
    {"/", "/snapshot", LABEL_ROUTE_CLASS_SNAPSHOT},
    {"/", "/sse", LABEL_ROUTE_CLASS_SSE},
    {"/events", "", LABEL_ROUTE_CLASS_SSE},
    {"/", "/websocket", LABEL_ROUTE_CLASS_SOCKET},
    {"/", "/ws", LABEL_ROUTE_CLASS_SOCKET},
    {"/", "/stream", LABEL_ROUTE_CLASS_SOCKET},
    {"/api/events", "", LABEL_ROUTE_CLASS_AUDIT},
    {"/internal/v1/khala/", "", LABEL_ROUTE_CLASS_OPERATOR},
    {"/internal/v1/sync/", "", LABEL_ROUTE_CLASS_OPERATOR},
    {"/internal/v1/keys", "", LABEL_ROUTE_CLASS_OPERATOR},
    {"/internal/v1/retention", "", LABEL_ROUTE_CLASS_OPERATOR},
    {"/internal/v1/projectors/reproject", "", LABEL_ROUTE_CLASS_OPERATOR},
    {"/", "", LABEL_ROUTE_CLASS_READ},
};

enum label_route_class route_class(const struct route *route) {
    if (!route)
        return LABEL_ROUTE_CLASS_UNMATCHED;
    if (route->flags & ROUTE_APPEND)
        return LABEL_ROUTE_CLASS_APPEND;
    size_t i = 0;
    while (!slice_starts(slice_of(route->path), slice_of(route_classes[i].prefix)) ||
           !slice_ends(slice_of(route->path), slice_of(route_classes[i].suffix)))
        i++;
    return route_classes[i].route_class;
}
