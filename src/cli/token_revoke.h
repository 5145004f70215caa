/* khala token revoke: asks the server to reject a session, a device or a token from now on.
 * Main thread only. Texts belong to the command line.
 * Prints its error and returns an exit code.
 * Without any of session, device and token_id it prints the usage. */
#ifndef CLI_TOKEN_REVOKE_H
#define CLI_TOKEN_REVOKE_H

#include "cli/remote.h"

struct token_revocation {
    struct remote_options remote;
    const char *session;
    const char *device;
    const char *token_id;
    const char *reason;
    bool json;
};

MUST_CHECK int token_revoke(const struct token_revocation *options);

#endif
