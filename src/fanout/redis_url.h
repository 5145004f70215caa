/* The URL of a Redis server: redis://[[USER]:PASSWORD@]HOST[:PORT].
 * Any thread.
 * Memory: the caller's struct, which then holds the password.
 * Errors: a reason for people, without any part of the URL.
 * USER and PASSWORD may contain %XX. A database number is refused: channels have none. */
#ifndef FANOUT_REDIS_URL_H
#define FANOUT_REDIS_URL_H

#define REDIS_URL_PART_MAX 256

struct redis_url {
    char host[REDIS_URL_PART_MAX];
    int port;
    char user[REDIS_URL_PART_MAX];     /* empty: the default user */
    char password[REDIS_URL_PART_MAX]; /* empty: none */
};

/* NULL, or the reason. */
const char *redis_url_parse(const char *text, struct redis_url *url);

#endif
