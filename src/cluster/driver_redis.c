/* Redis channels: PUBLISH and SUBSCRIBE. A subscribed connection takes no PUBLISH, so there are
 * two. The sockets block, but every read waits in poll() first, with a deadline. */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/decimal.h"
#include "base/limits.h"
#include "cluster/driver.h"

#define PORT_DEFAULT 6379
#define PORT_MAX     65535

struct redis {
    redisContext *publisher;
    redisContext *subscriber;
    const struct fanout_port *port;
};

/* ---- the URL ---- */

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
        const char *colon = memchr(rest.data, ':', size);
        size_t user_size = colon ? (size_t)(colon - rest.data) : 0;
        if (!colon || !decode((struct slice){rest.data, user_size}, url->user) ||
            !decode((struct slice){colon + 1, size - user_size - 1}, url->password))
            return "is no URL like redis://USER:PASSWORD@127.0.0.1:6379";
        rest = slice_from(rest, size + 1);
    }
    if (rest.size > 0 && rest.data[rest.size - 1] == '/')
        rest.size--;
    if (memchr(rest.data, '/', rest.size))
        return "has a database number or a path, and channels belong to no database";
    return set_address(rest, url) ? NULL : "is no URL like redis://127.0.0.1:6379";
}

/* ---- replies ---- */

static enum status fail(char error[FANOUT_ERROR_BYTES_MAX], const char *reason) {
    snprintf(error, FANOUT_ERROR_BYTES_MAX, "%s", reason);
    return STATUS_SYSTEM_ERROR;
}

/* The next reply that was received, or NULL. */
static enum status take_reply(redisContext *context, redisReply **reply,
                              char error[FANOUT_ERROR_BYTES_MAX]) {
    void *made = NULL;
    *reply = NULL;
    if (redisGetReplyFromReader(context, &made) != REDIS_OK)
        return fail(error, context->errstr);
    *reply = made;
    /* A publisher of the channel decides the size of its message. */
    if (!made && context->reader->len > FANOUT_QUEUE_BYTES_MAX)
        return fail(error, "a message on the channel is larger than any hint");
    return STATUS_OK;
}

static enum status receive(redisContext *context, char error[FANOUT_ERROR_BYTES_MAX]) {
    return redisBufferRead(context) == REDIS_OK ? STATUS_OK : fail(error, context->errstr);
}

static enum status send_all(redisContext *context, char error[FANOUT_ERROR_BYTES_MAX]) {
    int done = 0;
    while (!done)
        if (redisBufferWrite(context, &done) != REDIS_OK)
            return fail(error, context->errstr);
    return STATUS_OK;
}

/* Passes a message on. False: the reply is none. */
static bool pass_on(struct redis *redis, const redisReply *reply) {
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        reply->element[0]->type != REDIS_REPLY_STRING ||
        strcmp(reply->element[0]->str, "message") != 0)
        return false;
    const redisReply *text = reply->element[2];
    if (text->type == REDIS_REPLY_STRING)
        redis->port->on_text(redis->port->user, (struct slice){text->str, (size_t)text->len});
    return true;
}

/* Waits for the reply to the command that was sent. Messages before it are passed on. */
static enum status await(struct redis *redis, redisContext *context, redisReply **reply,
                         char error[FANOUT_ERROR_BYTES_MAX]) {
    uint64_t until_ms = clock_mono_now_ms() + FANOUT_TIMEOUT_MS;
    enum status status = send_all(context, error);
    while (status == STATUS_OK) {
        status = take_reply(context, reply, error);
        if (status == STATUS_OK && *reply) {
            if (!pass_on(redis, *reply))
                return STATUS_OK;
            freeReplyObject(*reply);
            *reply = NULL;
            continue;
        }
        uint64_t now = clock_mono_now_ms();
        struct pollfd wait = {.fd = context->fd, .events = POLLIN};
        if (status != STATUS_OK)
            break;
        if (now >= until_ms || poll(&wait, 1, (int)(until_ms - now)) == 0)
            return fail(error, "the server does not answer in time");
        if (wait.revents)
            status = receive(context, error);
    }
    return status;
}

static enum status command(struct redis *redis, redisContext *context, int argc, const char **argv,
                           char error[FANOUT_ERROR_BYTES_MAX]) {
    redisReply *reply = NULL;
    if (redisAppendCommandArgv(context, argc, argv, NULL) != REDIS_OK)
        return fail(error, context->errstr);
    enum status status = await(redis, context, &reply, error);
    if (status == STATUS_OK && reply->type == REDIS_REPLY_ERROR)
        status = fail(error, reply->str);
    freeReplyObject(reply);
    return status;
}

/* ---- connecting ---- */

static enum status open_context(struct redis *redis, redisContext **context,
                                const struct redis_url *url, char error[FANOUT_ERROR_BYTES_MAX]) {
    const struct timeval timeout = {.tv_sec = FANOUT_TIMEOUT_MS / 1000,
                                    .tv_usec = FANOUT_TIMEOUT_MS % 1000 * 1000};
    *context = redisConnectWithTimeout(url->host, url->port, timeout);
    if (!*context)
        return fail(error, "out of memory");
    if ((*context)->err)
        return fail(error, (*context)->errstr);
    if (redisSetTimeout(*context, timeout) != REDIS_OK)
        return fail(error, (*context)->errstr);
    enum status status = STATUS_OK;
    if (*url->user)
        status =
            command(redis, *context, 3, (const char *[]){"AUTH", url->user, url->password}, error);
    else if (*url->password)
        status = command(redis, *context, 2, (const char *[]){"AUTH", url->password}, error);
    return status;
}

static void redis_close(void *connection) {
    struct redis *redis = connection;
    if (redis->publisher)
        redisFree(redis->publisher);
    if (redis->subscriber)
        redisFree(redis->subscriber);
    free(redis);
}

static enum status redis_connect(void **connection, const struct fanout_port *port,
                                 char error[FANOUT_ERROR_BYTES_MAX]) {
    struct redis_url url;
    struct redis *redis = calloc(1, sizeof(*redis));
    if (!redis)
        return fail(error, "out of memory");
    redis->port = port;
    const char *wrong = redis_url_parse(port->url, &url);
    enum status status = wrong ? fail(error, wrong) : STATUS_OK;
    if (status == STATUS_OK)
        status = open_context(redis, &redis->publisher, &url, error);
    if (status == STATUS_OK)
        status = open_context(redis, &redis->subscriber, &url, error);
    if (status == STATUS_OK)
        status = command(redis, redis->subscriber, 2, (const char *[]){"SUBSCRIBE", port->channel},
                         error);
    explicit_bzero(&url, sizeof(url));
    if (status == STATUS_OK)
        *connection = redis;
    else
        redis_close(redis);
    return status;
}

static const char *redis_check_url(const char *text) {
    struct redis_url url;
    const char *wrong = redis_url_parse(text, &url);
    explicit_bzero(&url, sizeof(url));
    return wrong;
}

/* ---- the connection ---- */

static enum status redis_send(void *connection, struct slice text,
                              char error[FANOUT_ERROR_BYTES_MAX]) {
    struct redis *redis = connection;
    redisReply *reply = NULL;
    if (redisAppendCommand(redis->publisher, "PUBLISH %s %b", redis->port->channel, text.data,
                           text.size) != REDIS_OK)
        return fail(error, redis->publisher->errstr);
    enum status status = await(redis, redis->publisher, &reply, error);
    if (status == STATUS_OK && reply->type == REDIS_REPLY_ERROR)
        status = fail(error, reply->str);
    freeReplyObject(reply);
    return status;
}

static enum status redis_ping(void *connection, char error[FANOUT_ERROR_BYTES_MAX]) {
    struct redis *redis = connection;
    const char *ping[] = {"PING"};
    enum status status = command(redis, redis->publisher, 1, ping, error);
    return status == STATUS_OK ? command(redis, redis->subscriber, 1, ping, error) : status;
}

static enum status pass_all_on(struct redis *redis, char error[FANOUT_ERROR_BYTES_MAX]) {
    redisReply *reply = NULL;
    enum status status = receive(redis->subscriber, error);
    do {
        if (status == STATUS_OK)
            status = take_reply(redis->subscriber, &reply, error);
        if (status != STATUS_OK || !reply)
            return status;
        if (!pass_on(redis, reply) && reply->type == REDIS_REPLY_ERROR)
            status = fail(error, reply->str);
        freeReplyObject(reply);
    } while (status == STATUS_OK);
    return status;
}

static enum status redis_wait(void *connection, int timeout_ms,
                              char error[FANOUT_ERROR_BYTES_MAX]) {
    struct redis *redis = connection;
    struct pollfd wait[] = {{.fd = redis->port->wake_fd, .events = POLLIN},
                            {.fd = redis->subscriber->fd, .events = POLLIN},
                            {.fd = redis->publisher->fd, .events = POLLIN}};
    if (poll(wait, 3, timeout_ms) < 0)
        return errno == EINTR ? STATUS_OK : fail(error, strerror(errno));
    /* No answer is due there, so it can only be the end. */
    if (wait[2].revents)
        return fail(error, "the server closed the connection");
    return wait[1].revents ? pass_all_on(redis, error) : STATUS_OK;
}

const struct fanout_driver fanout_driver_redis = {
    .name = "redis",
    .check_url = redis_check_url,
    .connect = redis_connect,
    .send = redis_send,
    .ping = redis_ping,
    .wait = redis_wait,
    .close = redis_close,
};
