/* A driver: a connection to a server that passes texts between nodes, as a table of functions.
 * Thread: the one that connected; the functions of the port may be called by others.
 * Memory: connect makes the connection, close frees it; after close the port is not used again.
 * Errors: any status but STATUS_OK ends the connection: the caller closes it and connects again.
 * error gets the reason, for people, without the URL and its password.
 * Invariant: every wait for an answer ends within FANOUT_TIMEOUT_MS, so that a server that hangs
 * does not hold up the end of a node. The resolver of host names has limits of its own. */
#ifndef CLUSTER_DRIVER_H
#define CLUSTER_DRIVER_H

#include "base/slice.h"
#include "spec/codes.h"

#define FANOUT_ERROR_BYTES_MAX 256
#define FANOUT_TIMEOUT_MS      2000

/* The side of a node. */
struct fanout_port {
    const char *url;
    const char *channel; /* letters, digits and dots */
    int wake_fd;         /* readable: wait must return */
    void *user;
    /* A text of the channel, of any size and content. Any thread. */
    void (*on_text)(void *user, struct slice text);
    /* Texts of the channel were dropped, because they came too fast. Any thread. */
    void (*on_loss)(void *user);
    /* Makes wake_fd readable. Any thread. */
    void (*wake)(void *user);
};

struct fanout_driver {
    const char *name;
    /* NULL, or the reason, for people, why no server can have that URL. */
    const char *(*check_url)(const char *url);
    /* Connects and subscribes to the channel. The port outlives the connection. */
    enum status (*connect)(void **connection, const struct fanout_port *port,
                           char error[FANOUT_ERROR_BYTES_MAX]);
    /* STATUS_OK: the server has the text. */
    enum status (*send)(void *connection, struct slice text, char error[FANOUT_ERROR_BYTES_MAX]);
    /* STATUS_OK: the server answers. */
    enum status (*ping)(void *connection, char error[FANOUT_ERROR_BYTES_MAX]);
    /* Passes texts on until wake_fd can be read or the time is over. Returns early at any time. */
    enum status (*wait)(void *connection, int timeout_ms, char error[FANOUT_ERROR_BYTES_MAX]);
    void (*close)(void *connection);
};

extern const struct fanout_driver fanout_driver_nats;
extern const struct fanout_driver fanout_driver_postgres;
extern const struct fanout_driver fanout_driver_redis;

#define REDIS_URL_PART_MAX 256

/* redis://[[USER]:PASSWORD@]HOST[:PORT]. USER and PASSWORD may contain %XX. A database number is
 * refused: channels have none. */
struct redis_url {
    char host[REDIS_URL_PART_MAX];
    int port;
    char user[REDIS_URL_PART_MAX];     /* empty: the default user */
    char password[REDIS_URL_PART_MAX]; /* empty: none */
};

/* NULL, or the reason, for people, without any part of the URL. */
const char *redis_url_parse(const char *text, struct redis_url *url);

#endif
