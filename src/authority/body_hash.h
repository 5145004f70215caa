/* The hash a client may send along with an event: SHA-256 over the canonical JSON of the body
 * without the hash itself, in hexadecimal, with or without "sha256:" in front.
 * Any thread; uses the parser's memory, which is free again afterwards.
 * STATUS_INVALID_REQUEST for a malformed hash, STATUS_EVENT_HASH_MISMATCH for a wrong one. A body
 * without a canonical form gets the code of that error.
 * The hash covers every member of the body, also unknown members. */
#ifndef AUTHORITY_BODY_HASH_H
#define AUTHORITY_BODY_HASH_H

#include "authority/append_read.h"

/* Absent, or null, is well. */
MUST_CHECK enum status body_hash_check(struct append_parser *parser, struct json_value body);

#endif
