/* File descriptors: what the settings need, and what the system gives.
 * Main thread, before others start. Allocates nothing. Cannot fail: what is in force is the answer.
 * A process is usually given few at first and may ask for more, up to a hard limit. */
#ifndef IO_DESCRIPTORS_H
#define IO_DESCRIPTORS_H

#include <stdint.h>

/* For so many connections, beside the store's files, the loops and the log. */
uint64_t limits_descriptors_for(uint64_t connections);
/* Asks for so many; answers how many there may be now. */
uint64_t limits_descriptors_raise(uint64_t wanted);

#endif
