/* Variables of the environment that look like settings and are none: slips that would otherwise
 * have no effect and no word.
 * Main thread, before others start. Owns nothing.
 * Cannot fail: a name too long to be a setting's is not looked at.
 * What others put there is left alone: a Service named khala in Kubernetes gives every container
 * KHALA_SERVICE_HOST, KHALA_PORT and more. */
#ifndef SERVER_CONFIG_UNKNOWN_H
#define SERVER_CONFIG_UNKNOWN_H

#include <stddef.h>

#include "server/config_file.h"

/* A variable that verbs read and the server does not. */
struct config_variable {
    const char *name;
    const char *help;
};

/* Ends with a row whose name is NULL. */
extern const struct config_variable config_verb_variables[];

/* nearest is the one that may have been meant; NULL: none is like it. */
typedef void config_unknown_cb(void *user, const char *name, const char *nearest);

/* environment is as in environ(7): "NAME=value" texts behind each other, then NULL. */
void config_unknown_each(char *const *environment, void *user, config_unknown_cb *on_unknown);
/* Every key of a file must be a setting, or a variable of the verbs: STATUS_INVALID_CONFIG. */
MUST_CHECK enum status config_unknown_refuse(const struct config_file *file,
                                             struct config_error *error);

#endif
