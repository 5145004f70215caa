/* The numbers of base/metrics in Prometheus' text format, version 0.0.4.
 * Any thread. Written into the caller's buffer.
 * Errors: the buffer's own.
 * A histogram's buckets add up to its count whatever was counted meanwhile: all is written from one
 * reading. */
#ifndef API_EXPOSITION_H
#define API_EXPOSITION_H

#include "base/buffer.h"
#include "spec/metrics.h"

#define EXPOSITION_TYPE "text/plain; version=0.0.4; charset=utf-8"

MUST_CHECK enum status exposition_write(struct buffer *out,
                                        const uint64_t numbers[METRIC_SLOT_COUNT]);

#endif
