/* The checks of `khala doctor`: each reports its findings and advice.
 * Thread: main.
 * Memory: nothing is kept after a check.
 * Errors: none; an obstacle is a finding.
 * Invariant: no check changes anything. */
#ifndef CLI_DOCTOR_DOCTOR_H
#define CLI_DOCTOR_DOCTOR_H

#include <sys/types.h>

#include "cli/remote.h"
#include "server/config.h"

/* A warning may become a problem. FINDING_WRONG is a problem and makes the exit code "no". */
enum finding { FINDING_OK, FINDING_WARNING, FINDING_WRONG };

struct doctor {
    struct config config;
    struct remote_options remote;
    bool json;
    /* For the checks of the store. */
    struct store *store;
    struct store_session *session;
    uint64_t now_ms;
    bool is_log_readable;
    const char *check; /* the running check */
    uint64_t finding_count;
    uint64_t wrong_count;
    bool has_folder;
    pid_t server_pid;                        /* the process that holds the store; 0: none */
    char topics_hash[TOPIC_RULES_HASH_SIZE]; /* of the topics file here; "": none */
    bool is_stopped;                         /* the server refuses appends with disk_reserve */
};

/* advice is NULL when there is nothing to do. */
void doctor_say(struct doctor *doctor, enum finding finding, const char *advice, const char *format,
                ...) __attribute__((format(printf, 4, 5)));

/* doctor.c: the settings, and the keys they name. */
void doctor_check_settings(struct doctor *doctor);
void doctor_check_topics(struct doctor *doctor);
void doctor_check_keys(struct doctor *doctor);
/* doctor_host.c: the machine and the process. */
void doctor_check_tls(struct doctor *doctor);
void doctor_check_folder(struct doctor *doctor);
void doctor_check_files(struct doctor *doctor);
void doctor_check_server(struct doctor *doctor);
void doctor_check_descriptors(struct doctor *doctor);
void doctor_check_limits(struct doctor *doctor);
void doctor_check_disk(struct doctor *doctor);
/* doctor_store.c: schema, pages, chains, the clock of the events, and sinks. */
void doctor_check_store(struct doctor *doctor);

#endif
