/* What the events of a run may say of it: the types that the run summary folds, and the shape of
 * their members. run.started names title, tags and metadata by the same rules.
 * Thread: any.
 * Memory: members point into the payload.
 * Errors: STATUS_INVALID_REQUEST, or STATUS_PAYLOAD_TOO_LARGE for metadata that is too large or too
 * deep. The fault names the member.
 * Invariant: type and payload alone decide. An append refuses an event of another shape; a stored
 * or imported one is free, as all other types are, in every fold. */
#ifndef AUTHORITY_RUN_REPORT_H
#define AUTHORITY_RUN_REPORT_H

#include "base/buffer.h"
#include "wire/json.h"

#define RUN_TITLE_BYTES_MAX    256
#define RUN_TAGS_MAX           16
#define RUN_TAG_BYTES_MAX      64
#define RUN_METADATA_BYTES_MAX 16384
#define RUN_METADATA_DEPTH_MAX 16
#define RUN_STEP_ID_BYTES_MAX  128
#define RUN_NAME_BYTES_MAX     256 /* names of steps and of models */
#define RUN_WORD_BYTES_MAX     64  /* kinds and states of steps */
#define RUN_QUESTION_BYTES_MAX 1024

enum run_report_kind {
    RUN_REPORT_NONE, /* any other type */
    RUN_REPORT_UPDATED,
    RUN_REPORT_STEP_STARTED,
    RUN_REPORT_STEP_FINISHED,
    RUN_REPORT_WAITING,
    RUN_REPORT_RESUMED,
    RUN_REPORT_USAGE,
    RUN_REPORT_KIND_COUNT,
};

enum run_member {
    RUN_MEMBER_COST,
    RUN_MEMBER_ERROR,
    RUN_MEMBER_FOR,
    RUN_MEMBER_INPUT_TOKENS,
    RUN_MEMBER_KIND,
    RUN_MEMBER_METADATA_PATCH,
    RUN_MEMBER_MODEL,
    RUN_MEMBER_NAME,
    RUN_MEMBER_OUTPUT_TOKENS,
    RUN_MEMBER_PARENT_STEP_ID,
    RUN_MEMBER_QUESTION,
    RUN_MEMBER_STATUS,
    RUN_MEMBER_STEP_ID,
    RUN_MEMBER_TAGS,
    RUN_MEMBER_TITLE,
    RUN_MEMBER_COUNT,
};

struct run_report {
    enum run_report_kind kind;
    /* Members that the kind has not, or that are null, are absent. A null title or null tags are
     * there: they remove what the run has. */
    struct json_field members[RUN_MEMBER_COUNT];
};

struct run_fault {
    const char *member;
    const char *problem; /* static text behind the name of the member */
};

/* A payload is canonical JSON. STATUS_OK with RUN_REPORT_NONE for a free type. */
MUST_CHECK enum status run_report_read(struct slice type, struct slice payload,
                                       struct run_report *report, struct run_fault *fault);
/* One value by the rule of its member; canonical JSON, not null. */
MUST_CHECK enum status run_member_check(enum run_member member, struct json_value value,
                                        struct run_fault *fault);

/* Merges a patch into metadata (RFC 7386); base with data NULL: there is none. Metadata from before
 * the limit may be larger, and a patch may not let it grow: STATUS_PAYLOAD_TOO_LARGE, and out is
 * unchanged. */
MUST_CHECK enum status run_metadata_patch(struct slice base, struct slice patch,
                                          struct buffer *out);

#endif
