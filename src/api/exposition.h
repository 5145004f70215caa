/* The metrics of base/metrics in Prometheus' text format, version 0.0.4.
 * Any thread.
 * Memory: the text is appended to the caller's buffer.
 * Errors: those of the buffer.
 * A histogram's buckets add up to its count, because all lines are written from one reading. */
#ifndef API_EXPOSITION_H
#define API_EXPOSITION_H

#include "base/buffer.h"
#include "spec/metrics.h"

#define EXPOSITION_TYPE "text/plain; version=0.0.4; charset=utf-8"

MUST_CHECK enum status exposition_write(struct buffer *out,
                                        const uint64_t numbers[METRIC_SLOT_COUNT]);

#endif
