#include "rows.h"

#include <stdio.h>

#include "base/sha256.h"

#define TIME_MS UINT64_C(1700000000000)

static const struct owner rows_owner = {.user_id = {"user", 4}, .org_id = {"org", 3}};

void rows_hash(uint8_t hash[SHA256_BYTES], uint64_t number) {
    sha256(&number, sizeof(number), hash);
}

uint64_t rows_time_ms(uint64_t log_id) {
    return TIME_MS + 10 * (log_id / 3);
}

static struct uuid uuid_at(uint64_t timestamp_ms, uint64_t number) {
    struct uuid uuid = {{0}};
    for (int i = 0; i < 6; i++)
        uuid.bytes[i] = (uint8_t)(timestamp_ms >> (40 - 8 * i));
    uuid.bytes[6] = 0x70;
    uuid.bytes[8] = 0x80;
    for (int i = 0; i < 7; i++)
        uuid.bytes[9 + i] = (uint8_t)(number >> (48 - 8 * i));
    return uuid;
}

struct uuid rows_cursor(uint64_t log_id) {
    return uuid_at(rows_time_ms(log_id), log_id);
}

struct uuid rows_client_id(uint64_t number) {
    return uuid_at(rows_time_ms(number) + 5, number);
}

struct store_entity rows_run(uint64_t ref, struct rows_text *id) {
    snprintf(id->bytes, sizeof(id->bytes), "run-%llu", (unsigned long long)ref);
    return (struct store_entity){
        .ref = ref,
        .kind = ENTITY_RUN,
        .id = slice_of(id->bytes),
        .owner = rows_owner,
        .status = SLICE("running"),
        .worker_id = SLICE("worker"),
        .thread_id = SLICE("thread"),
        .workspace_ref = SLICE("workspace"),
        .codex_home_ref = SLICE("home"),
        .adapter = SLICE("in_memory"),
        .metadata = SLICE("{\"a\":1}"),
        .created_at_ms = TIME_MS + ref,
        .started_at_ms = TIME_MS + ref + 1,
        .stopped_at_ms = TIME_MS + ref + 2,
        .last_heartbeat_at_ms = TIME_MS + ref + 3,
    };
}

struct store_event rows_event(uint64_t log_id, uint64_t entity_ref, uint64_t seq) {
    struct store_event event = {
        .log_id = log_id,
        .entity_ref = entity_ref,
        .seq = seq,
        .entity_kind = entity_ref == 1 ? ENTITY_TOPIC : ENTITY_RUN,
        .type = SLICE("run.note"),
        .payload = SLICE("{\"text\":\"h\xc3\xa9llo\"}"),
        .event_id = rows_cursor(log_id),
        .cursor = rows_cursor(log_id),
        .recorded_at_ms = rows_time_ms(log_id),
        .chain_version = STORE_CHAIN_VERSION,
    };
    if (event.entity_kind == ENTITY_RUN)
        event.owner = rows_owner;
    rows_hash(event.payload_hash, 3 * log_id);
    rows_hash(event.prev_chain_hash, 3 * log_id + 1);
    rows_hash(event.chain_hash, 3 * log_id + 2);
    return event;
}

struct store_topic rows_topic(uint64_t ref, uint64_t entity_ref, struct rows_text name[2]) {
    snprintf(name[0].bytes, sizeof(name[0].bytes), "topic:%llu", (unsigned long long)ref);
    snprintf(name[1].bytes, sizeof(name[1].bytes), "runtime.topic.%llu", (unsigned long long)ref);
    return (struct store_topic){.ref = ref,
                                .name = slice_of(name[0].bytes),
                                .stream_id = slice_of(name[1].bytes),
                                .entity_ref = entity_ref,
                                .oldest_seq = 1};
}

struct store_document rows_document(enum document_kind kind, uint64_t entity_ref, uint64_t version,
                                    struct rows_text *key) {
    snprintf(key->bytes, sizeof(key->bytes), "runtime/%s:%llu", document_kind_name(kind),
             (unsigned long long)entity_ref);
    struct store_document document = {.kind = kind,
                                      .entity_ref = entity_ref,
                                      .key = slice_of(key->bytes),
                                      .version = version,
                                      .payload = SLICE("{\"summary\":true}")};
    rows_hash(document.payload_hash, version);
    return document;
}

struct store_checkpoint rows_checkpoint(enum document_kind kind, uint64_t entity_ref,
                                        uint64_t seq) {
    struct store_checkpoint checkpoint = {.kind = kind,
                                          .entity_ref = entity_ref,
                                          .document_id = SLICE("runtime/run_summary:x"),
                                          .last_runtime_seq = seq,
                                          .projection_version = SLICE("khala_summary_v2"),
                                          .last_projected_at_ms = TIME_MS + seq};
    rows_hash(checkpoint.summary_hash, seq);
    return checkpoint;
}

struct store_journal_row rows_journal(uint64_t topic_ref, uint64_t seq, uint64_t log_id) {
    struct store_journal_row row = {.topic_ref = topic_ref,
                                    .seq = seq,
                                    .log_id = log_id,
                                    .entity_ref = topic_ref + 100,
                                    .first_seq = seq % 3, /* 0: covers one event */
                                    .document_version = seq + 7,
                                    .payload = SLICE("{\"frame\":true}"),
                                    .published_at_ms = TIME_MS + seq};
    if (seq % 2 == 0)
        row.fields_before = SLICE("{\"was\":null}");
    rows_hash(row.payload_hash, seq);
    return row;
}
