/* The disk reserve: a full disk refuses appends, and nothing else.
 *
 * Half of the reserve is free space, the line. Appends stop where a commit would leave less of it.
 * The file system is asked once a second, and when half of the room that it showed has been used
 * up; between two measurements the commits of appends are counted, and limited to that room
 * (sqlite_gather_limit). The other half is the file khala.reserve. It also helps where other
 * programs have used up the whole disk, or where a quota applies that the file system does not
 * show: work that may use the reserve gets it back in pieces, and is repeated.
 *
 * Room is what is free, less what a checkpoint will add to the database. A page that is written is
 * in the write-ahead log first and in the database later, so it counts twice, unless the database
 * has a free page for it. The log alone may also use half of the line: where pruning has freed
 * pages, appends go on although the files cannot grow.
 *
 * The log is written back before it is longer than the file, so the file is enough for a checkpoint
 * whatever other programs use up meanwhile. At the line the log is truncated, and appends stop if
 * that does not make room. While they are stopped each checkpoint is early, so that the log of
 * other work stays short.
 *
 * The file has no content. A process that ends at any moment leaves a file of some size, and the
 * next one fills it up again. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "store/sqlite/sqlite.h"
#include "store/sqlite/sqlite_gather.h"

#define CHECK_MS          1000
#define PAGE_BYTES        4096
#define STOPPED_WAL_PAGES 256
#define SMALL_WAL_PAGES   1024
/* The first piece of the file that is given back; the next ones are larger, each twice. */
#define PIECE_BYTES (64 << 10)
/* The space of a file system that does not count its blocks. */
#define UNCOUNTED_BYTES (UINT64_C(1) << 50)

static bool is_on(const struct sqlite_reserve *reserve) {
    return reserve->wanted_bytes > 0;
}

static bool is_stopped(const struct sqlite_reserve *reserve) {
    return atomic_load_explicit(&reserve->is_stopped, memory_order_relaxed);
}

static uint64_t line_of(const struct sqlite_reserve *reserve) {
    return atomic_load_explicit(&reserve->line_bytes, memory_order_relaxed);
}

/* Appends begin again only with so much room, and stop with less. */
static int64_t least_room(const struct sqlite_reserve *reserve) {
    return (int64_t)(line_of(reserve) / 8);
}

/* ---- the file -------------------------------------------------------------------------------- */

static uint64_t held_bytes(const struct sqlite_reserve *reserve) {
    struct stat found;
    return reserve->fd >= 0 && fstat(reserve->fd, &found) == 0 ? (uint64_t)found.st_size : 0;
}

static void note_held(struct sqlite_reserve *reserve) {
    uint64_t bytes = held_bytes(reserve);
    atomic_store_explicit(&reserve->held_bytes, bytes, memory_order_relaxed);
    metrics_set(METRIC_STORE_DISK_RESERVE_BYTES, METRIC_PLAIN, bytes);
}

static bool open_file(struct sqlite_store *store, bool is_created) {
    struct store_message message;
    struct sqlite_reserve *reserve = &store->reserve;
    if (reserve->fd >= 0)
        return true;
    size_t folder_size = strlen(store->path) - strlen("/" SQLITE_STORE_FILE);
    char *folder = strndup(store->path, folder_size);
    char *path = folder ? sqlite_path_in(folder, SQLITE_STORE_RESERVE_FILE) : NULL;
    if (path)
        reserve->fd = open(path, O_RDWR | O_CLOEXEC | (is_created ? O_CREAT : 0), 0600);
    if (reserve->fd >= 0 && is_created &&
        sqlite_inherit_owner(folder, reserve->fd, &message) != STATUS_OK)
        log_event(LOG_WARN, "store.reserve_owner", log_str("error", message.text));
    free(path);
    free(folder);
    return reserve->fd >= 0;
}

bool sqlite_reserve_give(struct sqlite_store *store) {
    struct sqlite_reserve *reserve = &store->reserve;
    if (!open_file(store, false))
        return false;
    uint64_t bytes = held_bytes(reserve);
    uint64_t piece = reserve->piece_bytes > 0 ? reserve->piece_bytes : PIECE_BYTES;
    uint64_t kept = reserve->kept_bytes;
    uint64_t rest = bytes > kept + piece ? bytes - piece : kept;
    reserve->piece_bytes = 2 * piece;
    if (bytes <= kept || ftruncate(reserve->fd, (off_t)rest) != 0)
        return false;
    note_held(reserve);
    log_event(LOG_WARN, "store.reserve_used", log_int("bytes", (int64_t)(bytes - rest)),
              log_int("bytes_left", (int64_t)rest));
    return true;
}

/* Gives the file that size. False: the disk has no room for it. */
static bool resize_file(struct sqlite_reserve *reserve, uint64_t bytes) {
    uint64_t before = held_bytes(reserve);
    if (bytes <= before)
        return ftruncate(reserve->fd, (off_t)bytes) == 0;
    if (posix_fallocate(reserve->fd, (off_t)before, (off_t)(bytes - before)) == 0)
        return true;
    /* Frees what it got. */
    bool is_undone = ftruncate(reserve->fd, (off_t)before) == 0;
    (void)is_undone;
    return false;
}

/* ---- measuring ------------------------------------------------------------------------------- */

struct space {
    uint64_t disk_bytes;
    uint64_t free_bytes;
    uint64_t log_bytes;
    int64_t left_bytes;      /* free, less what a checkpoint will add to the database */
    uint64_t reusable_bytes; /* free pages of the database */
};

/* False: the disk or the database cannot be asked. */
static bool look(struct sqlite_session *session, struct space *space) {
    struct statvfs disk;
    struct rlimit limit;
    uint64_t files[SQLITE_FILE_COUNT];
    sqlite3_stmt *statement = NULL;
    if (statvfs(session->store->path, &disk) != 0 || !sqlite_measure_files(session->store, files) ||
        sqlite_statement(session, STATEMENT_PAGES, &statement) != STATUS_OK)
        return false;
    bool is_counted = sqlite_next(session, statement) == STATUS_OK;
    uint64_t database_bytes = is_counted ? sqlite_number(statement, 0) * PAGE_BYTES : 0;
    uint64_t reusable_bytes = is_counted ? sqlite_number(statement, 1) * PAGE_BYTES : 0;
    sqlite3_reset(statement);
    if (!is_counted)
        return false;
    uint64_t written_bytes = files[SQLITE_FILE_DATABASE];
    *space = (struct space){.disk_bytes = (uint64_t)disk.f_blocks * disk.f_frsize,
                            .free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize,
                            .log_bytes = files[SQLITE_FILE_WAL],
                            .reusable_bytes = reusable_bytes};
    if (disk.f_blocks == 0)
        space->disk_bytes = space->free_bytes = UNCOUNTED_BYTES;
    space->left_bytes = (int64_t)space->free_bytes;
    if (database_bytes > written_bytes)
        space->left_bytes -= (int64_t)(database_bytes - written_bytes);
    /* No file may grow beyond this limit, whatever is free. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        uint64_t largest = files[SQLITE_FILE_WAL];
        if (database_bytes > largest)
            largest = database_bytes;
        int64_t left_bytes = (int64_t)limit.rlim_cur - (int64_t)largest;
        if (limit.rlim_cur < space->disk_bytes)
            space->disk_bytes = limit.rlim_cur;
        if (left_bytes < space->left_bytes)
            space->left_bytes = left_bytes;
    }
    return true;
}

/* The file is filled up where most of the line stays free. While appends are stopped it gets half
 * of what is left, before other programs do. */
static uint64_t wanted_size(const struct sqlite_reserve *reserve, const struct space *space,
                            uint64_t held) {
    uint64_t half = line_of(reserve);
    int64_t missing = (int64_t)half - (int64_t)held;
    if (missing <= 0 || space->left_bytes - missing > (int64_t)half / 4 * 3)
        return half;
    if (!is_stopped(reserve) || space->left_bytes < 2 * PIECE_BYTES)
        return held;
    return held + (uint64_t)(missing < space->left_bytes / 2 ? missing : space->left_bytes / 2);
}

/* Fills the file up and sets the room. */
static bool measure(struct sqlite_session *session) {
    struct sqlite_reserve *reserve = &session->store->reserve;
    struct space space;
    if (!look(session, &space))
        return false;
    uint64_t half = store_reserve_half(reserve->wanted_bytes, space.disk_bytes);
    atomic_store_explicit(&reserve->line_bytes, half, memory_order_relaxed);
    /* The file of an earlier process counts. */
    (void)open_file(session->store, false);
    uint64_t held = held_bytes(reserve);
    uint64_t wanted = wanted_size(reserve, &space, held);
    if (wanted != held && open_file(session->store, true) && resize_file(reserve, wanted)) {
        space.left_bytes -= (int64_t)wanted - (int64_t)held;
        space.free_bytes -= wanted - held;
        held = wanted;
    }
    reserve->is_whole = held >= half;
    note_held(reserve);
    reserve->log_bytes = (int64_t)space.log_bytes;
    int64_t growth = space.left_bytes + (int64_t)space.reusable_bytes - (int64_t)half;
    int64_t log = space.left_bytes - (int64_t)half / 2;
    reserve->room_bytes = log < growth / 2 ? log : growth / 2;
    reserve->measured_bytes = reserve->room_bytes;
    atomic_store_explicit(&reserve->free_bytes, space.free_bytes, memory_order_relaxed);
    metrics_set(METRIC_STORE_DISK_FREE_BYTES, METRIC_PLAIN, space.free_bytes);
    return true;
}

/* Writes the log back, as far as no reader needs it, and truncates it or begins it again. */
static bool write_back(struct sqlite_session *session, int mode) {
    int code;
    sqlite3_busy_timeout(session->database, 0);
    do {
        code = sqlite3_wal_checkpoint_v2(session->database, NULL, mode, NULL, NULL);
    } while (sqlite_lacks_space(session->database, code) && sqlite_reserve_give(session->store));
    sqlite3_busy_timeout(session->database, SQLITE_STORE_BUSY_MS);
    return code == SQLITE_OK;
}

/* Truncates the log if that can make so much room. Otherwise other programs would get its space,
 * which the work that goes on needs. False: the disk cannot be measured. */
static bool seek_room(struct sqlite_session *session, int64_t wanted_bytes) {
    const struct sqlite_reserve *reserve = &session->store->reserve;
    if (reserve->room_bytes >= wanted_bytes ||
        reserve->room_bytes + reserve->log_bytes < wanted_bytes)
        return true;
    (void)write_back(session, SQLITE_CHECKPOINT_TRUNCATE);
    return measure(session);
}

/* ---- stopping appends ------------------------------------------------------------------------ */

static void stop(struct sqlite_session *session, int64_t resume_bytes) {
    struct sqlite_reserve *reserve = &session->store->reserve;
    reserve->resume_bytes = resume_bytes;
    if (is_stopped(reserve))
        return;
    atomic_store(&reserve->is_stopped, true);
    metrics_set(METRIC_STORE_APPENDS_STOPPED, METRIC_PLAIN, 1);
    log_event(LOG_ERROR, "store.appends_stopped",
              log_int("free_bytes", (int64_t)atomic_load(&reserve->free_bytes)),
              log_int("line_bytes", (int64_t)line_of(reserve)),
              log_int("reserve_bytes", (int64_t)atomic_load(&reserve->held_bytes)),
              log_str("effect", "appends answer disk_reserve until there is room on the disk"));
}

/* Whether the disk has the room that it shows: a quota may say otherwise. */
static bool has_proof(struct sqlite_reserve *reserve) {
    uint64_t held = held_bytes(reserve);
    if (reserve->fd < 0 || !resize_file(reserve, held + (uint64_t)least_room(reserve)))
        return false;
    return resize_file(reserve, held);
}

/* Asks the disk, and stops or resumes appends. */
static void check(struct sqlite_session *session) {
    struct sqlite_reserve *reserve = &session->store->reserve;
    bool was_stopped = is_stopped(reserve);
    int64_t wanted_bytes = was_stopped ? reserve->resume_bytes : least_room(reserve);
    reserve->checked_at_ms = clock_mono_now_ms();
    reserve->piece_bytes = 0;
    if (!measure(session) || !seek_room(session, wanted_bytes))
        return;
    bool has_room = reserve->room_bytes >= wanted_bytes;
    if (was_stopped && has_room && reserve->is_whole && has_proof(reserve)) {
        atomic_store(&reserve->is_stopped, false);
        metrics_set(METRIC_STORE_APPENDS_STOPPED, METRIC_PLAIN, 0);
        log_event(LOG_INFO, "store.appends_resumed",
                  log_int("free_bytes", (int64_t)atomic_load(&reserve->free_bytes)),
                  log_int("line_bytes", (int64_t)line_of(reserve)));
    } else if (!was_stopped && !has_room) {
        stop(session, 2 * least_room(reserve));
    }
}

/* What work with that much room leaves of the file to other work. */
static uint64_t kept_of(const struct sqlite_reserve *reserve, enum store_room room_least) {
    return room_least == STORE_ROOM_RESERVE ? line_of(reserve) / 2 : 0;
}

void sqlite_reserve_begin(struct sqlite_session *session, enum store_room room_least) {
    struct sqlite_reserve *reserve = &session->store->reserve;
    int64_t room_bytes = reserve->room_bytes > 0 ? reserve->room_bytes : 0;
    if (!is_on(reserve))
        return;
    reserve->kept_bytes = kept_of(reserve, room_least);
    sqlite_gather_limit(session->database,
                        room_least > STORE_ROOM_FREE ? SQLITE_GATHER_UNLIMITED : room_bytes);
}

void sqlite_reserve_end(struct sqlite_session *session, enum store_room room_least) {
    struct sqlite_reserve *reserve = &session->store->reserve;
    bool uses_reserve = room_least > STORE_ROOM_FREE;
    reserve->kept_bytes = 0;
    if (!is_on(reserve))
        return;
    int64_t left = sqlite_gather_limit(session->database, SQLITE_GATHER_UNLIMITED);
    /* Such a commit may hold appends too. They use up the room like others. */
    if (uses_reserve && left > 0)
        reserve->room_bytes -= SQLITE_GATHER_UNLIMITED - left;
    if (uses_reserve)
        return;
    /* The limit stopped the commit, where nothing else did. */
    reserve->is_limit_reached = left < 2 * PAGE_BYTES;
    reserve->tried_bytes = reserve->room_bytes;
    reserve->room_bytes = left;
}

enum store_room sqlite_check_room(struct store_session *base) {
    struct sqlite_session *session = sqlite_session_of(base);
    struct sqlite_reserve *reserve = &session->store->reserve;
    if (!is_on(reserve))
        return STORE_ROOM_FREE;
    if (!is_stopped(reserve) && reserve->room_bytes < reserve->measured_bytes / 2)
        check(session);
    if (!is_stopped(reserve))
        return STORE_ROOM_FREE;
    return held_bytes(reserve) > line_of(reserve) / 2 ? STORE_ROOM_RESERVE : STORE_ROOM_LAST;
}

enum status sqlite_make_room(struct store_session *base, enum store_room room_least) {
    struct sqlite_session *session = sqlite_session_of(base);
    struct sqlite_reserve *reserve = &session->store->reserve;
    if (session->reason != REASON_STORE_FULL)
        return STATUS_STORE_UNAVAILABLE;
    if (room_least > STORE_ROOM_FREE) {
        reserve->kept_bytes = kept_of(reserve, room_least);
        bool is_used_up = reserve->kept_bytes > 0 && held_bytes(reserve) <= reserve->kept_bytes;
        /* Work that may use the reserve gets the log's own space again, and a piece of the file. */
        bool is_begun_again = write_back(session, SQLITE_CHECKPOINT_RESTART);
        bool is_given = sqlite_reserve_give(session->store);
        if (is_on(reserve))
            stop(session, 2 * least_room(reserve));
        reserve->kept_bytes = 0;
        if (is_used_up)
            return STATUS_DISK_RESERVE;
        return is_begun_again || is_given ? STATUS_OK : STATUS_STORE_UNAVAILABLE;
    }
    if (!is_on(reserve))
        return STATUS_STORE_UNAVAILABLE;
    /* The room that the commit had may be more than there was, because others use the disk. */
    int64_t tried_bytes = reserve->tried_bytes;
    if (measure(session) && seek_room(session, tried_bytes + 1) &&
        reserve->room_bytes != tried_bytes && reserve->room_bytes >= least_room(reserve)) {
        reserve->tried_bytes = reserve->room_bytes;
        return STATUS_OK;
    }
    /* A commit that did not fit into the room is not tried again before there is more. */
    stop(session, (reserve->is_limit_reached && reserve->room_bytes > 0 ? reserve->room_bytes : 0) +
                      2 * least_room(reserve));
    return STATUS_DISK_RESERVE;
}

int sqlite_reserve_wal_pages(const struct sqlite_store *store) {
    uint64_t line_pages = line_of(&store->reserve) / PAGE_BYTES;
    if (is_stopped(&store->reserve))
        return line_pages / 4 < STOPPED_WAL_PAGES ? (int)line_pages / 4 : STOPPED_WAL_PAGES;
    if (!is_on(&store->reserve) || line_pages > SQLITE_STORE_WAL_PAGES)
        return SQLITE_STORE_WAL_PAGES;
    return line_pages > SMALL_WAL_PAGES ? (int)line_pages : SMALL_WAL_PAGES;
}

/* ---- life ------------------------------------------------------------------------------------ */

void sqlite_set_reserve(struct store *base, uint64_t bytes) {
    struct sqlite_store *store = (struct sqlite_store *)base;
    assert(!atomic_load(&store->write_session_open));
    store->reserve.wanted_bytes = bytes;
    if (bytes == 0 && open_file(store, false) && !resize_file(&store->reserve, 0))
        log_event(LOG_WARN, "store.reserve_kept", log_str("error", strerror(errno)));
}

void sqlite_reserve_open(struct sqlite_session *session) {
    if (is_on(&session->store->reserve))
        check(session);
}

enum status sqlite_keep_alive(struct store_session *base, int64_t *wait_ms) {
    struct sqlite_session *session = sqlite_session_of(base);
    const struct sqlite_reserve *reserve = &session->store->reserve;
    if (!is_on(reserve))
        return STATUS_OK;
    if (clock_mono_now_ms() >= reserve->checked_at_ms + CHECK_MS)
        check(session);
    *wait_ms = CHECK_MS;
    return STATUS_OK;
}

void sqlite_disk(const struct store *base, struct store_disk *disk) {
    const struct sqlite_reserve *reserve = &((const struct sqlite_store *)base)->reserve;
    *disk = (struct store_disk){.is_stopped = atomic_load(&reserve->is_stopped),
                                .free_bytes = atomic_load(&reserve->free_bytes),
                                .line_bytes = atomic_load(&reserve->line_bytes),
                                .held_bytes = atomic_load(&reserve->held_bytes)};
}
