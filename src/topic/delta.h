/* Deltas: events that stream a text in pieces may be delivered as one. An event is foldable if its
 * type ends in ".delta" and its payload is an object with two texts, "id" and "delta". Events with
 * adjacent seqs, equal types and payloads that differ in the text of "delta" only become one event,
 * whose delta is the texts of all of them, one after the other.
 * Thread: any; pure functions.
 * Memory: a run points into the payload and the type of its first event.
 * Errors: none; an event that cannot be folded is delivered as it is.
 * Invariant: a run holds every event from from_seq to seq. The payloads are canonical JSON, so
 * equal members are equal bytes, and texts are joined as they are written. */
#ifndef TOPIC_DELTA_H
#define TOPIC_DELTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

struct delta_event {
    uint64_t from_seq; /* the first event that it stands for; seq, unless it was folded before */
    uint64_t seq;
    struct slice type;
    struct slice payload; /* canonical JSON; null if it was erased */
};

struct delta_run {
    uint64_t from_seq;
    uint64_t seq;
    struct slice type;
    struct slice before; /* of the payload: what stands before the text of "delta" */
    struct slice after;  /* and behind it */
    size_t bytes;        /* of the joined payload */
};

/* Begins a run with the event. False: it is not foldable. */
bool delta_run_begin(struct delta_run *run, const struct delta_event *event);
/* Adds the event that follows the run. False, and the run is as it was: it does not belong to the
 * run, or the joined payload would have more than bytes_max bytes. */
bool delta_run_add(struct delta_run *run, const struct delta_event *event, size_t bytes_max);
/* The text of "delta" in the payload of an event of the run, as it is written. The joined payload
 * is before, these texts and after. */
struct slice delta_run_text(const struct delta_run *run, struct slice payload);

#endif
