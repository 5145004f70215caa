#include <stdio.h>

#include "base/clock.h"
#include "cli/doctor/doctor.h"
#include "cli/local_store.h"
#include "cluster/nodes.h"
#include "delivery/relay/relay_position.h"
#include "projector/document_check.h"
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

static void check_pages(struct doctor *doctor, struct store_session *session) {
    struct store_message message = {""};
    doctor->check = "pages";
    enum status status = store_check_pages(session, false, &message);
    if (status == STATUS_OK)
        doctor_say(doctor, FINDING_OK, NULL, "every page of the store is sound");
    else if (status == STATUS_INVALID_CONFIG) /* the database checks its own pages */
        doctor_say(doctor, FINDING_OK, NULL, "%s", message.text);
    else
        doctor_say(doctor, FINDING_WRONG, RESTORE_ADVICE, "the store is damaged: %s", message.text);
}

/* False: the log cannot be read, so nothing can be compared with it. */
static bool check_chains(struct doctor *doctor, struct store_session *session, uint64_t now_ms) {
    const struct verify_sample sample = {STRETCH_COUNT, STRETCH_EVENTS, now_ms};
    struct verify_result result;
    doctor->check = "chains";
    enum status status = verify_sample(session, &sample, &result);
    if (status != STATUS_OK)
        doctor_say(doctor, FINDING_WRONG, RESTORE_ADVICE, "the log cannot be read: %s",
                   store_session_error(session));
    else if (result.is_broken)
        doctor_say(doctor, FINDING_WRONG, RESTORE_ADVICE, "log id %llu (%s seq %llu): %s",
                   (unsigned long long)result.broken.log_id, result.broken.entity,
                   (unsigned long long)result.broken.seq, result.broken.message);
    else
        doctor_say(doctor, FINDING_OK, NULL,
                   "%llu events looked at: hashes and links hold ('khala verify' looks at all)",
                   (unsigned long long)result.events);
    return status == STATUS_OK;
}

/* Documents, checkpoints, journal and topics follow from the log, so nothing is lost with them. */
static bool check_tables(struct doctor *doctor, struct store_session *session) {
    struct store_message message = {""};
    doctor->check = "projection";
    if (store_check_derived(session, &message) == STATUS_OK)
        return true;
    doctor_say(doctor, FINDING_WRONG,
               "no event is lost: 'khala serve' or 'khala reproject --all' makes the table again "
               "from the log",
               "%s", message.text);
    return false;
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

static void check_projection(struct doctor *doctor, struct store_session *session,
                             uint64_t now_ms) {
    struct store_state state;
    struct latest_drift latest = {.is_found = false};
    doctor->check = "projection";
    enum status status = store_read_state(session, &state);
    if (status == STATUS_OK)
        status = store_walk_drifts(session, 1, &latest, keep_drift);
    if (status != STATUS_OK)
        doctor_say(doctor, FINDING_WRONG, RESTORE_ADVICE, "the drift cannot be read: %s",
                   store_session_error(session));
    else if (state.unprojected_from > 0)
        doctor_say(doctor, FINDING_WRONG,
                   "a running server folds them from the log; without one, 'khala reproject --all' "
                   "does",
                   "documents are behind the log, from log id %llu on",
                   (unsigned long long)state.unprojected_from);
    else if (latest.is_found && latest.seen_at_ms + DRIFT_MS > now_ms)
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

static void check_journal(struct doctor *doctor, struct store_session *session) {
    const struct journal_check_options options = {doctor, say_damage};
    struct journal_check_result result;
    doctor->check = "journal";
    enum status status = journal_check(session, &options, &result);
    if (status != STATUS_OK)
        doctor_say(doctor, FINDING_WRONG, JOURNAL_ADVICE, "the journal cannot be read: %s",
                   store_session_error(session));
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

static void check_documents(struct doctor *doctor, struct store_session *session) {
    const struct document_check_options options = {doctor, say_document};
    struct document_check_result result;
    doctor->check = "documents";
    enum status status = document_check(session, &options, &result);
    if (status != STATUS_OK)
        doctor_say(doctor, FINDING_WRONG, RESTORE_ADVICE, "the documents cannot be read: %s",
                   store_session_error(session));
    else if (result.damages == 0)
        doctor_say(doctor, FINDING_OK, NULL,
                   "%llu documents are whole and agree with their checkpoints",
                   (unsigned long long)result.documents);
}

static void check_outbox(struct doctor *doctor, struct store_session *session) {
    struct store_outbox_state state;
    doctor->check = "outbox";
    enum status status = store_outbox_state(session, &state);
    if (status == STATUS_NOT_FOUND)
        return;
    if (status != STATUS_OK)
        doctor_say(doctor, FINDING_WRONG, RESTORE_ADVICE, "the outbox cannot be read: %s",
                   store_session_error(session));
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

static void check_usage(struct doctor *doctor, struct store_session *session) {
    struct usage_tally tally = {.doctor = doctor};
    doctor->check = "usage";
    enum status status = store_check_usages(session, USAGE_DIFFERENCES_MAX, &tally, say_usage);
    if (status != STATUS_OK)
        doctor_say(doctor, FINDING_WRONG, RESTORE_ADVICE, "the usage cannot be counted: %s",
                   store_session_error(session));
    else if (tally.count == 0)
        doctor_say(doctor, FINDING_OK, NULL, "the stored usage of every owner is what is counted");
}

struct node_tally {
    struct doctor *doctor;
    size_t live_count;
    size_t writer_count; /* live ones */
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
    return STATUS_OK;
}

static void check_nodes(struct doctor *doctor, struct store_session *session) {
    struct node_tally tally = {.doctor = doctor};
    doctor->check = "nodes";
    if (store_walk_nodes(session, &tally, say_node) != STATUS_OK)
        doctor_say(doctor, FINDING_WRONG, "see that the database answers",
                   "the nodes cannot be read: %s", store_session_error(session));
    else if (tally.live_count == 0)
        doctor_say(doctor, FINDING_OK, NULL, "no server runs on this database");
    else if (tally.writer_count == 0)
        doctor_say(
            doctor, FINDING_WRONG,
            "a follower takes the role within seconds; if none does, its log names the reason",
            "no live node is the writer: appends are refused");
}

static void check_clock(struct doctor *doctor, struct store_session *session, uint64_t now_ms) {
    struct store_state state;
    doctor->check = "clock";
    if (store_read_state(session, &state) != STATUS_OK)
        return;
    uint64_t last_ms = state.log_id > 0 ? uuid7_timestamp_ms(&state.cursor) : 0;
    if (now_ms < CLOCK_MS_LEAST)
        doctor_say(doctor, FINDING_WRONG, "set the clock", "this machine's clock has not been set");
    else if (last_ms > now_ms + AHEAD_MS_MAX)
        doctor_say(doctor, FINDING_WRONG,
                   "compare the clock with a time server; if it is right, nothing needs doing: new "
                   "events keep their order, and recorded_at and retention go by the clock",
                   "the cursor clock runs %llu s ahead of this machine's clock",
                   (unsigned long long)(last_ms - now_ms) / 1000);
    else
        doctor_say(doctor, FINDING_OK, NULL, "no cursor is ahead of this machine's clock");
}

static void check_moved(struct doctor *doctor, struct store_session *session) {
    struct store_marks marks;
    if (store_marks_read(session, &marks) != STATUS_OK || !marks.out.is_set)
        return;
    doctor_say(doctor, FINDING_WRONG,
               marks.out.is_complete
                   ? "serve that store; 'khala migrate --undo-move' opens this one again"
                   : "repeat the command that moves it, or run 'khala migrate --undo-move'",
               "the store %s to %s", marks.out.is_complete ? "was moved" : "is being moved",
               marks.out.other);
}

static void say_sink(struct doctor *doctor, const char *sink, const struct relay_state *state,
                     uint64_t now_ms) {
    const struct relay_waiting waiting = relay_state_waiting(state);
    uint64_t since_ms = waiting.oldest ? waiting.oldest->since_ms : now_ms;
    if (state->failing_since_ms > 0)
        doctor_say(doctor, FINDING_WRONG,
                   "see that its target runs and takes the documents; the server sends again by "
                   "itself, and loses none",
                   "the sink %s fails: %s", sink, state->error);
    if (waiting.count > 0)
        doctor_say(doctor, FINDING_WRONG,
                   "make its target take them: the server sends the newest state of each again "
                   "within a minute or so; other documents go on",
                   "the sink %s holds %zu documents that its target refuses, the oldest, %s, for "
                   "%llu s: %s",
                   sink, waiting.count, waiting.oldest->key,
                   (unsigned long long)(now_ms > since_ms ? now_ms - since_ms : 0) / 1000,
                   state->refusal);
    if (state->failing_since_ms == 0 && waiting.count == 0 &&
        state->positions.is_known[DOCUMENT_RUN_SUMMARY])
        doctor_say(doctor, FINDING_OK, NULL, "the sink %s works", sink);
}

/* The state of each relay says since when its target fails, and which documents it refuses. */
static void check_sinks(struct doctor *doctor, struct store_session *session, uint64_t now_ms) {
    doctor->check = "sinks";
    for (unsigned i = 0; i < LABEL_SINK_COUNT; i++) {
        struct relay_state state;
        relay_state_load(&state, session, doctor->config.data_dir, (enum label_sink)i);
        say_sink(doctor, label_sink_name((enum label_sink)i), &state, now_ms);
        relay_state_release(&state);
    }
}

static void check_inside(struct doctor *doctor, struct store *store) {
    struct store_session *session = NULL;
    struct clock clock;
    clock_init(&clock);
    if (store_session_open(store, STORE_READ, &session) != STATUS_OK) {
        doctor_say(doctor, FINDING_WRONG, RESTORE_ADVICE, "the store cannot be opened");
        return;
    }
    check_moved(doctor, session);
    if (store_is_shared(store))
        check_nodes(doctor, session);
    check_pages(doctor, session);
    if (check_tables(doctor, session) && check_chains(doctor, session, clock_wall_ms(&clock))) {
        check_projection(doctor, session, clock_wall_ms(&clock));
        check_journal(doctor, session);
        check_documents(doctor, session);
        check_usage(doctor, session);
        check_clock(doctor, session, clock_wall_ms(&clock));
        check_outbox(doctor, session);
    }
    check_sinks(doctor, session, clock_wall_ms(&clock));
    store_session_close(session);
}

void doctor_check_store(struct doctor *doctor) {
    struct store *store = NULL;
    struct store_message message = {""};
    const char *url = config_store_url(&doctor->config);
    if (!doctor->has_folder && !*doctor->config.db_url)
        return;
    enum status status = store_open(&store, url, false, &message);
    if (status != STATUS_OK) {
        doctor_say(doctor, FINDING_WRONG,
                   status == STATUS_INTERNAL_ERROR ? RESTORE_ADVICE : "do as it says", "%s",
                   message.text);
        return;
    }
    doctor_say(doctor, FINDING_OK, NULL, "the schema is version %d, as this khala needs it",
               store_schema_version(url));
    check_inside(doctor, store);
    store_close(store);
}
