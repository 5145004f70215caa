/* Frames of stored rows: the one place that says what a frame of each kind of row holds, so that a
 * frame is the same whether it came with its commit or was read again years later.
 * Any thread. A frame has copies of everything.
 * STATUS_OUT_OF_MEMORY.
 * The owner is the event's own where it has one, else its entity's. */
#ifndef HUB_FRAME_ROW_H
#define HUB_FRAME_ROW_H

#include "hub/frame.h"
#include "topic/topic_name.h"

/* Whose a frame of the event is; the texts are theirs. */
struct owner frame_owner(const struct store_event *event, const struct owner *entity_owner);
/* An event on its own entity's topic: the topic's seq is the event's. */
MUST_CHECK enum status frame_of_event(struct slice topic, const struct store_event *event,
                                      const struct owner *entity_owner, struct frame **frame);
/* A journal row: a summary, or the event itself where the row has no payload. */
MUST_CHECK enum status frame_of_row(struct slice topic, const struct store_journal_row *row,
                                    const struct store_event *event,
                                    const struct owner *entity_owner, struct frame **frame);
/* An event on the log: the payload is all of the event, as lists of events show it, the key
 * "entity:id". payload_hash is of the event's own payload still. */
MUST_CHECK enum status frame_of_log(const struct store_event *event,
                                    const struct owner *entity_owner, struct frame **frame);

#endif
