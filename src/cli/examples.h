/* What a person pastes to see a new server work: append an event, follow it, make a token.
 * Main thread only. Prints to standard output; memory is returned before it does.
 * Where something cannot be had, the examples that need it are left out.
 * Each line works by itself, in any folder, and again when it is pasted again. */
#ifndef CLI_EXAMPLES_H
#define CLI_EXAMPLES_H

#include "server/server.h"

struct examples {
    const struct server *server;
    const char *url;          /* of readers */
    const char *operator_url; /* of backends */
    const char *key;          /* the operator key, as a shell comes by it */
    const char *trust;        /* what curl needs to be told of the certificate; "" for nothing */
};

void examples_print(const struct examples *examples);

#endif
