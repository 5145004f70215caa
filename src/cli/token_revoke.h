/* khala token revoke: asks the server to take a session, a device or a token no more.
 * Main thread only. Texts are the command line's.
 * Prints what went wrong; answers an exit code.
 * At least one of session, device and token_id is given, or it is wrong usage. */
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
