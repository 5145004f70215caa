/* Commands to paste that show a new server at work: append an event, follow it, make a token.
 * Main thread only. Prints to standard output; frees its memory.
 * An example whose input is not available is left out.
 * Each line works by itself, in any folder, and again when it is pasted again. */
#ifndef CLI_EXAMPLES_H
#define CLI_EXAMPLES_H

#include "server/server.h"

#define EXAMPLES_TOPIC "demo"

struct examples {
    const struct server *server;
    const char *url;          /* of readers */
    const char *operator_url; /* of backends */
    const char *key;          /* shell text that expands to the operator key */
    const char *trust;        /* options of curl for the certificate; "" for none */
    const char *token;        /* shell text that expands to a token for the topic */
};

void examples_print(const struct examples *examples);

#endif
