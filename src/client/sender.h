/* Appends events: each has an id from the start, so a repeated request stores no second event.
 * Thread: any for sender_make_item and sender_forget; that of the client's loop for the others.
 * Memory: owns its items until their answer, which is their last call.
 * Errors: a full queue refuses an item. Want of memory counts as a lost connection.
 * Invariant: the events of one entity are a lane: at most one request has events of it, so they
 * keep their order, and only the lane rests while the server refuses it. Other lanes go on. */
#ifndef CLIENT_SENDER_H
#define CLIENT_SENDER_H

#include <khala/khala.h>

#include "base/map.h"
#include "base/uuid7.h"
#include "client/client_error.h"
#include "client/client_limits.h"
#include "client/http_call.h"
#include "client/inbox.h"
#include "client/outbox_file.h"

enum lane_state { LANE_READY, LANE_IN_FLIGHT, LANE_RESTING };

struct sender_lane {
    /* Under the lock. The last item frees the lane. */
    size_t item_count;
    size_t item_bytes;
    bool is_refused; /* for now: it may use no more of the queue than it leaves free */
    /* Of the loop's thread. */
    enum lane_state state;
    struct list_node resting_node;
    size_t queue_count;
    size_t queue_bytes;
    uint64_t retry_at_ms; /* while it rests */
    unsigned attempts;
    size_t name_size;
    char name[]; /* the topic of the entity; "" if the event names none */
};

struct sender_item {
    struct command command;
    struct list_node node;
    struct sender_lane *lane;
    uint64_t number;             /* in the order of the queue */
    bool was_sent;               /* at least once: the server may have stored it */
    char id[UUID_TEXT_SIZE + 1]; /* "" if an answer may have another id */
    char stored_id[UUID_TEXT_SIZE + 1];
    void *user;
    void (*answered)(void *user, const struct khala_answer *answer);
    size_t size;
    char line[]; /* ends with a line feed */
};

struct sender_hooks {
    void *user;
    void (*ask_token)(void *user, uint64_t ask);
    void (*wait)(void *user, uint64_t at_ms);
};

struct sender;

struct sender_call {
    struct sender *sender;
    struct http_call *http;                            /* NULL: no request is in flight */
    struct sender_item *items[CLIENT_BATCH_ITEMS_MAX]; /* NULL: answered */
    size_t count;
    uint64_t until_ms;
    uint64_t ask; /* the number of its token */
};

struct sender {
    const struct khala_options *options;
    const struct sender_hooks *hooks;
    struct client_net *net;
    /* Under the lock. */
    uv_mutex_t *lock;
    size_t count;
    size_t bytes;
    bool was_full;
    struct uuid7_generator ids;
    struct outbox_file outbox;
    struct map lanes;        /* keyed by name */
    struct buffer lane_name; /* lane of the event that is read */
    /* Of the loop's thread. */
    struct list queue;
    uint64_t last_number;
    size_t ready_count; /* in lanes that are ready */
    size_t ready_bytes;
    struct list resting; /* lanes */
    struct list flushes;
    struct sender_call calls[CLIENT_APPEND_REQUESTS_MAX];
    size_t items_max;
    struct buffer token;
    uint64_t token_until_ms; /* 0: no token */
    uint64_t asks;
    bool is_asking;
    uint64_t ask_until_ms;
    uint64_t send_at_ms;  /* 0: nothing waits to be sent */
    uint64_t retry_at_ms; /* all lanes wait until then; 0: no wait */
    unsigned attempts;
    unsigned refusals;
    bool is_failed;
    struct client_error error;
    uv_fs_t sync; /* the outbox's */
    bool is_syncing;
    bool must_sync; /* events were added to the outbox after the sync in progress began */
};

/* Reads the outbox too. Call it before the loop runs. */
MUST_CHECK enum status sender_init(struct sender *sender, const struct khala_options *options,
                                   const struct sender_hooks *hooks, uv_mutex_t *lock,
                                   struct client_net *net);
/* Answers every event with "closed". */
void sender_stop(struct sender *sender);
void sender_release(struct sender *sender);

/* The result of a status of sender_init or of the outbox. */
enum khala_result sender_result(enum status status);
/* Counts the event, gives it an id and stores it in the outbox. KHALA_OK: post the item. */
enum khala_result sender_make_item(struct sender *sender, struct slice event,
                                   struct sender_item **item);
/* Frees an item that could not be posted. */
void sender_forget(struct sender *sender, struct sender_item *item);
/* Takes the item. */
void sender_add(struct sender *sender, struct sender_item *item);
/* Sends at once. The command is freed with its call when every event that was added before has its
 * answer. */
struct flush_command {
    struct command command;
    struct list_node node;
    uint64_t number; /* the last event that it waits for */
    void *user;
    void (*done)(void *user);
};
void sender_flush(struct sender *sender, struct flush_command *flush);
void sender_token(struct sender *sender, uint64_t ask, const char *text,
                  const struct client_error *error);
void sender_tick(struct sender *sender);

#endif
