/* A topics file (KHALA_TOPICS_FILE): one rule a line, a pattern and KEY=VALUE words:
 *
 *     chat:*         replay_budget_events=50000 publish_rate_per_second=200 class=chat
 *     tenant:*:feed  qos_tier=hot retention_seconds=604800
 *     run:*          publish_rate_per_second=5000
 *
 * Thread: any.
 * Memory: the rules point into the text.
 * Errors: STATUS_INVALID_CONFIG with the line and the reason; the rules are then not usable.
 * Invariant: a text is read whole or refused whole. */
#ifndef TOPIC_TOPICS_FILE_H
#define TOPIC_TOPICS_FILE_H

#include "spec/codes.h"
#include "topic/topic_rules.h"

struct topics_file_error {
    unsigned line;
    char text[360];
};

/* payload_bytes_max: the largest max_payload_bytes that the server has room for; 0: any that a
 * setting may have. */
MUST_CHECK enum status topics_file_parse(struct topic_rules *rules, struct slice text,
                                         uint64_t payload_bytes_max,
                                         struct topics_file_error *error);

#endif
