/* At the end of a transaction SQLite drops the pages beyond the end of the database. Its cache
 * knows the largest number that a page has had, and searches for such pages only where that number
 * is beyond the end. But when SQLite (from version 3.39.4 on) sorts the pages of a table or index,
 * one of them has the number of the page of locks for a moment. This page is at 1 GiB, and no
 * database uses it. So a smaller database was searched in nearly every commit: 8 000 pages, most of
 * them not in the processor's cache, a fifteenth of the writer's time for single appends to runs.
 *
 * This cache forwards everything to SQLite's, except for the searches that would find nothing. */
#include "store/sqlite/sqlite_page_cache.h"

#include <sqlite3.h>
#include <stdlib.h>

/* Where SQLite locks a file. */
#define LOCKS_OFFSET 0x40000000

struct page_cache {
    sqlite3_pcache *inside;
    unsigned locks_page; /* the number that no page of a database has */
    unsigned last_page;  /* no page in the cache has a larger number, except for locks_page */
};

static sqlite3_pcache_methods2 inside;

static struct page_cache *cache_of(sqlite3_pcache *cache) {
    return (struct page_cache *)cache;
}

static void note_page(struct page_cache *cache, unsigned number) {
    if (number > cache->last_page && number != cache->locks_page)
        cache->last_page = number;
}

static sqlite3_pcache *create(int page_bytes, int extra_bytes, int is_purgeable) {
    struct page_cache *cache = calloc(1, sizeof(*cache));
    if (!cache)
        return NULL;
    cache->locks_page = LOCKS_OFFSET / (unsigned)page_bytes + 1;
    cache->inside = inside.xCreate(page_bytes, extra_bytes, is_purgeable);
    if (!cache->inside) {
        free(cache);
        return NULL;
    }
    return (sqlite3_pcache *)cache;
}

static void set_size(sqlite3_pcache *cache, int page_max) {
    inside.xCachesize(cache_of(cache)->inside, page_max);
}

static int count_pages(sqlite3_pcache *cache) {
    return inside.xPagecount(cache_of(cache)->inside);
}

static sqlite3_pcache_page *fetch(sqlite3_pcache *cache, unsigned number, int is_created) {
    sqlite3_pcache_page *page = inside.xFetch(cache_of(cache)->inside, number, is_created);
    if (page)
        note_page(cache_of(cache), number);
    return page;
}

static void unpin(sqlite3_pcache *cache, sqlite3_pcache_page *page, int is_discarded) {
    inside.xUnpin(cache_of(cache)->inside, page, is_discarded);
}

static void renumber(sqlite3_pcache *cache, sqlite3_pcache_page *page, unsigned before,
                     unsigned number) {
    inside.xRekey(cache_of(cache)->inside, page, before, number);
    note_page(cache_of(cache), number);
}

static void drop_from(sqlite3_pcache *base, unsigned number) {
    struct page_cache *cache = cache_of(base);
    if (number > cache->last_page)
        return;
    inside.xTruncate(cache->inside, number);
    cache->last_page = number > 0 ? number - 1 : 0;
}

static void destroy(sqlite3_pcache *cache) {
    inside.xDestroy(cache_of(cache)->inside);
    free(cache_of(cache));
}

static void shrink(sqlite3_pcache *cache) {
    inside.xShrink(cache_of(cache)->inside);
}

void sqlite_page_cache_register(void) {
    sqlite3_pcache_methods2 found;
    if (sqlite3_config(SQLITE_CONFIG_GETPCACHE2, &found) != SQLITE_OK || found.xCreate == create)
        return;
    inside = found;
    sqlite3_pcache_methods2 methods = {
        .iVersion = 1,
        .pArg = inside.pArg,
        .xInit = inside.xInit,
        .xShutdown = inside.xShutdown,
        .xCreate = create,
        .xCachesize = set_size,
        .xPagecount = count_pages,
        .xFetch = fetch,
        .xUnpin = unpin,
        .xRekey = renumber,
        .xTruncate = drop_from,
        .xDestroy = destroy,
        .xShrink = shrink,
    };
    (void)sqlite3_config(SQLITE_CONFIG_PCACHE2, &methods);
}
