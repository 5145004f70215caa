#include <sys/wait.h>

#include "base/log.h"
#include "projector/stored_log.h"

struct answer {
    int code;
    char out[8192];
};

/* Runs the real binary on the log's folder and takes what it says on either output. */
static struct answer khala(const struct stored_log *log, const char *const *words) {
    struct answer answer = {0};
    char *argv[16] = {"khala"};
    int argc = 1;
    for (; words[argc - 1]; argc++)
        argv[argc] = (char *)words[argc - 1];
    argv[argc++] = "--data-dir";
    argv[argc++] = (char *)log->folder;
    int ends[2];
    assert_non_null(getenv("KHALA_BINARY"));
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        execv(getenv("KHALA_BINARY"), argv);
        _exit(127);
    }
    close(ends[1]);
    size_t size = 0;
    ssize_t got;
    while ((got = read(ends[0], answer.out + size, sizeof(answer.out) - 1 - size)) > 0)
        size += (size_t)got;
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    answer.code = WEXITSTATUS(status);
    return answer;
}

static void expect(const struct answer *answer, int code, const char *out) {
    assert_string_equal(answer->out, out);
    assert_int_equal(answer->code, code);
}

static struct stored_log *populated(void) {
    struct stored_log *log = log_open(NULL);
    log_append(log, ENTITY_RUN, "r1", "run.started", "{\"owner_user_id\":\"u1\"}");
    log_append(log, ENTITY_RUN, "r1", "x", "{}");
    log_append(log, ENTITY_WORKER, "w1", "worker.registered", "{}");
    log_commit(log);
    return log;
}

#define JOURNAL    "3 journal rows of 3 topics: no hole, no stray and no altered row\n"
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* The log of these tests stays open: its process is the running server. */
static void verify_works_beside_a_running_server(void **state) {
    (void)state;
    struct stored_log *log = populated();
    struct answer answer = khala(log, WORDS("verify"));
    expect(&answer, 0,
           "3 events of 2 entities: every hash, link, sequence and cursor holds\n" JOURNAL
           "2 documents: each has its hash and agrees with its checkpoint\n");
    answer = khala(log, WORDS("verify", "--json"));
    expect(&answer, 0,
           "{\"events\":3,\"entities\":2,\"broken\":null,\"journal\":[],\"journal_rows\":3,"
           "\"documents\":[],\"ok\":"
           "true}\n");
    answer = khala(log, WORDS("reproject", "--all", "--verify"));
    expect(&answer, 0, JOURNAL "2 documents rebuilt from 3 events: 0 differed, 0 written\n");
    answer = khala(log, WORDS("reproject", "--all", "--verify", "--json"));
    expect(&answer, 0,
           "{\"mode\":\"verify\",\"drifts\":[],\"journal\":[],\"journal_rows\":3,\"ok\":true,"
           "\"documents\":2,\"events\":3,"
           "\"drifted\":0,\"repaired\":0}\n");
    log_close(log);
}

static void verify_names_an_altered_event(void **state) {
    (void)state;
    struct stored_log *log = populated();
    log_alter(log, "UPDATE events SET payload = '{\"a\":1}' WHERE log_id = 2");
    struct answer answer = khala(log, WORDS("verify"));
    expect(&answer, 1,
           "broken: run:r1 seq 2 (log id 2): the payload does not hash to its payload_hash\n");
    answer = khala(log, WORDS("verify", "--json"));
    expect(&answer, 1,
           "{\"events\":2,\"entities\":0,\"broken\":{\"entity\":\"run:r1\",\"seq\":2,"
           "\"log_id\":2,\"message\":\"the payload does not hash to its "
           "payload_hash\"},\"ok\":false}\n");
    log_close(log);
}

static void reproject_names_and_repairs_an_altered_document(void **state) {
    (void)state;
    struct stored_log *log = populated();
    log_alter(log, "UPDATE run_documents SET payload = replace(payload, 'u1', 'u2')");
    const char *drift =
        "drift: runtime/run_summary:r1: summary_hash_mismatch: the document differs "
        "from the log (log at 2, checkpoint at 2)\n";
    char expected[512];
    struct answer answer = khala(log, WORDS("reproject", "--all", "--verify"));
    snprintf(expected, sizeof(expected),
             "%s" JOURNAL "2 documents rebuilt from 3 events: 1 differed, 0 written\n", drift);
    expect(&answer, 1, expected);
    answer = khala(log, WORDS("reproject", "--worker", "w1", "--verify"));
    assert_int_equal(answer.code, 0);
    answer = khala(log, WORDS("reproject", "--run", "r1"));
    assert_int_equal(answer.code, 2);
    assert_non_null(strstr(answer.out, "no operator key"));
    assert_non_null(strstr(answer.out, "is in use by another process"));
    log_stop(log);
    answer = khala(log, WORDS("reproject", "--run", "r1"));
    snprintf(expected, sizeof(expected),
             "%s1 documents rebuilt from 2 events: 1 differed, 1 written\n", drift);
    expect(&answer, 0, expected);
    answer = khala(log, WORDS("reproject", "--all", "--verify"));
    assert_int_equal(answer.code, 0);
    log_start(log);
    log_close(log);
}

static void log_verbs_refuse_unknown_runs_and_missing_folders(void **state) {
    (void)state;
    struct stored_log *log = populated();
    struct answer answer = khala(log, WORDS("reproject", "--run", "nobody", "--verify"));
    expect(&answer, 1, "khala: there is no run 'nobody'\n");
    answer = khala(log, WORDS("reproject"));
    assert_int_equal(answer.code, 2);
    answer = khala(log, WORDS("reproject", "--all", "--run", "r1"));
    assert_int_equal(answer.code, 2);
    answer = khala(log, WORDS("verify", "something"));
    assert_int_equal(answer.code, 2);
    struct stored_log *nowhere = calloc(1, sizeof(*nowhere));
    assert_non_null(nowhere);
    strcpy(nowhere->folder, "/tmp/khala-projector-nowhere");
    answer = khala(nowhere, WORDS("verify"));
    assert_int_equal(answer.code, 3);
    answer = khala(nowhere, WORDS("reproject", "--all"));
    assert_int_equal(answer.code, 3);
    assert_int_not_equal(access(nowhere->folder, F_OK), 0);
    free(nowhere);
    log_close(log);
}

int main(void) {
    log_configure(LOG_OFF, LOG_TEXT, 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verify_works_beside_a_running_server),
        cmocka_unit_test(verify_names_an_altered_event),
        cmocka_unit_test(reproject_names_and_repairs_an_altered_document),
        cmocka_unit_test(log_verbs_refuse_unknown_runs_and_missing_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
