/* The topics file of the process (KHALA_TOPICS_FILE): read at the start and on SIGHUP, and put in
 * force as a whole.
 * Thread: main.
 * Memory: the text and the rules in force; those of before are freed when they are replaced.
 * Errors: STATUS_INVALID_CONFIG with a message that names file, line and reason.
 * Invariant: a file that is refused changes nothing. */
#ifndef SERVER_TOPICS_H
#define SERVER_TOPICS_H

#include "authority/writer.h"
#include "topic/policy.h"

struct topics {
    struct policy_table *table; /* NULL: not open */
    const char *path;
    uint64_t payload_bytes_max; /* 0: any; later files must keep to what the server started with */
};

struct topics_message {
    char text[1024];
};

/* path "": no file, and nothing to close. table and path outlive topics. */
MUST_CHECK enum status topics_open(struct topics *topics, struct policy_table *table,
                                   const char *path, struct topics_message *message);
/* is_changed: the file differs from the one before. */
MUST_CHECK enum status topics_reload(struct topics *topics, bool *is_changed,
                                     struct topics_message *message);
/* Records that the file was replaced (operator.topic_policies_changed); the hashes of both. Nodes
 * that read the same change record it once an hour; a node that is not the writer records nothing.
 */
void topics_record(struct writer *writer, const char *before, const char *after);
/* After the threads that use the table. */
void topics_close(struct topics *topics);

#endif
