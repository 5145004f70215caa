/* A relay: sends the documents of the summary topics to another system, as the journal has them.
 * Thread: each relay has one of its own, with a read session. relay_wake and relay_stats: any
 * thread.
 * Memory: one page of frames or documents.
 * Errors: a target that fails delays no append and no other relay. A document that the target
 * refuses, while it takes others, is held: the frames of its entity wait, the others continue. Its
 * newest state is sent again, with growing delays. Otherwise a frame is sent again before any later
 * one. A relay whose position cannot resume sends all documents first. Documents and frames that
 * are missing or altered are repaired before they are sent; without a repair the relay tries again
 * later.
 * Invariant: each entity's documents arrive in order and at least once, except states that a later
 * one replaced while they were held. Positions and held documents are in the store, so a restart
 * continues; after a crash the frames of the last second may come again. */
#ifndef DELIVERY_RELAY_RELAY_H
#define DELIVERY_RELAY_RELAY_H

#include "authority/writer.h"
#include "delivery/relay/relay_position.h"
#include "store/store.h"
#include "topic/policy.h"

/* One frame for the target, as JSON, with the names that every dialect uses. */
struct relay_message {
    struct slice topic;
    struct slice document_key;
    struct slice id; /* the same for the same frame, when it is sent again */
    struct slice text;
};

enum relay_answer {
    RELAY_TAKEN,
    RELAY_REFUSED,     /* the target does not take this message; it may take others */
    RELAY_FAILED,      /* the target answered, and does not take this message now, or any */
    RELAY_UNREACHABLE, /* the target did not answer */
};

/* How a kind of relay reaches its target. */
struct relay_target {
    enum label_sink sink;
    void *user;
    /* RELAY_TAKEN only when the target has confirmed it. error gets the reason of another answer,
     * for people. stop_fd can be read when the relay ends. */
    enum relay_answer (*send)(void *user, const struct relay_message *message, int stop_fd,
                              char error[RELAY_ERROR_BYTES_MAX]);
    void (*close)(void *user);
};

struct relay_options {
    struct store *store;
    const struct policy_table *policies;
    struct slice projection_version;
    struct writer *writer; /* saves the positions, and repairs damage */
    const char *folder;    /* where earlier versions kept the positions */
    struct relay_target target;
};

struct relay_stats {
    enum label_sink sink;
    uint64_t sent;
    uint64_t failures;
    uint64_t waiting;          /* frames that are not sent yet */
    uint64_t failing_since_ms; /* since 1970; 0: the last message was taken */
    char error[RELAY_ERROR_BYTES_MAX];
    uint64_t held; /* documents that the target refuses */
    char held_key[RELAY_KEY_BYTES_MAX + 1];
    uint64_t held_since_ms; /* the oldest of them, as its key */
    char refusal[RELAY_ERROR_BYTES_MAX];
};

struct relay;

/* Takes the target, and closes it also when it fails. */
MUST_CHECK enum status relay_start(struct relay **relay, const struct relay_options *options);
/* There may be new frames. */
void relay_wake(struct relay *relay);
/* Ends the thread; a message under way may be sent again after a restart. */
void relay_stop(struct relay *relay);
struct relay_stats relay_stats(struct relay *relay);

/* Posts each message to an http or https URL, with the key as bearer. A 2xx answer takes it. */
MUST_CHECK enum status relay_webhook_open(struct relay_target *target, const char *url,
                                          const char *key);
/* Publishes each message to the subject PREFIX.TOPIC of a NATS server, with its id as Nats-Msg-Id,
 * so that a stream drops repetitions. */
MUST_CHECK enum status relay_nats_open(struct relay_target *target, const char *url,
                                       const char *prefix);

#endif
