/* From a JSON object to a request of the authority: shapes are checked, texts decoded, the payload
 * made canonical and hashed. Every endpoint that appends uses it.
 * Any thread; a parser belongs to one thread at a time and keeps its memory between calls. Texts of
 * a request are copied into the caller's arena (the group's), so the JSON may be freed afterwards.
 * STATUS_INVALID_REQUEST with a message that names the field; STATUS_INVALID_TOPIC; duplicate keys
 * and numbers out of range of a payload by their own codes; STATUS_RESERVED_EVENT_TYPE;
 * STATUS_OUT_OF_MEMORY, arena full.
 * The request holds the status too, so that a refused request can be posted with the others. */
#ifndef AUTHORITY_APPEND_READ_H
#define AUTHORITY_APPEND_READ_H

#include "authority/append.h"
#include "wire/canonical.h"

struct append_parser {
    struct canonical_scratch scratch;
    struct buffer text;
    const struct principal *producer; /* of the requests that are read next; NULL: the operator */
    bool takes_reserved;              /* reads events of another log, which had these types */
};

/* body_bytes_max: the largest JSON text that will be read. */
void append_parser_init(struct append_parser *parser, size_t body_bytes_max);
void append_parser_release(struct append_parser *parser);

/* The body of a single endpoint. id comes from the path (decoded, unchecked); absent, which is
 * data NULL, at a creation, where the body may name it; and for audit and notifications. */
MUST_CHECK enum status append_read(struct append_parser *parser, enum append_kind kind,
                                   struct slice id, struct json_value body, struct arena *arena,
                                   struct append_request *request);
/* An item of a batch, which names its target: exactly one of run_id, worker_id, topic and
 * "audit": true. A worker's item with event_type is an event, with status a change of status, with
 * metadata_patch a heartbeat. The topic runtime.notifications takes notifications. */
MUST_CHECK enum status append_read_item(struct append_parser *parser, struct json_value item,
                                        struct arena *arena, struct append_request *request);
/* Refuses a request that could not be parsed. It keeps its position among the others. */
void append_refuse(struct append_request *request, enum status status, const char *message);

/* Only the server writes events of these types, operator.* and *.erased. A caller that could write
 * them could forge the record of what operators did, or of what was erased. */
bool append_type_is_reserved(struct slice type);

/* 1 to 256 bytes of UTF-8, no control characters, no white space at either end. */
bool append_id_valid(struct slice id);

#endif
