/* What `khala doctor` looks at: each check says what it found and what to do about it.
 * Main thread only. Allocates nothing that outlives a check.
 * A check cannot fail: what keeps it from looking is a finding.
 * Nothing is changed by looking. */
#ifndef CLI_DOCTOR_DOCTOR_H
#define CLI_DOCTOR_DOCTOR_H

#include <sys/types.h>

#include "cli/remote.h"
#include "server/config.h"

/* A warning is what may come to harm; what is wrong makes the answer no. */
enum finding { FINDING_OK, FINDING_WARNING, FINDING_WRONG };

struct doctor {
    struct config config;
    struct remote_options remote;
    bool json;
    const char *check; /* the one under way */
    uint64_t finding_count;
    uint64_t wrong_count;
    bool has_folder;
    pid_t server_pid; /* who holds the store; 0: nobody */
};

/* advice is NULL where there is nothing to do. */
void doctor_say(struct doctor *doctor, enum finding finding, const char *advice, const char *format,
                ...) __attribute__((format(printf, 4, 5)));

/* doctor_settings.c: what was set, and the keys it names. */
void doctor_check_settings(struct doctor *doctor);
void doctor_check_keys(struct doctor *doctor);
/* doctor_host.c: the machine and the process. */
void doctor_check_tls(struct doctor *doctor);
void doctor_check_folder(struct doctor *doctor);
void doctor_check_files(struct doctor *doctor);
void doctor_check_server(struct doctor *doctor);
void doctor_check_descriptors(struct doctor *doctor);
void doctor_check_limits(struct doctor *doctor);
void doctor_check_disk(struct doctor *doctor);
/* doctor_store.c: schema, pages, chains and the clock of the events. */
void doctor_check_store(struct doctor *doctor);

#endif
