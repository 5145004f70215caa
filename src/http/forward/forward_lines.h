/* The lines of a batch's answer on their way through a follower: each is the answer of one item.
 * Belongs to the exchange's loop.
 * Memory: none of its own.
 * Errors: none.
 * Only whole lines are passed on, unless one is very long. So when the writer is lost, the answer
 * can end with a line that names the first item of unknown outcome. */
#ifndef HTTP_FORWARD_FORWARD_LINES_H
#define HTTP_FORWARD_FORWARD_LINES_H

#include <stdint.h>

#include "base/slice.h"

struct forward_lines {
    bool is_array;       /* a JSON array; false: NDJSON */
    bool has_passed;     /* some bytes were passed on */
    bool is_inside;      /* the last byte that was passed on is inside a line */
    uint64_t next_index; /* of the first item whose answer was not passed on */
};

/* How many bytes of the text may be passed on: its whole lines, or all if it must go. */
size_t forward_lines_take(struct forward_lines *lines, struct slice text, bool must_go);

#endif
