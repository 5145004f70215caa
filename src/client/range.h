/* Ranges, parts of snapshots and positions as the server or a storage writes them.
 * Thread: any.
 * Memory: frames and documents point into the message.
 * Errors: what is not well-formed is not valid; there are no other errors.
 * Invariant: the frames of a valid range ascend, do not overlap, and lie after its start and up to
 * its end. */
#ifndef CLIENT_RANGE_H
#define CLIENT_RANGE_H

#include "topic/position.h"
#include "wire/json.h"

#define STORED_POSITION_BYTES_MAX 128

struct range {
    bool is_valid;
    bool is_complete; /* the replay is; also set in a range that is not valid */
    bool has_ids;     /* of the event of each frame */
    struct topic_epoch epoch;
    uint64_t after;
    uint64_t through;
    struct json_value frames;
};

struct snapshot_part {
    bool is_valid;
    bool is_last; /* also set in a part that is not valid */
    bool has_number;
    struct position position;
    uint64_t number;
    struct json_value documents;
};

bool range_read_epoch(struct json_value value, struct topic_epoch *epoch);
bool range_read_seq(struct json_value value, uint64_t *seq);
/* A position of the server: a number, or a text N@EPOCH. The epoch is that of the member epoch, if
 * there is one, else that of the text. */
bool range_read_position(struct json_value value, struct json_value epoch,
                         struct position *position);
/* The events that a frame stands for: one, or several that are folded. */
struct frame_span {
    uint64_t first; /* 0: the frame is not well-formed */
    uint64_t seq;
    bool is_folded;
    bool has_id; /* of its event, or it needs none */
};

struct frame_span range_frame_span(struct json_value frame);
/* Also when one of them has the number 0 and the other has none. The server accepted a position
 * whose epoch is not known: it is of every epoch. */
bool range_is_same_epoch(const struct topic_epoch *a, const struct topic_epoch *b);
struct range range_read(struct json_value body);
/* An entry of a heartbeat: a range without frames. */
struct range range_read_covered(struct json_value body);
struct snapshot_part range_read_part(struct json_value body);

/* The text of a position in a storage: an object with seq and, if it is known, epoch; or N or
 * N@EPOCH, as the server hands out. */
bool stored_position_read(struct slice text, struct position *position);
size_t stored_position_write(const struct position *position, char text[STORED_POSITION_BYTES_MAX]);

#endif
