#include "fanout/redis_url.h"

#include <string.h>

#include "base/decimal.h"

#define PORT_DEFAULT 6379
#define PORT_MAX     65535

static const char scheme[] = "redis://";
static const char scheme_secure[] = "rediss://";

static int hex_value(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool decode(struct slice text, char part[REDIS_URL_PART_MAX]) {
    size_t size = 0;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        if (c == '%') {
            int high = i + 2 < text.size ? hex_value(text.data[i + 1]) : -1;
            int low = high >= 0 ? hex_value(text.data[i + 2]) : -1;
            if (low < 0 || (high == 0 && low == 0))
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (size == REDIS_URL_PART_MAX - 1)
            return false;
        part[size++] = c;
    }
    part[size] = '\0';
    return true;
}

static bool set_login(struct slice login, struct redis_url *url) {
    const char *colon = memchr(login.data, ':', login.size);
    if (!colon)
        return false;
    size_t user_size = (size_t)(colon - login.data);
    return decode((struct slice){login.data, user_size}, url->user) &&
           decode(slice_from(login, user_size + 1), url->password);
}

/* HOST, HOST:PORT, [IPv6], [IPv6]:PORT */
static bool set_address(struct slice text, struct redis_url *url) {
    size_t size = 0;
    struct slice port = {NULL, 0};
    if (text.size > 0 && text.data[0] == '[') {
        const char *end = memchr(text.data, ']', text.size);
        if (!end)
            return false;
        size = (size_t)(end - text.data) - 1;
        port = slice_from(text, size + 2);
        text = slice_from(text, 1);
    } else {
        const char *colon = memchr(text.data, ':', text.size);
        size = colon ? (size_t)(colon - text.data) : text.size;
        port = slice_from(text, size);
    }
    uint64_t number = PORT_DEFAULT;
    if (size == 0 || size >= sizeof(url->host))
        return false;
    if (port.size > 0 && (port.data[0] != ':' || !decimal_parse_u64(slice_from(port, 1), &number) ||
                          number == 0 || number > PORT_MAX))
        return false;
    memcpy(url->host, text.data, size);
    url->host[size] = '\0';
    url->port = (int)number;
    return true;
}

const char *redis_url_parse(const char *text, struct redis_url *url) {
    *url = (struct redis_url){.port = PORT_DEFAULT};
    if (strncmp(text, scheme_secure, strlen(scheme_secure)) == 0)
        return "is a rediss URL, and this build has no TLS for Redis; use a tunnel on this machine";
    if (strncmp(text, scheme, strlen(scheme)) != 0)
        return "is no URL like redis://127.0.0.1:6379";
    struct slice rest = slice_of(text + strlen(scheme));
    const char *at = strrchr(rest.data, '@');
    if (at) {
        size_t size = (size_t)(at - rest.data);
        if (!set_login((struct slice){rest.data, size}, url))
            return "is no URL like redis://USER:PASSWORD@127.0.0.1:6379";
        rest = slice_from(rest, size + 1);
    }
    if (rest.size > 0 && rest.data[rest.size - 1] == '/')
        rest.size--;
    if (memchr(rest.data, '/', rest.size))
        return "has a database number or a path, and channels belong to no database";
    return set_address(rest, url) ? NULL : "is no URL like redis://127.0.0.1:6379";
}
