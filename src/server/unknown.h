/* Names that mean nothing to khala: the known name closest to a misspelled one, and settings in the
 * environment or in a file that do not exist.
 * Thread: any for the nearest name; for settings main, before other threads start.
 * Memory: nothing is allocated; of a name at most NEAREST_BYTES_MAX bytes are compared.
 * Errors: none, except that a file with an unknown key is refused.
 * Invariant: names of the same words in another order are close, and only an equal name has
 * distance 0. Variables of other programs are ignored: Kubernetes gives every container
 * KHALA_SERVICE_HOST, KHALA_PORT and more if there is a Service named khala. */
#ifndef SERVER_UNKNOWN_H
#define SERVER_UNKNOWN_H

#include <stddef.h>

#include "server/config_file.h"

#define NEAREST_BYTES_MAX 96

/* The nearest so far; starts zeroed, with the name that was written. */
struct nearest {
    const char *written;
    const char *name; /* NULL: no name is close */
    size_t distance;
};

/* Considers another name, which must outlive the result. */
void nearest_try(struct nearest *nearest, const char *name);

/* A variable that verbs of the command line read, and the server does not. */
struct config_variable {
    const char *name;
    const char *help;
};

/* Ends with a row whose name is NULL. */
extern const struct config_variable config_verb_variables[];

/* nearest: the known name that is most similar; NULL: no name is similar. */
typedef void config_unknown_cb(void *user, const char *name, const char *nearest);

/* environment is as in environ(7): "NAME=value" texts behind each other, then NULL. A name longer
 * than any setting's is ignored. */
void config_unknown_each(char *const *environment, void *user, config_unknown_cb *on_unknown);
/* Every key of a file must be a setting, or a variable of the verbs: STATUS_INVALID_CONFIG. */
MUST_CHECK enum status config_unknown_refuse(const struct config_file *file,
                                             struct config_error *error);

#endif
