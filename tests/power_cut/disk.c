#include "disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTOR_BYTES  512
#define INODES_MAX    4096
#define INODES_HASHED 8192

static void fail(const char *what, const char *name) {
    fprintf(stderr, "power_cut: %s: %s\n", what, name);
    exit(2);
}

static void *grow(void *memory, size_t count, size_t size) {
    /* Doubled at each power of two. */
    if (count & (count - 1))
        return memory;
    void *larger = realloc(memory, (count ? 2 * count : 1) * size);
    if (!larger)
        fail("no memory", "");
    return larger;
}

/* ---- chance ---- */

struct chance {
    uint64_t state;
};

static uint64_t draw(struct chance *chance) {
    uint64_t mixed = chance->state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

static size_t below(struct chance *chance, size_t count) {
    return count ? (size_t)(draw(chance) % count) : 0;
}

/* How a cut chooses among changes that were not synced: the first ones, with the last of them torn;
 * all but one; or each one with some probability. */
enum choice_kind { CHOOSE_FIRST, CHOOSE_ALL_BUT_ONE, CHOOSE_EACH, CHOICE_KIND_COUNT };

struct choice {
    enum choice_kind kind;
    size_t index;
    unsigned percent;
};

static struct choice choose(struct chance *chance, size_t count) {
    static const unsigned percents[] = {0, 10, 50, 90, 100};
    return (struct choice){.kind = (enum choice_kind)below(chance, CHOICE_KIND_COUNT),
                           .index = below(chance, count),
                           .percent = percents[below(chance, 5)]};
}

static bool is_chosen(const struct choice *choice, struct chance *chance, size_t index) {
    switch (choice->kind) {
    case CHOOSE_FIRST:
        return index < choice->index || (index == choice->index && draw(chance) & 1);
    case CHOOSE_ALL_BUT_ONE:
        return index != choice->index;
    case CHOOSE_EACH:
    case CHOICE_KIND_COUNT:
        break;
    }
    return below(chance, 100) < choice->percent;
}

/* ---- files and folders ---- */

struct bytes {
    uint8_t *data; /* zeros behind size */
    size_t size, room;
};

static void bytes_resize(struct bytes *bytes, size_t size) {
    if (size > bytes->room) {
        size_t room = 2 * size + SECTOR_BYTES;
        bytes->data = realloc(bytes->data, room);
        if (!bytes->data)
            fail("no memory", "");
        memset(bytes->data + bytes->size, 0, room - bytes->size);
        bytes->room = room;
    }
    if (bytes->data && size < bytes->size)
        memset(bytes->data + size, 0, bytes->size - size);
    bytes->size = size;
}

static void bytes_write(struct bytes *bytes, size_t offset, const uint8_t *data, size_t size) {
    if (offset + size > bytes->size)
        bytes_resize(bytes, offset + size);
    if (size > 0 && data && bytes->data)
        memcpy(bytes->data + offset, data, size);
}

struct change {
    bool is_write; /* otherwise it got this size */
    size_t offset, size;
    const uint8_t *data;
};

/* NULL in a name's place: it is removed. A rename removes one name and sets another. */
struct name_change {
    char *removed, *set;
    struct disk_file *file;
};

struct name {
    char *text;
    struct disk_file *file;
};

struct names {
    struct name *items;
    size_t count;
};

struct disk_file {
    bool is_folder;
    char *path; /* the last one */
    uint64_t version;
    struct bytes seen, synced;
    struct change *changes; /* since the sync */
    size_t change_count;
    struct names seen_names, synced_names;
    struct name_change *name_changes;
    size_t name_change_count;
};

struct disk {
    struct disk_file *root;
    const char *ignored;
    size_t ignored_count;
    struct {
        uint64_t inode;
        struct disk_file *file;
    } inodes[INODES_HASHED];
    size_t inode_count;
};

static struct disk_file *file_new(bool is_folder, const char *path) {
    struct disk_file *file = calloc(1, sizeof(*file));
    if (!file || !(file->path = strdup(path)))
        fail("no memory", path);
    file->is_folder = is_folder;
    return file;
}

static void name_set(struct names *names, const char *text, struct disk_file *file) {
    size_t at = 0;
    while (at < names->count && strcmp(names->items[at].text, text) != 0)
        at++;
    if (file && at == names->count) {
        names->items = grow(names->items, names->count, sizeof(*names->items));
        names->items[names->count++] = (struct name){strdup(text), file};
    } else if (file) {
        names->items[at].file = file;
    } else if (at < names->count) {
        free(names->items[at].text);
        names->items[at] = names->items[--names->count];
    }
}

static struct disk_file *name_find(const struct names *names, const char *text) {
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->items[i].text, text) == 0)
            return names->items[i].file;
    return NULL;
}

/* The folder of the path, and the name in it. */
static struct disk_file *folder_of(const struct disk *disk, const char *path, const char **name) {
    struct disk_file *folder = disk->root;
    char part[PATH_MAX];
    for (const char *slash; folder && (slash = strchr(path, '/')); path = slash + 1) {
        snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        folder = name_find(&folder->seen_names, part);
    }
    *name = path;
    return folder;
}

static struct disk_file *find(const struct disk *disk, const char *path) {
    const char *name;
    if (!*path)
        return disk->root;
    struct disk_file *folder = folder_of(disk, path, &name);
    return folder ? name_find(&folder->seen_names, name) : NULL;
}

/* ---- replaying ---- */

static struct disk_file **inode_at(struct disk *disk, uint64_t inode) {
    size_t at = inode % INODES_HASHED;
    while (disk->inodes[at].file && disk->inodes[at].inode != inode)
        at = (at + 1) % INODES_HASHED;
    if (!disk->inodes[at].file && ++disk->inode_count > INODES_MAX)
        fail("the trace has too many files", "");
    disk->inodes[at].inode = inode;
    return &disk->inodes[at].file;
}

static void change_name(struct disk_file *folder, struct name_change change) {
    folder->name_changes =
        grow(folder->name_changes, folder->name_change_count, sizeof(*folder->name_changes));
    folder->name_changes[folder->name_change_count++] = change;
    if (change.removed)
        name_set(&folder->seen_names, change.removed, NULL);
    if (change.set)
        name_set(&folder->seen_names, change.set, change.file);
}

static void make(struct disk *disk, const char *path, uint64_t inode, bool is_folder) {
    const char *name;
    struct disk_file *folder = folder_of(disk, path, &name);
    struct disk_file *file = file_new(is_folder, path);
    if (!folder)
        fail("a file is made in no folder", path);
    *inode_at(disk, inode) = file;
    change_name(folder, (struct name_change){.set = strdup(name), .file = file});
}

static void set_name(struct disk *disk, enum trace_kind kind, const char *path, const char *to) {
    const char *name, *to_name = NULL;
    struct disk_file *folder = folder_of(disk, path, &name);
    struct disk_file *to_folder = kind == TRACE_UNLINK ? NULL : folder_of(disk, to, &to_name);
    struct disk_file *file = folder ? name_find(&folder->seen_names, name) : NULL;
    if (!file || (to_folder && to_folder != folder))
        fail("a name is changed that is not there, or across folders", path);
    change_name(folder, (struct name_change){.removed = kind == TRACE_LINK ? NULL : strdup(name),
                                             .set = to_folder ? strdup(to_name) : NULL,
                                             .file = file});
    if (kind == TRACE_RENAME) {
        free(file->path);
        file->path = strdup(to);
    }
}

static void change_bytes(struct disk_file *file, struct change change) {
    file->changes = grow(file->changes, file->change_count, sizeof(*file->changes));
    file->changes[file->change_count++] = change;
    file->version++;
    if (change.is_write)
        bytes_write(&file->seen, change.offset, change.data, change.size);
    else
        bytes_resize(&file->seen, change.size);
}

static void forget_names(struct names *names) {
    while (names->count > 0)
        name_set(names, names->items[0].text, NULL);
}

static void copy_names(struct names *to, const struct names *from) {
    forget_names(to);
    for (size_t i = 0; i < from->count; i++)
        name_set(to, from->items[i].text, from->items[i].file);
}

static void sync_file(struct disk *disk, struct disk_file *file) {
    char path[PATH_MAX];
    int path_size = snprintf(path, sizeof(path), "%s%s", file->path, file->is_folder ? "/" : "");
    size_t ignored_size = disk->ignored ? strlen(disk->ignored) : 0;
    if (disk->ignored && (size_t)path_size >= ignored_size &&
        strcmp(path + path_size - ignored_size, disk->ignored) == 0) {
        disk->ignored_count++;
        return;
    }
    for (size_t i = 0; i < file->change_count; i++) {
        const struct change *change = &file->changes[i];
        if (change->is_write)
            bytes_write(&file->synced, change->offset, change->data, change->size);
        else
            bytes_resize(&file->synced, change->size);
    }
    file->change_count = 0;
    if (file->name_change_count > 0)
        copy_names(&file->synced_names, &file->seen_names);
    file->name_change_count = 0;
}

void disk_apply(struct disk *disk, const struct trace_head *head) {
    const char *text = (const char *)(head + 1);
    char path[PATH_MAX], to[PATH_MAX];
    snprintf(path, sizeof(path), "%.*s", (int)head->path_size, text);
    snprintf(to, sizeof(to), "%.*s", (int)head->to_size, text + head->path_size);
    const uint8_t *data = (const uint8_t *)text + head->path_size + head->to_size;
    struct disk_file *file = NULL;
    switch ((enum trace_kind)head->kind) {
    case TRACE_OPEN:
        file = find(disk, path);
        if (!file)
            fail("a file is opened that is not there", path);
        *inode_at(disk, head->inode) = file;
        return;
    case TRACE_CREATE:
    case TRACE_FOLDER_MADE:
        make(disk, path, head->inode, head->kind == TRACE_FOLDER_MADE);
        return;
    case TRACE_RENAME:
    case TRACE_LINK:
    case TRACE_UNLINK:
        set_name(disk, (enum trace_kind)head->kind, path, to);
        return;
    case TRACE_MARK:
        return;
    case TRACE_UNKNOWN:
        fail("an access cannot be replayed", path);
        return;
    case TRACE_WRITE:
    case TRACE_TRUNCATE:
    case TRACE_SYNC:
        break;
    }
    file = *inode_at(disk, head->inode);
    if (!file)
        fail("a file is written that was not opened", path);
    if (head->kind == TRACE_SYNC)
        sync_file(disk, file);
    else if (head->kind == TRACE_WRITE)
        change_bytes(file, (struct change){true, (size_t)head->offset, head->bytes, data});
    else
        change_bytes(file, (struct change){false, 0, (size_t)head->offset, NULL});
}

void disk_ignore_syncs(struct disk *disk, const char *text) {
    disk->ignored = text;
}

size_t disk_ignored_syncs(const struct disk *disk) {
    return disk->ignored_count;
}

const struct disk_file *disk_find(const struct disk *disk, const char *path) {
    return find(disk, path);
}

uint64_t disk_file_version(const struct disk_file *file) {
    return file->version;
}

const uint8_t *disk_file_bytes(const struct disk_file *file, size_t *size) {
    *size = file->seen.size;
    return file->seen.data;
}

/* ---- loading a folder ---- */

static void load_bytes(struct disk_file *file, const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat found;
    if (fd < 0 || fstat(fd, &found) != 0)
        fail("cannot be read", path);
    bytes_resize(&file->seen, (size_t)found.st_size);
    bytes_resize(&file->synced, (size_t)found.st_size);
    if (pread(fd, file->seen.data, file->seen.size, 0) != (ssize_t)file->seen.size)
        fail("cannot be read", path);
    if (file->seen.size > 0)
        memcpy(file->synced.data, file->seen.data, file->seen.size);
    close(fd);
}

static void load_names(struct disk *disk, struct disk_file *folder, const char *path,
                       size_t root_size) {
    DIR *listing = opendir(path);
    if (!listing)
        fail("cannot be read", path);
    for (const struct dirent *entry = readdir(listing); entry; entry = readdir(listing)) {
        char inside[PATH_MAX];
        struct stat found;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        int size = snprintf(inside, sizeof(inside), "%s/%s", path, entry->d_name);
        if (size >= (int)sizeof(inside) || lstat(inside, &found) != 0)
            fail("cannot be read", inside);
        /* Two names of one file stay two names of one file. */
        struct disk_file **known = inode_at(disk, found.st_ino);
        if (!*known)
            *known = file_new(S_ISDIR(found.st_mode), inside + root_size + 1);
        name_set(&folder->seen_names, entry->d_name, *known);
        name_set(&folder->synced_names, entry->d_name, *known);
        if (S_ISDIR(found.st_mode))
            load_names(disk, *known, inside, root_size);
        else
            load_bytes(*known, inside);
    }
    closedir(listing);
}

struct disk *disk_load(const char *folder) {
    struct disk *disk = calloc(1, sizeof(*disk));
    if (!disk)
        fail("no memory", folder);
    disk->root = file_new(true, ".");
    load_names(disk, disk->root, folder, strlen(folder));
    /* The programs open another folder, which this one is a copy of. */
    memset(disk->inodes, 0, sizeof(disk->inodes));
    disk->inode_count = 0;
    return disk;
}

/* ---- a cut ---- */

struct cutting {
    const struct disk_file *file;
    struct chance *chance;
    struct choice choice;
    size_t sized; /* so many changes of the size are kept, and the later ones are not */
    struct bytes seen, *kept;
};

/* Behind a size that was not kept the file had other blocks, which later writes did not reach. */
static bool is_blocked(const struct cutting *cutting, size_t index, size_t at) {
    for (size_t i = cutting->sized; i < index; i++) {
        const struct change *change = &cutting->file->changes[i];
        if (!change->is_write && at + SECTOR_BYTES > change->size)
            return true;
    }
    return false;
}

/* A piece is kept as programs saw it then, with the earlier bytes around it. */
static void keep_pieces(struct cutting *cutting, size_t index) {
    const struct change *change = &cutting->file->changes[index];
    size_t end = change->offset + change->size;
    for (size_t at = change->offset / SECTOR_BYTES * SECTOR_BYTES; at < end; at += SECTOR_BYTES) {
        size_t left = cutting->seen.size - at;
        if (is_chosen(&cutting->choice, cutting->chance, index) && !is_blocked(cutting, index, at))
            bytes_write(cutting->kept, at, cutting->seen.data + at,
                        left < SECTOR_BYTES ? left : SECTOR_BYTES);
    }
}

/* Replays the changes twice: as programs saw them, and as the disk kept them. */
static void cut_bytes(const struct disk_file *file, struct chance *chance, struct bytes *kept) {
    struct cutting cutting = {.file = file, .chance = chance, .kept = kept};
    size_t size = file->synced.size;
    cutting.choice = choose(chance, file->change_count);
    cutting.sized = draw(chance) & 1 ? file->change_count : below(chance, file->change_count + 1);
    if (cutting.choice.kind == CHOOSE_FIRST)
        cutting.sized = cutting.choice.index;
    bool is_garbage = below(chance, 4) == 0;
    if (size > 0) {
        bytes_write(&cutting.seen, 0, file->synced.data, size);
        bytes_write(kept, 0, file->synced.data, size);
    }
    for (size_t i = 0; i < file->change_count; i++) {
        const struct change *change = &file->changes[i];
        bool is_sized = i < cutting.sized;
        if (!change->is_write) {
            bytes_resize(&cutting.seen, change->size);
            if (is_sized)
                bytes_resize(kept, size = change->size);
            continue;
        }
        size_t end = change->offset + change->size;
        size_t before = kept->size;
        bytes_write(&cutting.seen, change->offset, change->data, change->size);
        if (is_sized && end > size)
            size = end;
        if (end > before)
            bytes_resize(kept, end);
        for (size_t at = before; is_garbage && at < end; at++)
            kept->data[at] = (uint8_t)draw(chance);
        keep_pieces(&cutting, i);
    }
    bytes_resize(kept, size);
    free(cutting.seen.data);
}

/* The files of this cut that have a name already, because a file may have two. */
struct made {
    const struct disk_file *files[INODES_MAX];
    char *paths[INODES_MAX];
    size_t count;
};

static void write_file(const struct disk_file *file, struct chance *chance, const char *path) {
    struct bytes kept = {0};
    cut_bytes(file, chance, &kept);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || (kept.size > 0 && write(fd, kept.data, kept.size) != (ssize_t)kept.size))
        fail("cannot be written", path);
    close(fd);
    free(kept.data);
}

static void write_names(const struct disk_file *folder, struct chance *chance, const char *path,
                        struct made *made) {
    struct names kept = {0};
    struct choice choice = choose(chance, folder->name_change_count);
    copy_names(&kept, &folder->synced_names);
    for (size_t i = 0; i < folder->name_change_count; i++) {
        const struct name_change *change = &folder->name_changes[i];
        if (!is_chosen(&choice, chance, i))
            continue;
        if (change->removed)
            name_set(&kept, change->removed, NULL);
        if (change->set)
            name_set(&kept, change->set, change->file);
    }
    for (size_t i = 0; i < kept.count; i++) {
        char inside[PATH_MAX];
        const struct disk_file *file = kept.items[i].file;
        size_t known = 0;
        snprintf(inside, sizeof(inside), "%s/%s", path, kept.items[i].text);
        while (known < made->count && made->files[known] != file)
            known++;
        if (file->is_folder) {
            if (mkdir(inside, 0700) != 0)
                fail("cannot be made", inside);
            write_names(file, chance, inside, made);
        } else if (known < made->count) {
            if (link(made->paths[known], inside) != 0)
                fail("cannot be linked", inside);
        } else {
            write_file(file, chance, inside);
            made->files[made->count] = file;
            made->paths[made->count++] = strdup(inside);
        }
    }
    forget_names(&kept);
    free(kept.items);
}

void disk_cut(const struct disk *disk, uint64_t seed, const char *folder) {
    struct chance chance = {seed};
    struct made made = {.count = 0};
    write_names(disk->root, &chance, folder, &made);
    while (made.count > 0)
        free(made.paths[--made.count]);
}
