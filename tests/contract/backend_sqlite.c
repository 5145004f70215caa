#include "backend.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static char *make(void) {
    const char *base = getenv("TMPDIR");
    char *place = NULL;
    assert_true(asprintf(&place, "%s/khala-contract-XXXXXX", base ? base : "/tmp") > 0);
    assert_non_null(mkdtemp(place));
    return place;
}

static struct store *open_store(const char *place) {
    struct store *store = NULL;
    struct store_message message;
    enum status status = store_open(&store, place, true, &message);
    if (status != STATUS_OK)
        fail_msg("%s: %s", status_code(status), message.text);
    return store;
}

static void destroy(char *place) {
    DIR *folder = opendir(place);
    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
        if (entry->d_name[0] != '.')
            assert_int_equal(unlinkat(dirfd(folder), entry->d_name, 0), 0);
    closedir(folder);
    assert_int_equal(rmdir(place), 0);
    free(place);
}

const struct backend backend_sqlite = {"sqlite", make, open_store, destroy};
