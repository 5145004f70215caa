/* Frames of stored rows. Only this module defines the content of a frame, so that a frame is the
 * same after its commit and after any later read. Any thread. A frame has copies of all texts, in a
 * room or in its own memory (room NULL).
 * STATUS_OUT_OF_MEMORY; STATUS_INTERNAL_ERROR for a stored document that is no JSON object.
 * The owner of a frame is the owner of the event if it has one, else the owner of its entity. */
#ifndef HUB_FRAME_ROW_H
#define HUB_FRAME_ROW_H

#include "hub/frame.h"
#include "topic/topic_name.h"

/* The owner of a frame of the event. It borrows the texts. */
struct owner frame_owner(const struct store_event *event, const struct owner *entity_owner);

/* The topic of a frame, and the version under which its events are projected now. A summary names
 * the version that it was stored with. */
struct frame_topic {
    struct slice name;
    struct slice projection_version;
};

/* An event on the topic of its entity, under the seq of the event. */
MUST_CHECK enum status frame_of_event(const struct frame_topic *topic,
                                      const struct store_event *event,
                                      const struct owner *entity_owner, struct frame_room *room,
                                      struct frame **frame);
/* A journal row: a summary, or the event itself if the row has no payload. */
MUST_CHECK enum status frame_of_row(const struct frame_topic *topic,
                                    const struct store_journal_row *row,
                                    const struct store_event *event,
                                    const struct owner *entity_owner, struct frame_room *room,
                                    struct frame **frame);
/* An event on the log. The payload is the whole event as JSON, and the key is "entity:id".
 * payload_hash is still the hash of the payload of the event. */
MUST_CHECK enum status frame_of_log(const struct store_event *event,
                                    const struct owner *entity_owner, struct frame_room *room,
                                    struct frame **frame);

#endif
