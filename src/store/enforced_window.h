/* The window of a topic that cursors are compared with, from its row.
 * Any thread; a pure function over values.
 * Allocates nothing.
 * Cannot fail.
 * Every window that a cursor is judged by, or that clients see, is made here. */
#ifndef STORE_ENFORCED_WINDOW_H
#define STORE_ENFORCED_WINDOW_H

#include "store/store.h"
#include "topic/continuity.h"
#include "topic/policy.h"

/* On topics that begin in the log, oldest_seq is the floor of retention or the start of a
 * bootstrap, whichever is lower. So every position inside a bootstrap resumes. */
struct topic_window enforced_window(const struct store_topic *topic, const struct policy *policy);

#endif
