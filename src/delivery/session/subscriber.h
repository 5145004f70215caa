/* The subscribers of a session: their states and their lives, and the snapshot that one may begin
 * with, which is waited for, then read part by part, then left for the frames behind it.
 * Thread: the session's loop, except subscriber_snapshot_read, which runs on the store pool.
 * Memory: one block each, freed by subscriber_drop, or when its read is back. A snapshot has
 * another, with the documents of one part; it outlives its subscriber while it is waited for.
 * Errors: STATUS_OUT_OF_MEMORY for a subscriber that cannot be made. A snapshot that cannot be had
 * is SUBSCRIBER_SNAPSHOT_FAILED, with its status.
 * Invariant: a subscriber that has something to send has a turn in the scheduler. Parts come in
 * order, and the frames begin behind the watermark of the very snapshot. */
#ifndef DELIVERY_SESSION_SUBSCRIBER_H
#define DELIVERY_SESSION_SUBSCRIBER_H

#include "delivery/session/session.h"
#include "delivery/snapshot/snapshots.h"

/* ---- the snapshot that it begins with ---- */

enum subscriber_snapshot_state {
    SUBSCRIBER_SNAPSHOT_WAITING, /* for the snapshot to be built */
    SUBSCRIBER_SNAPSHOT_READY,   /* the next part may be asked for */
    SUBSCRIBER_SNAPSHOT_READING, /* a part is asked for or under way */
    SUBSCRIBER_SNAPSHOT_PART,    /* the documents of a part are here */
    SUBSCRIBER_SNAPSHOT_FAILED,  /* see status */
};

struct subscriber_snapshot {
    struct snapshot_wait wait;
    struct subscriber *subscriber; /* NULL: the subscriber is gone */
    struct snapshot *snapshot;
    enum subscriber_snapshot_state state;
    enum status status;
    size_t part; /* the next to be read */
    size_t parts_sent;
    const struct principal *principal; /* for the read under way */
    struct selection *selection;       /* the subscription's; NULL: all documents */
    struct buffer documents;
    size_t document_count; /* in documents */
};

/* STATUS_OUT_OF_MEMORY, or it waits; then the subscriber gets a turn. */
MUST_CHECK enum status subscriber_snapshot_begin(struct subscriber *subscriber,
                                                 enum policy_row row);
/* Not while a part is being read. A subscriber without a snapshot is left alone. */
void subscriber_snapshot_drop(struct subscriber *subscriber);
/* Asks for the next part. */
void subscriber_snapshot_ask(struct subscriber_snapshot *snapshot);
/* A part that was asked for is not wanted any more; not when its read is under way. */
void subscriber_snapshot_cancel(struct subscriber_snapshot *snapshot);
/* Around the read of a part, for the principal as it is now. status: whether it was run. */
void subscriber_snapshot_read_begin(struct subscriber_snapshot *snapshot,
                                    const struct principal *principal);
void subscriber_snapshot_read(struct subscriber_snapshot *snapshot);
void subscriber_snapshot_read_end(struct subscriber_snapshot *snapshot, enum status status);
/* The part was sent. */
void subscriber_snapshot_next(struct subscriber_snapshot *snapshot);
bool subscriber_snapshot_is_reading(const struct subscriber_snapshot *snapshot);
bool subscriber_snapshot_is_last(const struct subscriber_snapshot *snapshot);
/* {"topic","format","schema_version","epoch","watermark","part","last","documents":[…]} of the part
 * that is here. */
enum status subscriber_snapshot_write(const struct subscriber_snapshot *snapshot,
                                      struct buffer *out);

/* ---- lives ---- */

/* Makes a subscriber, which is not started yet. principal, watch, topic and policy of the options
 * are filled in. */
MUST_CHECK enum status subscriber_new(struct session *session, struct slice topic,
                                      const struct subscription_options *options,
                                      struct subscriber **subscriber);
void subscriber_drop(struct subscriber *subscriber);
/* Drops all subscribers of the session. */
void subscriber_drop_all(struct session *session);
/* Subscribers were dropped: they do not count for the principal any more. */
void subscribers_dropped(struct session *session);
/* From now on it is sent frames. */
void subscriber_start(struct subscriber *subscriber);
/* Stale: starts again with a bootstrap. */
void subscriber_restart(struct subscriber *subscriber);
/* There may be something to send: gives it a turn. */
void subscriber_ready(struct subscriber *subscriber);
/* At its turn: whether it was served less than conflate_ms ago. Then it gets a turn in time. */
MUST_CHECK bool subscriber_must_wait(struct subscriber *subscriber);
void subscriber_conflate_expired(struct deadline *deadline);
/* Its read, part or opening is back. status: whether it was run. May free the subscriber. */
void subscriber_read_back(struct subscriber *subscriber, enum status status);
/* The frames read ahead are back. May free the subscriber. */
void subscriber_ahead_back(struct subscriber *subscriber);

/* The started subscriber with the most frames to come, or NULL. */
const struct subscriber *session_furthest_behind(const struct session *session);

/* Started, and not leaving. */
bool subscriber_is_started(const struct subscriber *subscriber);
/* False before the whole snapshot that it begins with was sent. */
bool subscriber_has_position(const struct subscriber *subscriber);
/* The client was sent every frame that it may see up to here. */
uint64_t subscriber_position(const struct subscriber *subscriber);
/* A read or part is asked for or under way. */
bool subscriber_is_reading(const struct subscriber *subscriber);
/* A read or part is asked for, and waits for the session's job. */
bool subscriber_wants_job(const struct subscriber *subscriber);
/* One of the legal edges; any other asserts. */
void subscriber_set_state(struct subscriber *subscriber, enum subscriber_state state);

#endif
