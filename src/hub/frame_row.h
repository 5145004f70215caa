/* Frames of stored rows. Only this module defines the content of a frame, so that a frame is the
 * same after its commit and after any later read. Any thread. A frame has copies of all texts.
 * STATUS_OUT_OF_MEMORY.
 * The owner of a frame is the owner of the event if it has one, else the owner of its entity. */
#ifndef HUB_FRAME_ROW_H
#define HUB_FRAME_ROW_H

#include "hub/frame.h"
#include "topic/topic_name.h"

/* The owner of a frame of the event. It borrows the texts. */
struct owner frame_owner(const struct store_event *event, const struct owner *entity_owner);
/* An event on the topic of its entity, under the seq of the event. */
MUST_CHECK enum status frame_of_event(struct slice topic, const struct store_event *event,
                                      const struct owner *entity_owner, struct frame **frame);
/* A journal row: a summary, or the event itself if the row has no payload. */
MUST_CHECK enum status frame_of_row(struct slice topic, const struct store_journal_row *row,
                                    const struct store_event *event,
                                    const struct owner *entity_owner, struct frame **frame);
/* An event on the log. The payload is the whole event as JSON, and the key is "entity:id".
 * payload_hash is still the hash of the payload of the event. */
MUST_CHECK enum status frame_of_log(const struct store_event *event,
                                    const struct owner *entity_owner, struct frame **frame);

#endif
