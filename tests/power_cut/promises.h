/* The promises that programs have made, and the judgement whether a folder keeps them after a cut.
 * A mark of the driver is one line of text, written as soon as an acknowledgement has arrived:
 *
 *     store FOLDER LOG      the store in FOLDER, whose log is the beginning of the file LOG
 *     events COUNT          it has at least so many events
 *     acked EVENT_ID        it has this event
 *     revoked ID            this revocation is in force
 *     used JTI              this token was used
 *     key NAME              this operator key is valid
 *     replacing LOG COUNT   from now on either log is right; the new one has so many events
 *     replaced              only the new one is
 *     kept PATH             from now on the file has this content, or a newer one as a whole
 *     line PATH ID          the outbox of libkhala has this event
 *     row PATH ID           the outbox of Python has this event
 *     answered PATH ID      the outbox may forget this event
 *
 * Thread: one.
 * Memory: of the process.
 * Errors: a mark that is not understood ends the process. */
#ifndef POWER_CUT_PROMISES_H
#define POWER_CUT_PROMISES_H

#include "disk.h"

struct promises;

struct promises *promises_new(void);
/* After each record that the disk has applied. */
void promises_note(struct promises *promises, const struct disk *disk,
                   const struct trace_head *head);

/* Opens the files in the folder as the programs would, and compares. False: a promise is broken,
 * and the reason was printed. */
bool promises_hold(const struct promises *promises, const char *folder);

/* Writes the log of a store for the mark "store". */
bool promises_print_log(const char *folder);

#endif
