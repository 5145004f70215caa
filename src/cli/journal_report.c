#include "cli/journal_report.h"

#include <stdio.h>

#include "wire/json.h"

#define TEXT_BYTES_MAX 65536

static void print_damage(void *user, const struct journal_damage *damage) {
    struct journal_report *report = user;
    struct buffer topic;
    if (!report->json) {
        printf("damaged: %.*s watermark %llu: %s\n", (int)damage->topic.size, damage->topic.data,
               (unsigned long long)damage->seq, damage->message);
        return;
    }
    buffer_init(&topic, TEXT_BYTES_MAX);
    if (json_write_string(&topic, damage->topic) == STATUS_OK)
        printf("%s{\"topic\":%.*s,\"watermark\":%llu,\"message\":\"%s\"}",
               report->result.damages > 1 ? "," : "", (int)topic.size, topic.data,
               (unsigned long long)damage->seq, damage->message);
    buffer_release(&topic);
}

enum status journal_report_run(struct journal_report *report, struct store_session *session) {
    const struct journal_check_options options = {report, print_damage};
    if (report->json)
        printf(",\"journal\":[");
    enum status status = journal_check(session, &options, &report->result);
    if (report->json)
        printf("],\"journal_rows\":%llu", (unsigned long long)report->result.rows);
    else if (report->result.damages == 0 && status == STATUS_OK)
        printf("%llu journal rows of %llu topics: no hole, no stray and no altered row\n",
               (unsigned long long)report->result.rows, (unsigned long long)report->result.topics);
    else if (status == STATUS_OK)
        printf("%s\n", JOURNAL_ADVICE);
    return status;
}
