#include "server/unknown.h"

#include "base/slice.h"
#include "server/config.h"

#define SEPARATORS "_-"

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static struct slice bounded(const char *text) {
    return (struct slice){text, strnlen(text, NEAREST_BYTES_MAX)};
}

/* Single characters to add, drop or change to make one of the other: a row of the usual table at a
 * time. */
static size_t edits(struct slice a, struct slice b) {
    size_t row[NEAREST_BYTES_MAX + 1];
    for (size_t j = 0; j <= b.size; j++)
        row[j] = j;
    for (size_t i = 0; i < a.size; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b.size; j++) {
            size_t changed = diagonal + (a.data[i] != b.data[j]);
            diagonal = row[j + 1];
            row[j + 1] = least(changed, least(row[j], row[j + 1]) + 1);
        }
    }
    return row[b.size];
}

static bool next_word(struct slice *rest, struct slice *word) {
    size_t size = 0;
    while (rest->size > 0 && strchr(SEPARATORS, rest->data[0]))
        *rest = slice_from(*rest, 1);
    while (size < rest->size && !strchr(SEPARATORS, rest->data[size]))
        size++;
    *word = (struct slice){rest->data, size};
    *rest = slice_from(*rest, size);
    return size > 0;
}

/* The sum of the distances from each word of a to the closest word of b. */
static size_t words_apart(struct slice a, struct slice b) {
    struct slice word, other;
    size_t sum = 0;
    while (next_word(&a, &word)) {
        struct slice rest = b;
        size_t fewest = word.size;
        while (next_word(&rest, &other))
            fewest = least(fewest, edits(word, other));
        sum += fewest;
    }
    return sum;
}

void nearest_try(struct nearest *nearest, const char *name) {
    struct slice written = bounded(nearest->written);
    struct slice tried = bounded(name);
    size_t distance =
        least(edits(written, tried), words_apart(written, tried) + words_apart(tried, written));
    /* Only an equal name has distance 0. */
    if (distance == 0 && !slice_equal(written, tried))
        distance = 1;
    /* How far a slip may lead: a third of what is the name's own, without a first word that both
     * have. */
    struct slice rest = written, other_rest = tried, word, other;
    size_t own_size = least(written.size, tried.size);
    if (next_word(&rest, &word) && next_word(&other_rest, &other) && rest.size > 0 &&
        slice_equal(word, other))
        own_size -= word.size;
    if (distance <= own_size / 3 && (!nearest->name || distance < nearest->distance)) {
        nearest->name = name;
        nearest->distance = distance;
    }
}

const struct config_variable config_verb_variables[] = {
    {"KHALA_URL", "address of the server, for verbs that use one; `--url` overrides it"},
    {"KHALA_OPERATOR_URL",
     "address of the operator routes, if they have a separate address; `--url` overrides it, and "
     "`--operator-url` for `tail` and `snapshot`, which mint their token there"},
    {"KHALA_CA_FILE",
     "trusted authorities of the verbs for https in PEM; unset: the system's; `--ca` overrides it"},
    {NULL, NULL},
};

/* Any unknown name with one of our prefixes is reported. A name with a shared prefix is reported
 * only if it is similar to a setting. */
static const char *const our_prefixes[] = {"KHALA_", "RUNTIME_KHALA_", "RUNTIME_SYNC_",
                                           "OA_COMPAT_KHALA_"};
static const char *const shared_prefixes[] = {"RUNTIME_", "OA_COMPAT_"};
static const char *const foreign_prefixes[] = {"KHALA_SERVICE_", "KHALA_PORT_"};

static bool begins_with_any(const char *name, const char *const *prefixes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

#define BEGINS(name, prefixes)                                                                     \
    begins_with_any(name, prefixes, sizeof(prefixes) / sizeof((prefixes)[0]))

static struct nearest nearest_setting(const char *name) {
    struct nearest nearest = {.written = name};
    struct config_setting setting;
    for (size_t i = 0; config_setting_at(i, &setting); i++)
        nearest_try(&nearest, setting.name);
    for (size_t i = 0; i < policy_key_count(); i++)
        nearest_try(&nearest, policy_key_at(i).name);
    for (const struct config_variable *row = config_verb_variables; row->name; row++)
        nearest_try(&nearest, row->name);
    return nearest;
}

void config_unknown_each(char *const *environment, void *user, config_unknown_cb *on_unknown) {
    for (; *environment; environment++) {
        char name[NEAREST_BYTES_MAX];
        size_t size = strcspn(*environment, "=");
        if (size >= sizeof(name))
            continue;
        memcpy(name, *environment, size);
        name[size] = '\0';
        bool is_ours = BEGINS(name, our_prefixes);
        if ((!is_ours && !BEGINS(name, shared_prefixes)) || BEGINS(name, foreign_prefixes) ||
            strcmp(name, "KHALA_PORT") == 0)
            continue;
        struct nearest nearest = nearest_setting(name);
        bool is_known = nearest.name && strcmp(nearest.name, name) == 0;
        if (!is_known && (is_ours || nearest.name))
            on_unknown(user, name, nearest.name);
    }
}

enum status config_unknown_refuse(const struct config_file *file, struct config_error *error) {
    for (size_t i = 0; i < file->row_count; i++) {
        const struct config_file_row *row = &file->rows[i];
        struct nearest nearest = nearest_setting(row->name);
        if (nearest.name && strcmp(nearest.name, row->name) == 0)
            continue;
        if (nearest.name)
            return config_file_refuse(file, row->line, error, "%s is no setting; did you mean %s?",
                                      row->name, nearest.name);
        return config_file_refuse(file, row->line, error, "%s is no setting", row->name);
    }
    return STATUS_OK;
}
