/* Asks the server for tokens with the operator's key, for a backend that issues them.
 * mint_make: any thread. The rest: the thread of the client's loop.
 * Owns the questions until their answer, which is their last call.
 * An answer has a token or an error; nothing is tried again, because the caller knows its key.
 * The key is sent to the server of the client only. */
#ifndef CLIENT_MINTER_H
#define CLIENT_MINTER_H

#include <khala/khala.h>

#include "client/client_error.h"
#include "client/inbox.h"
#include "client/net/http_call.h"

struct minter {
    uv_loop_t *loop;
    struct socket_holds *holds;
    const struct socket_target *target;
    const struct khala_options *options;
    struct list mints;
    void *user;
    void (*wait)(void *user, uint64_t at_ms);
};

struct mint {
    struct command command;
    struct list_node node;
    struct http_call *call;
    uint64_t until_ms;
    void *user;
    void (*answered)(void *user, const char *token, const struct khala_error *error);
    size_t body_size;
    char texts[]; /* the key, a NUL, the body */
};

/* NULL: no memory. */
struct mint *mint_make(const char *key, struct khala_text body);
/* Takes the question. */
void minter_ask(struct minter *minter, struct mint *mint);
void minter_tick(struct minter *minter);
/* Answers every question with "closed". */
void minter_stop(struct minter *minter);

#endif
