/* Events as lines of a table, for people with spreadsheets and for loading into databases.
 * Any thread. Appends to the caller's buffer, all or nothing; allocates nothing else.
 * Errors: the buffer's own. The columns are the members of an event on the wire, in that order,
 * with the owner's members spread out; the
 * payload is its canonical JSON. No field holds a line's end, so a line is a record.
 * The same row gives the same bytes. */
#ifndef AUTHORITY_EVENT_CSV_H
#define AUTHORITY_EVENT_CSV_H

#include "base/buffer.h"
#include "store/store.h"

/* The names of the columns, with the line's end. */
#define EVENT_CSV_HEADER                                                                           \
    "event_id,cursor,entity,entity_id,seq,event_type,payload,payload_hash,owner_user_id,"          \
    "owner_guest_scope,org_id,recorded_at,prev_chain_hash,chain_hash,chain_version\r\n"

MUST_CHECK enum status event_write_csv(struct buffer *out, const struct store_event *event);

#endif
