/* SQLite's own page cache, without its search of all pages at the end of most transactions.
 * Thread: any; a cache belongs to one connection.
 * Memory: a few words for each cache, freed with it. Pages have SQLite's memory.
 * Errors: those of the cache inside: a page without memory is NULL.
 * Invariant: a page that is beyond the end of a database after its transaction is never in the
 * cache. */
#ifndef STORE_SQLITE_SQLITE_PAGE_CACHE_H
#define STORE_SQLITE_SQLITE_PAGE_CACHE_H

/* Before SQLite is used. A library that is in use already keeps its cache. */
void sqlite_page_cache_register(void);

#endif
