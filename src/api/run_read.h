/* One run as clients may read it, for the routes that show it.
 * Thread: one of the store pool.
 * Memory: the read's.
 * Errors: the store's. */
#ifndef API_RUN_READ_H
#define API_RUN_READ_H

#include "http/store_read.h"

/* The run or worker of the route. A run of another owner is answered like one that does not exist.
 */
MUST_CHECK enum status run_load_entitled(struct store_read *read, struct store_session *store,
                                         struct store_entity *entity);
/* Writes the run with what its events say of it. A store without summaries has the first half only,
 * and one that is rebuilt for a new version may lack members until then. */
MUST_CHECK enum status run_write(struct store_read *read, struct store_session *store,
                                 const struct store_entity *entity);

#endif
