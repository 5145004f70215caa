/* A trace of what programs did to the files of one folder: records of a head, one or two paths
 * (relative to the folder), and the bytes that were written. The recorder writes it, the disk
 * replays it. A record is appended by one call, so several programs can share a trace, and the
 * driver of a test adds its marks in between. */
#ifndef POWER_CUT_TRACE_H
#define POWER_CUT_TRACE_H

#include <stdint.h>

#define TRACE_FOLDER "POWER_CUT_FOLDER"
#define TRACE_FILE   "POWER_CUT_TRACE"

enum trace_kind {
    TRACE_OPEN = 1, /* path: an existing file or folder has this inode */
    TRACE_CREATE,   /* path */
    TRACE_FOLDER_MADE,
    TRACE_WRITE,    /* at the offset */
    TRACE_TRUNCATE, /* to the offset */
    TRACE_RENAME,   /* path, to the other path */
    TRACE_LINK,
    TRACE_UNLINK,
    TRACE_SYNC,
    TRACE_MARK,    /* of the driver: text */
    TRACE_UNKNOWN, /* text: an access that the disk cannot replay */
};

/* Records follow one another without padding. */
struct __attribute__((packed)) trace_head {
    uint32_t size; /* of the whole record */
    uint16_t kind;
    uint16_t path_size;
    uint16_t to_size; /* of the other path */
    uint16_t unused;
    uint32_t bytes; /* of data, after the paths */
    uint64_t inode;
    int64_t offset;
};

#endif
