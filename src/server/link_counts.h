/* What is counted and remembered of links: one call a decision, so that counters, log and ring
 * agree. Belongs to the link's loop. Allocates nothing. Cannot fail. Every link and every
 * subscription that is counted in is counted out. */
#ifndef SERVER_LINK_COUNTS_H
#define SERVER_LINK_COUNTS_H

#include "server/link.h"

void link_counts_opened(const struct link *link);
/* With the code it was closed with by the server. */
void link_counts_closed(const struct link *link);
void link_counts_joined(const struct link_reader *reader);
void link_counts_left(const struct link_reader *reader);
/* It begins to read, from its cursor or where its topic allows. */
void link_counts_started(const struct link_reader *reader);
/* It was served a page; is_limited: fairness cut it short. */
void link_counts_served(const struct link_reader *reader, const struct page *page, bool is_limited);
void link_counts_stale(const struct link_reader *reader);
void link_counts_strike(const struct link *link);
void link_counts_evicted(const struct link *link);

#endif
