/* The checks of a store: a table of checks runs over one session, and each reports for itself.
 * After the pages the tables that follow from the log are looked at, then a sample of the hash
 * chains. If one of these fails, the log cannot be read, and the checks that compare something with
 * it are left out. */
#include <stdio.h>

#include "base/clock.h"
#include "cli/doctor/doctor.h"
#include "cli/local_store.h"
#include "cluster/nodes.h"
#include "delivery/relay/relay_position.h"
#include "projector/verify.h"
#include "server/config_options.h"
#include "store/store_maintenance.h"
#include "store/store_marks.h"
#include "store/store_nodes.h"

#define STRETCH_COUNT         64
#define STRETCH_EVENTS        256
#define AHEAD_MS_MAX          5000
#define DRIFT_MS              86400000
#define DRIFT_TEXT_SIZE       512
#define USAGE_DIFFERENCES_MAX 20
/* The writer reads the outbox many times a second. */
#define OUTBOX_AGE_MS_MAX 60000
/* No clock that shows less has been set. */
#define CLOCK_MS_LEAST UINT64_C(1704067200000)

#define RESTORE_ADVICE                                                                             \
    "stop the server, copy the whole folder elsewhere, then 'khala restore' the last backup"

static void check_pages(struct doctor *doctor) {
    struct store_message message = {""};
    enum status status = store_check_pages(doctor->session, false, &message);
    if (status == STATUS_OK)
        doctor_say(doctor, FINDING_OK, NULL, "every page of the store is sound");
    else if (status == STATUS_INVALID_CONFIG) /* the database checks its own pages */
        doctor_say(doctor, FINDING_OK, NULL, "%s", message.text);
    else
        doctor_say(doctor, FINDING_WRONG, RESTORE_ADVICE, "the store is damaged: %s", message.text);
}

static void check_chains(struct doctor *doctor) {
    const struct verify_sample sample = {STRETCH_COUNT, STRETCH_EVENTS, doctor->now_ms};
    struct verify_result result;
    enum status status = verify_sample(doctor->session, &sample, &result);
    if (status != STATUS_OK)
        doctor_say(doctor, FINDING_WRONG, RESTORE_ADVICE, "the log cannot be read: %s",
                   store_session_error(doctor->session));
    else if (result.is_broken)
        doctor_say(doctor, FINDING_WRONG, RESTORE_ADVICE, "log id %llu (%s seq %llu): %s",
                   (unsigned long long)result.broken.log_id, result.broken.entity,
                   (unsigned long long)result.broken.seq, result.broken.message);
    else
        doctor_say(doctor, FINDING_OK, NULL,
                   "%llu events looked at: hashes and links hold ('khala verify' looks at all)",
                   (unsigned long long)result.events);
    doctor->is_log_readable = status == STATUS_OK;
}

/* Documents, checkpoints, journal and topics follow from the log, so nothing is lost with them. */
static void check_tables(struct doctor *doctor) {
    struct store_message message = {""};
    doctor->is_log_readable = store_check_derived(doctor->session, &message) == STATUS_OK;
    if (!doctor->is_log_readable)
        doctor_say(
            doctor, FINDING_WRONG,
            "no event is lost: 'khala serve' or 'khala reproject --all' makes the table again "
            "from the log",
            "%s", message.text);
}

struct latest_drift {
    bool is_found;
    uint64_t seen_at_ms;
    char text[DRIFT_TEXT_SIZE];
};

static enum status keep_drift(void *user, const struct store_drift *drift) {
    struct latest_drift *latest = user;
    struct slice subject = drift->subject.data ? drift->subject : drift->entity_id;
    latest->is_found = true;
    latest->seen_at_ms = drift->seen_at_ms;
    snprintf(latest->text, sizeof(latest->text), "%s of %.*s", reason_code(drift->reason),
             (int)subject.size, subject.data ? subject.data : "");
    return STATUS_OK;
}

static void check_projection(struct doctor *doctor) {
    struct store_state state;
    struct latest_drift latest = {.is_found = false};
    enum status status = store_read_state(doctor->session, &state);
    if (status == STATUS_OK)
        status = store_walk_drifts(doctor->session, 1, &latest, keep_drift);
    if (status != STATUS_OK)
        doctor_say(doctor, FINDING_WRONG, RESTORE_ADVICE, "the drift cannot be read: %s",
                   store_session_error(doctor->session));
    else if (state.unprojected_from > 0)
        doctor_say(doctor, FINDING_WRONG,
                   "a running server folds them from the log; without one, 'khala reproject --all' "
                   "does",
                   "documents are behind the log, from log id %llu on",
                   (unsigned long long)state.unprojected_from);
    else if (latest.is_found && latest.seen_at_ms + DRIFT_MS > doctor->now_ms)
        doctor_say(doctor, FINDING_WARNING,
                   "it was repaired; GET /internal/v1/projectors/drift lists all of it",
                   "drift was found within the last day: %s", latest.text);
    else
        doctor_say(doctor, FINDING_OK, NULL, "documents are up to date, without drift in a day");
}

static void say_damage(void *user, const struct journal_damage *damage) {
    doctor_say(user, FINDING_WRONG, JOURNAL_ADVICE, "%.*s watermark %llu: %s",
               (int)damage->topic.size, damage->topic.data, (unsigned long long)damage->seq,
               damage->message);
}

static void check_journal(struct doctor *doctor) {
    const struct journal_check_options options = {doctor, say_damage};
    struct journal_check_result result;
    enum status status = journal_check(doctor->session, &options, &result);
    if (status != STATUS_OK)
        doctor_say(doctor, FINDING_WRONG, JOURNAL_ADVICE, "the journal cannot be read: %s",
                   store_session_error(doctor->session));
    else if (result.damages == 0)
        doctor_say(doctor, FINDING_OK, NULL, "%llu rows of %llu topics are whole",
                   (unsigned long long)result.rows, (unsigned long long)result.topics);
}

static void say_document(void *user, struct slice document_key, const char *message) {
    doctor_say(user, FINDING_WRONG,
               "no event is lost: a running server repairs it when it is next read or written; "
               "'khala reproject --all' does so now",
               "%.*s %s", (int)document_key.size, document_key.data, message);
}

static void check_documents(struct doctor *doctor) {
    const struct document_check_options options = {doctor, say_document};
    struct document_check_result result;
    enum status status = document_check(doctor->session, &options, &result);
    if (status != STATUS_OK)
        doctor_say(doctor, FINDING_WRONG, RESTORE_ADVICE, "the documents cannot be read: %s",
                   store_session_error(doctor->session));
    else if (result.damages == 0)
        doctor_say(doctor, FINDING_OK, NULL,
                   "%llu documents are whole and agree with their checkpoints",
                   (unsigned long long)result.documents);
}

static void check_outbox(struct doctor *doctor) {
    struct store_outbox_state state;
    enum status status = store_outbox_state(doctor->session, &state);
    if (status == STATUS_NOT_FOUND)
        return;
    if (status != STATUS_OK)
        doctor_say(doctor, FINDING_WRONG, RESTORE_ADVICE, "the outbox cannot be read: %s",
                   store_session_error(doctor->session));
    else if (state.waiting_count > 0 && state.oldest_age_ms > OUTBOX_AGE_MS_MAX)
        doctor_say(doctor, FINDING_WRONG, "see that a server runs on this database, and its log",
                   "%llu events appended by SQL wait, the oldest for %llu s",
                   (unsigned long long)state.waiting_count,
                   (unsigned long long)state.oldest_age_ms / 1000);
    else if (state.rejected_count > 0)
        doctor_say(doctor, FINDING_WARNING,
                   "read runtime.outbox_rejected, append again what is still wanted, then delete "
                   "its rows",
                   "%llu events appended by SQL were rejected; the latest: %s: %s",
                   (unsigned long long)state.rejected_count, state.rejected_code,
                   state.rejected_message);
    else
        doctor_say(doctor, FINDING_OK, NULL, "no event appended by SQL was rejected");
    if (status == STATUS_OK && !state.has_producer_role)
        doctor_say(doctor, FINDING_WARNING,
                   "run CREATE ROLE khala_producer NOLOGIN as an administrator, then SELECT "
                   "runtime.grant_producer('khala_producer') as the role of DB_URL",
                   "the role khala_producer, which may append by SQL, does not exist");
}

struct usage_tally {
    struct doctor *doctor;
    size_t count;
};

static enum status say_usage(void *user, const struct store_usage *stored,
                             const struct store_usage *counted) {
    struct usage_tally *tally = user;
    tally->count++;
    doctor_say(tally->doctor, FINDING_WRONG,
               "no event is lost, but quotas of the owner go by the stored numbers: stop the "
               "server, and replace the rows of owner_usage by those of owner_usage_counted",
               "usage of %.*s: %llu events, %llu bytes, %llu bytes of metadata, %llu open runs and "
               "%llu open workers are stored; counted are %llu, %llu, %llu, %llu and %llu",
               (int)stored->owner.size, stored->owner.data, (unsigned long long)stored->events,
               (unsigned long long)stored->bytes, (unsigned long long)stored->metadata_bytes,
               (unsigned long long)stored->open_runs, (unsigned long long)stored->open_workers,
               (unsigned long long)counted->events, (unsigned long long)counted->bytes,
               (unsigned long long)counted->metadata_bytes, (unsigned long long)counted->open_runs,
               (unsigned long long)counted->open_workers);
    return STATUS_OK;
}

static void check_usage(struct doctor *doctor) {
    struct usage_tally tally = {.doctor = doctor};
    enum status status =
        store_check_usages(doctor->session, USAGE_DIFFERENCES_MAX, &tally, say_usage);
    if (status != STATUS_OK)
        doctor_say(doctor, FINDING_WRONG, RESTORE_ADVICE, "the usage cannot be counted: %s",
                   store_session_error(doctor->session));
    else if (tally.count == 0)
        doctor_say(doctor, FINDING_OK, NULL, "the stored usage of every owner is what is counted");
}

struct node_tally {
    struct doctor *doctor;
    size_t live_count;
    size_t writer_count;                     /* live ones */
    char topics_hash[TOPIC_RULES_HASH_SIZE]; /* of the first live node that tells one */
    size_t hash_count;                       /* of live nodes that tell one */
    bool hashes_differ;
};

static enum status say_node(void *user, const struct store_node *node) {
    struct node_tally *tally = user;
    bool is_live = node->age_ms <= NODE_LIVE_MS;
    tally->live_count += is_live;
    tally->writer_count += is_live && node->is_writer;
    doctor_say(tally->doctor, is_live ? FINDING_OK : FINDING_WARNING,
               is_live ? NULL
                       : "see that it runs and reaches the database; 'khala nodes' lists all",
               "node %.*s at %.*s is %s%s", (int)node->id.size, node->id.data,
               (int)node->address.size, node->address.data, is_live ? "" : "lost; it was ",
               node->is_writer ? "the writer" : "a follower");
    /* Nodes of builds without topics files tell none. */
    if (!is_live || !node->topics_hash.data)
        return STATUS_OK;
    if (tally->hash_count++ == 0)
        snprintf(tally->topics_hash, sizeof(tally->topics_hash), "%.*s",
                 (int)node->topics_hash.size, node->topics_hash.data);
    else if (!slice_equal(node->topics_hash, slice_of(tally->topics_hash)))
        tally->hashes_differ = true;
    return STATUS_OK;
}

static void check_nodes(struct doctor *doctor) {
    struct node_tally tally = {.doctor = doctor};
    if (!store_is_shared(doctor->store))
        return;
    if (store_walk_nodes(doctor->session, &tally, say_node) != STATUS_OK)
        doctor_say(doctor, FINDING_WRONG, "see that the database answers",
                   "the nodes cannot be read: %s", store_session_error(doctor->session));
    else if (tally.live_count == 0)
        doctor_say(doctor, FINDING_OK, NULL, "no server runs on this database");
    else if (tally.writer_count == 0)
        doctor_say(
            doctor, FINDING_WRONG,
            "a follower takes the role within seconds; if none does, its log names the reason",
            "no live node is the writer: appends are refused");
    if (tally.hashes_differ)
        doctor_say(doctor, FINDING_WRONG,
                   "give every node the same KHALA_TOPICS_FILE and send it SIGHUP; 'khala nodes' "
                   "shows the hashes",
                   "the nodes have different topics files in force");
    else if (tally.hash_count > 0 && strcmp(tally.topics_hash, doctor->topics_hash) != 0)
        doctor_say(doctor, FINDING_WARNING,
                   "send the nodes SIGHUP if they are to use it; check that doctor has their "
                   "settings",
                   "the topics file here is not the one that the nodes have in force");
}

static void check_clock(struct doctor *doctor) {
    struct store_state state;
    if (store_read_state(doctor->session, &state) != STATUS_OK)
        return;
    uint64_t last_ms = state.log_id > 0 ? uuid7_timestamp_ms(&state.cursor) : 0;
    if (doctor->now_ms < CLOCK_MS_LEAST)
        doctor_say(doctor, FINDING_WRONG, "set the clock", "this machine's clock has not been set");
    else if (last_ms > doctor->now_ms + AHEAD_MS_MAX)
        doctor_say(doctor, FINDING_WRONG,
                   "compare the clock with a time server; if it is right, nothing needs doing: new "
                   "events keep their order, and recorded_at and retention go by the clock",
                   "the cursor clock runs %llu s ahead of this machine's clock",
                   (unsigned long long)(last_ms - doctor->now_ms) / 1000);
    else
        doctor_say(doctor, FINDING_OK, NULL, "no cursor is ahead of this machine's clock");
}

static void check_moved(struct doctor *doctor) {
    struct store_marks marks;
    if (store_marks_read(doctor->session, &marks) != STATUS_OK || !marks.out.is_set)
        return;
    doctor_say(doctor, FINDING_WRONG,
               marks.out.is_complete
                   ? "serve that store; 'khala migrate --undo-move' opens this one again"
                   : "repeat the command that moves it, or run 'khala migrate --undo-move'",
               "the store %s to %s", marks.out.is_complete ? "was moved" : "is being moved",
               marks.out.other);
}

/* The state of each relay says since when its target fails, and which documents it refuses. */
static void check_sinks(struct doctor *doctor) {
    for (unsigned i = 0; i < LABEL_SINK_COUNT; i++) {
        const char *sink = label_sink_name((enum label_sink)i);
        struct relay_state state;
        relay_state_load(&state, doctor->session, doctor->config.data_dir, (enum label_sink)i);
        const struct relay_waiting waiting = relay_state_waiting(&state);
        uint64_t since_ms = waiting.oldest ? waiting.oldest->since_ms : doctor->now_ms;
        uint64_t held_ms = doctor->now_ms > since_ms ? doctor->now_ms - since_ms : 0;
        if (state.failing_since_ms > 0)
            doctor_say(doctor, FINDING_WRONG,
                       "see that its target runs and takes the documents; the server sends again "
                       "by itself, and loses none",
                       "the sink %s fails: %s", sink, state.error);
        if (waiting.count > 0)
            doctor_say(doctor, FINDING_WRONG,
                       "make its target take them: the server sends the newest state of each again "
                       "within a minute or so; other documents go on",
                       "the sink %s holds %zu documents that its target refuses, the oldest, %s, "
                       "for %llu s: %s",
                       sink, waiting.count, waiting.oldest->key, (unsigned long long)held_ms / 1000,
                       state.refusal);
        if (state.failing_since_ms == 0 && waiting.count == 0 &&
            state.positions.is_known[DOCUMENT_RUN_SUMMARY])
            doctor_say(doctor, FINDING_OK, NULL, "the sink %s works", sink);
        relay_state_release(&state);
    }
}

/* In this order. What is compared with the log needs a log that can be read. */
static const struct {
    const char *name;
    void (*run)(struct doctor *doctor);
    bool needs_log;
} checks[] = {
    {"store", check_moved, false},    {"nodes", check_nodes, false},
    {"pages", check_pages, false},    {"projection", check_tables, false},
    {"chains", check_chains, true},   {"projection", check_projection, true},
    {"journal", check_journal, true}, {"documents", check_documents, true},
    {"usage", check_usage, true},     {"clock", check_clock, true},
    {"outbox", check_outbox, true},   {"sinks", check_sinks, false},
};

void doctor_check_store(struct doctor *doctor) {
    struct store_message message = {""};
    const char *url = config_store_url(&doctor->config);
    if (!doctor->has_folder && !*doctor->config.db_url)
        return;
    enum status status = store_open(&doctor->store, url, false, &message);
    if (status != STATUS_OK) {
        doctor_say(doctor, FINDING_WRONG,
                   status == STATUS_INTERNAL_ERROR ? RESTORE_ADVICE : "do as it says", "%s",
                   message.text);
        return;
    }
    doctor_say(doctor, FINDING_OK, NULL, "the schema is version %d, as this khala needs it",
               store_schema_version(url));
    if (store_session_open(doctor->store, STORE_READ, &doctor->session) != STATUS_OK) {
        doctor_say(doctor, FINDING_WRONG, RESTORE_ADVICE, "the store cannot be opened");
    } else {
        doctor->now_ms = clock_now().wall_ms;
        for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
            doctor->check = checks[i].name;
            if (!checks[i].needs_log || doctor->is_log_readable)
                checks[i].run(doctor);
        }
        store_session_close(doctor->session);
    }
    store_close(doctor->store);
}
