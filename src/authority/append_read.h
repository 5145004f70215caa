/* From a JSON object to a request of the authority: shapes are checked, texts decoded, the payload
 * made canonical and hashed. Every endpoint that appends uses it.
 * Thread: any; a parser belongs to one thread at a time.
 * Memory: a parser keeps its memory between calls. Texts of a request are copied into the caller's
 * arena (the group's), so the JSON may be freed afterwards.
 * Errors: STATUS_INVALID_REQUEST with a message that names the field; STATUS_INVALID_TOPIC; the
 * codes of JSON for duplicate keys and numbers out of range; STATUS_RESERVED_EVENT_TYPE;
 * STATUS_PAYLOAD_TOO_LARGE for metadata of a run; STATUS_OUT_OF_MEMORY if the arena is full.
 * Invariant: the request holds the status too, so that a refused request can be posted with the
 * others. */
#ifndef AUTHORITY_APPEND_READ_H
#define AUTHORITY_APPEND_READ_H

#include "authority/append.h"
#include "wire/canonical.h"

struct append_parser {
    struct canonical_scratch scratch;
    struct buffer text;
    const struct principal *producer; /* producer of the next requests; NULL: the operator */
    bool takes_reserved;              /* reads events of another log, which had these types */
    bool takes_any_shape;             /* reads such events, which may be older than a rule */
};

/* body_bytes_max: the largest JSON text that will be read. */
void append_parser_init(struct append_parser *parser, size_t body_bytes_max);
void append_parser_release(struct append_parser *parser);

/* The body of a single endpoint. id comes from the path (decoded, unchecked). It is absent (data
 * NULL) for creations, whose body may name it, and for audit and notifications. */
MUST_CHECK enum status append_read(struct append_parser *parser, enum append_kind kind,
                                   struct slice id, struct json_value body, struct arena *arena,
                                   struct append_request *request);
/* An item of a batch, which names its target: exactly one of run_id, worker_id, topic and
 * "audit": true. A worker's item with event_type is an event, with status a change of status, with
 * metadata_patch a heartbeat. An item for the topic runtime.notifications is a notification. */
MUST_CHECK enum status append_read_item(struct append_parser *parser, struct json_value item,
                                        struct arena *arena, struct append_request *request);
/* The hash that a client may send along with an event, as event_hash: SHA-256 over the canonical
 * JSON of the body without that member, in hexadecimal, with or without "sha256:" in front. It
 * covers unknown members too. STATUS_OK if it is absent or null, STATUS_INVALID_REQUEST if it is
 * malformed, STATUS_EVENT_HASH_MISMATCH if it is wrong. */
MUST_CHECK enum status append_check_hash(struct append_parser *parser, struct json_value body);
/* Refuses a request that could not be parsed. It keeps its position among the others. */
void append_refuse(struct append_request *request, enum status status, const char *message);

/* Only the server writes events of these types, operator.* and *.erased. A caller that could write
 * them could forge the record of what operators did, or of what was erased. */
bool append_type_is_reserved(struct slice type);

/* 1 to 256 bytes of UTF-8, no control characters, no white space at either end. */
bool append_id_valid(struct slice id);

#endif
