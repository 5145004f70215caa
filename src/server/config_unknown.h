/* Unknown settings: variables of the environment that look like settings but have no effect, such
 * as misspelled names. Main thread, before other threads start. Memory: none. Errors: none; a name
 * longer than any setting's is ignored. Variables of other programs are ignored: Kubernetes gives
 * every container KHALA_SERVICE_HOST, KHALA_PORT and more if there is a Service named khala. */
#ifndef SERVER_CONFIG_UNKNOWN_H
#define SERVER_CONFIG_UNKNOWN_H

#include <stddef.h>

#include "server/config_file.h"

/* A variable that verbs of the command line read, and the server does not. */
struct config_variable {
    const char *name;
    const char *help;
};

/* Ends with a row whose name is NULL. */
extern const struct config_variable config_verb_variables[];

/* nearest: the known name that is most similar; NULL: no name is similar. */
typedef void config_unknown_cb(void *user, const char *name, const char *nearest);

/* environment is as in environ(7): "NAME=value" texts behind each other, then NULL. */
void config_unknown_each(char *const *environment, void *user, config_unknown_cb *on_unknown);
/* Every key of a file must be a setting, or a variable of the verbs: STATUS_INVALID_CONFIG. */
MUST_CHECK enum status config_unknown_refuse(const struct config_file *file,
                                             struct config_error *error);

#endif
