/* Rows for tests: everything about them follows from a few numbers, so that what is read back can
 * be told from what was written without keeping it. */
#ifndef ROWS_H
#define ROWS_H

#include "store/store.h"

#define ROWS_TEXT_BYTES 64

/* Texts that live as long as the array they are kept in. */
struct rows_text {
    char bytes[ROWS_TEXT_BYTES];
};

void rows_hash(uint8_t hash[SHA256_BYTES], uint64_t number);
/* A cursor that rises with the log: three events share a millisecond. */
struct uuid rows_cursor(uint64_t log_id);
/* An id a client might have chosen, of its own millisecond. */
struct uuid rows_client_id(uint64_t number);
uint64_t rows_time_ms(uint64_t log_id);

/* A run with every attribute an entity can have. */
struct store_entity rows_run(uint64_t ref, struct rows_text *id);
/* Event log_id, the seq-th of an entity; its id is the cursor's. */
struct store_event rows_event(uint64_t log_id, uint64_t entity_ref, uint64_t seq);
struct store_topic rows_topic(uint64_t ref, uint64_t entity_ref, struct rows_text name[2]);
struct store_document rows_document(enum document_kind kind, uint64_t entity_ref, uint64_t version,
                                    struct rows_text *key);
struct store_checkpoint rows_checkpoint(enum document_kind kind, uint64_t entity_ref, uint64_t seq);
struct store_journal_row rows_journal(uint64_t topic_ref, uint64_t seq, uint64_t log_id);

#endif
