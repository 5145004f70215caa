/* File descriptors: how many the server needs, and how many the system allows. A process starts
 * with a low limit, which it may raise up to a hard limit.
 * Thread: the main thread, before other threads start.
 * Errors: none; the caller compares the limit in force with its need. */
#ifndef NET_DESCRIPTORS_H
#define NET_DESCRIPTORS_H

#include <stdint.h>

/* The descriptors for that many connections, with those of the store, the loops and the log. */
uint64_t descriptors_for(uint64_t connections);
/* How many connections the limit leaves room for, besides what is open now and a reserve for files
 * of the store. For one descriptor table. */
uint64_t descriptors_left(void);
/* How many descriptors of that reserve the answers of batches may use. */
uint64_t descriptors_for_answers(void);
/* Raises the limit to that many, if the system allows it. Returns the limit in force. */
uint64_t descriptors_raise(uint64_t wanted);

#endif
