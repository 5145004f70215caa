#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/decimal.h"
#include "cli/doctor/doctor.h"
#include "net/descriptors.h"
#include "net/tls.h"
#include "server/config_options.h"
#include "server/limits_report.h"
#include "store/store_maintenance.h"
#include "wire/json.h"

#define MEGABYTE ((uint64_t)1 << 20)
/* The write-ahead log may grow to 64 MB before it is truncated; twice that must be free. */
#define DISK_FREE_WRONG_MB   128
#define DISK_FREE_WARNING_MB 1024
#define READY_BYTES_MAX      4096
#define PATH_BYTES_MAX       1024
#define OPEN_TO_OTHERS       0077
/* A group may read it: a service with a dynamic user needs that. */
#define KEY_OPEN_TO_OTHERS 0037
#define DAY_S              86400
/* Automatic renewal happens a month before the end. */
#define CERTIFICATE_DAYS_WARNING 14

/* ---- TLS ------------------------------------------------------------------------------------- */

void doctor_check_tls(struct doctor *doctor) {
    const struct tls_options options = config_tls_options(&doctor->config);
    struct tls_context *context = NULL;
    struct tls_message message = {""};
    char advice[PATH_BYTES_MAX];
    struct stat found;
    if (!*options.certificate_file) {
        doctor_say(doctor, FINDING_OK, NULL, "off");
        return;
    }
    if (tls_context_open(&context, &options, &message) != STATUS_OK) {
        doctor_say(doctor, FINDING_WRONG,
                   "set KHALA_TLS_CERT_FILE and KHALA_TLS_KEY_FILE to files the server can read",
                   "%s", message.text);
        return;
    }
    if (stat(options.key_file, &found) == 0 && (found.st_mode & KEY_OPEN_TO_OTHERS)) {
        snprintf(advice, sizeof(advice), "chmod 600 '%s'", options.key_file);
        doctor_say(doctor, FINDING_WARNING, advice, "%s is open to other users (mode %04o)",
                   options.key_file, (unsigned)found.st_mode & 07777);
    }
    const char *path = options.certificate_file;
    const char *renewal = "get a new one, put it there, and send the server SIGHUP";
    int64_t now_s = (int64_t)(clock_now().wall_ms / 1000);
    int64_t days = (tls_context_not_after_s(context) - now_s) / DAY_S;
    if (days < 0)
        doctor_say(doctor, FINDING_WRONG, renewal, "the certificate in %s has expired", path);
    else if (days < CERTIFICATE_DAYS_WARNING)
        doctor_say(doctor, FINDING_WARNING, renewal, "the certificate in %s ends in %lld days",
                   path, (long long)days);
    else
        doctor_say(doctor, FINDING_OK, NULL, "the certificate in %s is good for %lld days", path,
                   (long long)days);
    tls_context_close(context);
}

/* ---- folder and files ---- */

void doctor_check_folder(struct doctor *doctor) {
    const char *folder = doctor->config.data_dir;
    char advice[PATH_BYTES_MAX];
    struct stat found;
    bool is_there = stat(folder, &found) == 0;
    if (!is_there || !S_ISDIR(found.st_mode)) {
        doctor_say(doctor, FINDING_WRONG,
                   "name another with --data-dir or KHALA_DATA_DIR; 'khala serve' makes a new one",
                   "%s is not a folder that can be read: %s", folder,
                   is_there ? "it is something else" : strerror(errno));
        return;
    }
    doctor->has_folder = true;
    if (found.st_uid != geteuid() && geteuid() != 0)
        doctor_say(doctor, FINDING_WARNING, "run this, and the server, as its owner",
                   "%s belongs to another user (uid %u)", folder, (unsigned)found.st_uid);
    if (access(folder, R_OK | W_OK | X_OK) != 0) {
        doctor_say(doctor, FINDING_WRONG, "give its owner rwx", "%s cannot be read and written: %s",
                   folder, strerror(errno));
    } else if (found.st_mode & OPEN_TO_OTHERS) {
        snprintf(advice, sizeof(advice), "chmod 700 '%s'", folder);
        doctor_say(doctor, FINDING_WARNING, advice, "%s is open to other users (mode %04o)", folder,
                   (unsigned)found.st_mode & 07777);
    } else {
        doctor_say(doctor, FINDING_OK, NULL, "%s is readable by its owner only", folder);
    }
}

static bool ends_with(const char *name, const char *suffix) {
    size_t size = strlen(name);
    size_t suffix_size = strlen(suffix);
    return size > suffix_size && strcmp(name + size - suffix_size, suffix) == 0;
}

/* The service runs as the owner of the folder. A verb that root ran may have made files there. */
void doctor_check_files(struct doctor *doctor) {
    DIR *entries = doctor->has_folder ? opendir(doctor->config.data_dir) : NULL;
    uint64_t before = doctor->finding_count;
    size_t count = 0;
    struct stat folder;
    if (!entries)
        return;
    bool is_found = stat(doctor->config.data_dir, &folder) == 0;
    for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        const char *name = entry->d_name;
        char path[PATH_BYTES_MAX];
        char advice[PATH_BYTES_MAX + 128];
        struct stat found;
        bool is_key = ends_with(name, ".key") || ends_with(name, ".jwk");
        if (name[0] == '.')
            continue;
        count++;
        snprintf(path, sizeof(path), "%s/%s", doctor->config.data_dir, name);
        if (!is_found || lstat(path, &found) != 0 || !S_ISREG(found.st_mode))
            continue;
        unsigned wanted = is_key ? 04 : 06;
        unsigned given = found.st_uid == folder.st_uid   ? found.st_mode >> 6
                         : found.st_gid == folder.st_gid ? found.st_mode >> 3
                                                         : found.st_mode;
        if (folder.st_uid != 0 && (given & wanted) != wanted) {
            snprintf(advice, sizeof(advice), "chown %u:%u '%s'", (unsigned)folder.st_uid,
                     (unsigned)folder.st_gid, path);
            doctor_say(doctor, FINDING_WRONG, advice,
                       "%s belongs to uid %u, and the service, which runs as the folder's owner "
                       "(uid %u), cannot open it",
                       path, (unsigned)found.st_uid, (unsigned)folder.st_uid);
        } else if (ends_with(name, ".restoring") && doctor->server_pid == 0) {
            doctor_say(doctor, FINDING_WARNING, "remove it, unless a restore is running",
                       "%s was left by an interrupted restore", path);
        } else if (found.st_mode & OPEN_TO_OTHERS) {
            snprintf(advice, sizeof(advice), "chmod 600 '%s'%s", path,
                     is_key ? ", and make a new key if others were on this machine" : "");
            doctor_say(doctor, is_key ? FINDING_WRONG : FINDING_WARNING, advice,
                       "%s is open to other users (mode %04o)", path,
                       (unsigned)found.st_mode & 07777);
        }
    }
    closedir(entries);
    if (doctor->finding_count == before)
        doctor_say(doctor, FINDING_OK, NULL, "%zu files, readable by their owner only", count);
}

/* ---- the server ------------------------------------------------------------------------------ */

/* An answer that comes in pieces is not understood; its status still counts. */
static enum status read_error(void *user, unsigned http_status, struct slice piece) {
    const struct json_limits limits = {READY_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field error = {.name = SLICE("error")};
    struct doctor *doctor = user;
    if (http_status == 503 && json_read_object(piece, &limits, &error, 1) == STATUS_OK &&
        error.present)
        doctor->is_stopped =
            json_string_is(error.value, slice_of(status_code(STATUS_DISK_RESERVE)));
    return STATUS_OK;
}

static void ask_server(struct doctor *doctor, const char *url) {
    struct blocking_http *client = NULL;
    unsigned http_status = 0;
    char process[64] = ""; /* the server of an embedded store */
    char holder[64] = "";
    const struct blocking_request request = {
        .target = "/healthz/ready", .user = doctor, .on_body = read_error};
    if (doctor->server_pid > 0) {
        snprintf(process, sizeof(process), " (pid %ld)", (long)doctor->server_pid);
        snprintf(holder, sizeof(holder), "process %ld has the store, and ",
                 (long)doctor->server_pid);
    }
    enum status status = blocking_http_open(&client, url, remote_ca_file(&doctor->remote));
    if (status == STATUS_OK)
        status = blocking_http_run(client, &request, &http_status);
    if (status != STATUS_OK)
        doctor_say(doctor, FINDING_WRONG,
                   "give its address with --url, or check its log; another verb may hold the store",
                   "%s%s does not answer: %s", holder, url,
                   client ? blocking_http_error(client) : status_message(status));
    else if (doctor->is_stopped)
        doctor_say(doctor, FINDING_WRONG, "make room on its disk: it then goes on by itself",
                   "the server at %s%s accepts no appends, because its disk is nearly full", url,
                   process);
    else if (http_status != 200)
        doctor_say(doctor, FINDING_WRONG,
                   "look at its log for store.commit_failed, and at the disk or the database",
                   "the server at %s%s is not ready: it answers %u", url, process, http_status);
    else
        doctor_say(doctor, FINDING_OK, NULL, "the server at %s%s is ready", url, process);
    blocking_http_close(client);
}

void doctor_check_server(struct doctor *doctor) {
    char bound[REMOTE_URL_BYTES_MAX];
    bool is_shared = *doctor->config.db_url;
    doctor->server_pid =
        doctor->has_folder && !is_shared ? store_lock_holder(doctor->config.data_dir) : 0;
    if (is_shared && !remote_is_named(&doctor->remote))
        doctor_say(doctor, FINDING_OK, NULL,
                   "the store is in PostgreSQL; --url names a server to ask whether it is ready");
    else if (!is_shared && doctor->server_pid == 0)
        doctor_say(doctor, FINDING_OK, NULL, "no server runs on this folder");
    else
        ask_server(doctor, remote_url(&doctor->remote, bound));
}

/* ---- limits ---------------------------------------------------------------------------------- */

void doctor_check_descriptors(struct doctor *doctor) {
    uint64_t wanted = descriptors_for(doctor->config.connections_max);
    uint64_t given = 0;
    pid_t pid = doctor->server_pid;
    const char *whose = pid > 0 ? "the server" : "a server started from here";
    if (pid > 0) {
        static const char name[] = "Max open files";
        char path[64];
        char line[256];
        snprintf(path, sizeof(path), "/proc/%ld/limits", (long)pid);
        FILE *limits = fopen(path, "r");
        while (limits && given == 0 && fgets(line, sizeof(line), limits))
            if (strncmp(line, name, strlen(name)) == 0)
                given = strtoull(line + strlen(name), NULL, 10);
        if (limits)
            fclose(limits);
    } else {
        struct rlimit limit;
        given = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : 0;
    }
    if (given == 0)
        doctor_say(doctor, FINDING_WARNING, "run this as the server's user",
                   "the limits of process %ld cannot be read", (long)pid);
    else if (given < wanted)
        doctor_say(doctor, FINDING_WARNING,
                   "raise LimitNOFILE of the unit or 'ulimit -Hn', or lower KHALA_CONNECTIONS_MAX",
                   "%s may open %llu files, and KHALA_CONNECTIONS_MAX of %llu needs %llu", whose,
                   (unsigned long long)given, (unsigned long long)doctor->config.connections_max,
                   (unsigned long long)wanted);
    else
        doctor_say(doctor, FINDING_OK, NULL, "%s may open %llu files, and needs %llu at most",
                   whose, (unsigned long long)given, (unsigned long long)wanted);
}

void doctor_check_limits(struct doctor *doctor) {
    const struct limits_counts counts = limits_counts_of(&doctor->config);
    const struct limits_report report = limits_report_of(&counts);
    doctor_say(
        doctor, FINDING_OK, NULL,
        "under the heaviest load that the settings allow, the server takes %llu MB of memory, "
        "and %llu MB more for a connection that fills every buffer; an idle server takes "
        "a small part of it",
        (unsigned long long)(report.fixed_bytes / MEGABYTE),
        (unsigned long long)(report.connection_bytes / MEGABYTE));
}

void doctor_check_disk(struct doctor *doctor) {
    struct statvfs disk;
    const char *folder = doctor->config.data_dir;
    if (!doctor->has_folder)
        return;
    if (statvfs(folder, &disk) != 0) {
        doctor_say(doctor, FINDING_WARNING, "check the free space with 'df'",
                   "the free space on the disk of %s cannot be read: %s", folder, strerror(errno));
        return;
    }
    uint64_t free_mb = (uint64_t)disk.f_bavail * disk.f_frsize / MEGABYTE;
    bool is_full = free_mb < DISK_FREE_WRONG_MB;
    if (disk.f_flag & ST_RDONLY)
        doctor_say(doctor, FINDING_WRONG, "mount it for writing",
                   "%s is on a read-only file system", folder);
    else if (doctor->is_stopped)
        doctor_say(doctor, FINDING_WRONG,
                   "free disk space or shorten the retention; appends go on by themselves",
                   "%llu MB are free on the disk of %s, and appends are stopped (disk_reserve)",
                   (unsigned long long)free_mb, folder);
    else if (is_full || free_mb < DISK_FREE_WARNING_MB)
        doctor_say(doctor, is_full ? FINDING_WRONG : FINDING_WARNING,
                   "free disk space or shorten the retention; appends get 503 when the disk is "
                   "nearly full",
                   "%llu MB are free on the disk of %s", (unsigned long long)free_mb, folder);
    else
        doctor_say(doctor, FINDING_OK, NULL, "%llu MB are free on the disk of %s",
                   (unsigned long long)free_mb, folder);
}
