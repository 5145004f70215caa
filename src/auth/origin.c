#include "auth/origin.h"

#include <ctype.h>
#include <strings.h>

struct origin {
    struct slice scheme;
    struct slice host;
    struct slice port; /* empty: the default of the scheme */
};

static bool equal_any_case(struct slice a, struct slice b) {
    return a.size == b.size && strncasecmp(a.data, b.data, a.size) == 0;
}

static bool is_alnum_or(struct slice text, const char *characters) {
    for (size_t i = 0; i < text.size; i++)
        if (!isalnum((unsigned char)text.data[i]) && !strchr(characters, text.data[i]))
            return false;
    return text.size > 0;
}

static bool host_is_valid(struct slice host) {
    if (host.size > 2 && host.data[0] == '[' && host.data[host.size - 1] == ']')
        return is_alnum_or((struct slice){host.data + 1, host.size - 2}, ":.");
    return is_alnum_or(host, "-._");
}

/* The host keeps a leading "*.". */
static bool origin_read(struct slice text, struct origin *origin) {
    const char *mark = memmem(text.data, text.size, "://", 3);
    if (!mark)
        return false;
    origin->scheme = (struct slice){text.data, (size_t)(mark - text.data)};
    struct slice rest = slice_from(text, origin->scheme.size + 3);
    const char *bracket = memrchr(rest.data, ']', rest.size);
    const char *colon = memrchr(rest.data, ':', rest.size);
    bool has_port = colon && (!bracket || colon > bracket);
    origin->host = (struct slice){rest.data, has_port ? (size_t)(colon - rest.data) : rest.size};
    origin->port = has_port ? slice_from(rest, origin->host.size + 1) : (struct slice){"", 0};
    size_t digits = 0;
    while (digits < origin->port.size && isdigit((unsigned char)origin->port.data[digits]))
        digits++;
    if (has_port && (digits == 0 || digits > 5 || digits < origin->port.size))
        return false;
    bool is_default =
        (equal_any_case(origin->scheme, SLICE("https")) &&
         slice_equal(origin->port, SLICE("443"))) ||
        (equal_any_case(origin->scheme, SLICE("http")) && slice_equal(origin->port, SLICE("80")));
    if (is_default)
        origin->port = (struct slice){"", 0};
    return is_alnum_or(origin->scheme, "+-.");
}

static bool has_wildcard(const struct origin *origin) {
    return slice_starts(origin->host, SLICE("*."));
}

/* Removes the first entry from the list, and returns it without the spaces around it. */
static struct slice next_entry(struct slice *list) {
    const char *comma = memchr(list->data, ',', list->size);
    struct slice entry = {list->data, comma ? (size_t)(comma - list->data) : list->size};
    *list = slice_from(*list, entry.size + (comma ? 1 : 0));
    while (entry.size > 0 && entry.data[0] == ' ')
        entry = slice_from(entry, 1);
    while (entry.size > 0 && entry.data[entry.size - 1] == ' ')
        entry.size--;
    return entry;
}

bool origin_list_check(struct slice list) {
    while (list.size > 0) {
        struct slice entry = next_entry(&list);
        struct origin origin;
        if (slice_equal(entry, SLICE("*")) || slice_equal(entry, SLICE("null")))
            continue;
        if (!origin_read(entry, &origin) ||
            !host_is_valid(has_wildcard(&origin) ? slice_from(origin.host, 2) : origin.host))
            return false;
    }
    return true;
}

bool origin_is_allowed(struct slice list, struct slice origin) {
    struct origin given = {.scheme = {NULL, 0}};
    bool is_null = slice_equal(origin, SLICE("null"));
    if (!is_null && (origin.size == 0 || origin.size > ORIGIN_BYTES_MAX ||
                     !origin_read(origin, &given) || !host_is_valid(given.host)))
        return false;
    while (list.size > 0) {
        struct slice entry = next_entry(&list);
        struct slice host = given.host;
        struct origin allowed;
        if (slice_equal(entry, SLICE("*")) || (is_null && slice_equal(entry, SLICE("null"))))
            return true;
        if (is_null || entry.size == 0 || !origin_read(entry, &allowed) ||
            !equal_any_case(allowed.scheme, given.scheme) || !slice_equal(allowed.port, given.port))
            continue;
        if (has_wildcard(&allowed)) {
            /* The entry is ".example.com" without its star, and the host is longer. */
            allowed.host = slice_from(allowed.host, 1);
            if (host.size <= allowed.host.size)
                continue;
            host = slice_from(host, host.size - allowed.host.size);
        }
        if (equal_any_case(allowed.host, host))
            return true;
    }
    return false;
}
