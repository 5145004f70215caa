/* libkhala: follows topics of a Khala server and appends events to it.
 * Every function may be called by any thread; callbacks run on the thread of the client's loop, and
 * must not block. Texts given to a callback live until it returns; texts given to a function are
 * copied. A function returns KHALA_OK or the error; a callback of an event is called exactly once.
 * Every frame of a topic arrives in order and once, or a reset states that its history begins anew.
 */
#ifndef KHALA_KHALA_H
#define KHALA_KHALA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KHALA_API __attribute__((visibility("default")))

enum khala_result {
    KHALA_OK,
    KHALA_LATER,   /* a callback's result: the frame was not applied; khala_next offers it again */
    KHALA_FULL,    /* the queue of events is full: wait for the room callback */
    KHALA_INVALID, /* an argument is not valid */
    KHALA_CLOSED,  /* the client is closed */
    KHALA_NO_MEMORY, /* nothing was changed */
    KHALA_FAILED,    /* the operating system refused */
};

struct uv_loop_s;
struct khala;
struct khala_token;

/* Not NUL-terminated. data is NULL where a text is absent. */
struct khala_text {
    const char *data;
    size_t size;
};

struct khala_error {
    const char *code;
    const char *message;  /* the cause in words: the server's, or the library's own */
    const char *topic;    /* the topic of an event's entity; NULL: no single topic */
    unsigned http_status; /* 0: not of an HTTP answer */
    const char *details;  /* the server's details, a JSON object; NULL: none */
    bool is_final;        /* no later attempt can succeed */
    /* Names the request in the server's log and in khala why; NULL: the server has not seen one. */
    const char *request_id;
    unsigned retry_ms; /* the library tries again after that; 0: it does not wait */
};

/* Behind the last frame that was applied: exclusive. */
struct khala_position {
    const char *epoch; /* NULL in a start: not known, and the server may refuse the position */
    uint64_t seq;
};

struct khala_frame {
    const char *topic;
    uint64_t seq;
    struct khala_text kind;         /* a JSON string */
    struct khala_text payload;      /* JSON */
    struct khala_text json;         /* the frame, as much as the form has of it */
    struct khala_position position; /* store it with what the application makes of the frame */
};

/* The history of the topic begins anew. The application drops what it made of earlier frames. */
struct khala_reset {
    const char *topic;
    const char *reason; /* "start" at the first start */
    uint64_t from_seq;
    bool truncated; /* earlier frames exist that the application asked for, and will not arrive */
    struct khala_text documents; /* a JSON array: all documents of a summary topic; or absent */
    struct khala_position position;
};

/* What to do with a topic. frame and reset return KHALA_OK when the application has applied it, or
 * KHALA_LATER. Without reset, a reset that loses frames ends the topic. */
struct khala_follow {
    /* A topic or a stream id. One of a run or a worker that does not exist yet begins when it
     * exists for this client, after the warning topic_pending. */
    const char *topic;
    const char *replay; /* NULL, or "all": everything that the log has */
    /* After this position. NULL: after the stored position, or else at the beginning. */
    const struct khala_position *after;
    bool from_start; /* begin at the first frame, whatever is stored; after is NULL */
    /* Instead of the beginning, if there is no position: the next new frame, or the first frame of
     * a time such as "2026-11-16T08:00:00Z" or "90s" ago. */
    bool from_head;
    const char *since;
    void *user;
    enum khala_result (*frame)(void *user, const struct khala_frame *frame);
    enum khala_result (*reset)(void *user, const struct khala_reset *reset);
    /* Every frame that was there at the subscription was applied; the next ones are new. Comes
     * again after each connection. May be NULL. */
    void (*caught_up)(void *user);
    /* The last call for this topic. error is NULL if the application ended it. */
    void (*ended)(void *user, const struct khala_error *error);
    /* What the server sends of each frame. NULL is "lean": seq, kind, event_id, recorded_at and
     * payload, and of a summary doc_key, doc_version and seq_range. "full": everything. */
    const char *form;
    /* For views: older events whose type ends in ".delta" arrive joined, as one frame with the
     * member folded {"from_seq", "count"}. Its seq is that of the last one. Not with replay. */
    bool fold;
    /* For summary topics: a JSON object of status, tag, parent_run_id and worker_id, each a text or
     * a list of which any matches; NULL: all. A document that does not match any more arrives as a
     * frame of the kind "removed" with doc_key and doc_version, and no payload. A position holds
     * for one filter: with another one, begin with from_start. */
    const char *where;
    /* For summary topics: the newest frame of each document, at most this often; 0: all, up to
     * 5000. */
    unsigned conflate_ms;
};

/* The answer to an event. */
struct khala_answer {
    const struct khala_error *error; /* NULL: the event is stored */
    const char *event_id;
    struct khala_text event; /* the stored event as JSON; absent with an error */
    bool deduplicated;       /* it was stored before, by an attempt whose answer was lost */
    struct khala_text json;  /* the server's answer to this event; absent if it has none */
};

enum khala_state {
    KHALA_STATE_IDLE, /* no topic is followed */
    KHALA_STATE_AUTHENTICATING,
    KHALA_STATE_CONNECTING,
    KHALA_STATE_JOINING,
    KHALA_STATE_LIVE,
    KHALA_STATE_REAUTHENTICATING, /* otherwise like live */
    KHALA_STATE_BACKING_OFF,
    KHALA_STATE_CLOSED, /* the last state */
};

/* Members that are zero have their defaults. */
struct khala_options {
    const char *url;        /* http[s]://HOST[:PORT] */
    const char *ca_file;    /* PEM of the authorities to trust; NULL: the system's */
    struct uv_loop_s *loop; /* NULL: a thread of its own runs a loop */
    void *user;
    /* Asks for a token: answer with khala_token_give or khala_token_fail, now or later, once. Each
     * connection and each request without a key asks for a new one. NULL: requests have keys, and
     * nothing else is used. */
    void (*token)(void *user, struct khala_token *token);
    /* Positions of topics as text. load writes at most size bytes and returns their number, 0 if
     * there is none, -1 if it failed. save returns 0, or -1 if it failed. NULL: not stored. load
     * may also give SEQ or SEQ@EPOCH, as the server hands out positions. */
    int (*load)(void *user, const char *topic, char *text, size_t size);
    int (*save)(void *user, const char *topic, const char *text, size_t size);
    void (*changed)(void *user, enum khala_state state, const struct khala_error *error);
    /* An error that the client survives. Events that are sent again after retry_ms: the server has
     * no room for them now (429, 503), cannot be reached, or did not answer. topic is NULL if they
     * go to several. */
    void (*warned)(void *user, const struct khala_error *error);
    /* The client is gone. With a loop of the application, this ends khala_close. */
    void (*closed)(void *user);
    const char *client_build_id; /* a server with a compatibility gate checks it */
    unsigned back_off_base_ms;   /* 300 */
    unsigned back_off_max_ms;    /* 30000 */
    unsigned token_timeout_ms;   /* 15000 */
    unsigned connect_timeout_ms; /* 15000 */
    unsigned queue_frames_max;   /* 1000, of each topic whose application answers KHALA_LATER */
    /* Appending. */
    void (*room)(void *user); /* the queue was full, and has room again */
    /* A file that keeps events until their answer; NULL: none. An event that khala_append accepted
     * survives the death of the process. The file is synced to its disk soon after, once for all
     * events that wait, so a loss of power may lose the last events. */
    const char *outbox;
    /* NULL: /v1/events:batch, for tokens. /internal/v1/events:batch takes the operator's key too.
     */
    const char *append_path;
    unsigned append_items_max;    /* 1000 in the queue */
    unsigned append_bytes_max;    /* 8 MiB */
    unsigned append_requests_max; /* 4 at once, which is also the most */
    unsigned batch_items_max;     /* 200, which is also the most */
    unsigned batch_bytes_max;     /* 1 MiB, which is also the most */
    unsigned batch_ms;            /* 5 */
    unsigned request_timeout_ms;  /* 30000 */
    unsigned close_timeout_ms;    /* 10000: how long khala_close waits for answers to events */
};

KHALA_API enum khala_result khala_open(struct khala **client, const struct khala_options *options);
/* Ends every topic, sends what is queued and waits for its answers, up to close_timeout_ms; then
 * frees the client. An event that has no answer by then gets the error closed, whose message says
 * whether the server may have stored it; an outbox keeps it. With its own thread khala_close
 * returns when all is done; it must not be called by a callback then. */
KHALA_API void khala_close(struct khala *client);
/* The machine woke up or its network came back: the client checks its connection at once. */
KHALA_API enum khala_result khala_wake(struct khala *client);

KHALA_API void khala_token_give(struct khala_token *token, const char *text);
/* is_final closes the client. */
KHALA_API void khala_token_fail(struct khala_token *token, const char *message, bool is_final);

/* Follows a topic, which gets a number that names it. A second follower of one topic is
 * KHALA_INVALID by its ended callback, with the code already_followed. */
KHALA_API enum khala_result khala_follow(struct khala *client, const struct khala_follow *follow,
                                         uint64_t *number);
/* Offers the frame again that the application answered with KHALA_LATER. */
KHALA_API enum khala_result khala_next(struct khala *client, uint64_t number);
KHALA_API enum khala_result khala_unfollow(struct khala *client, uint64_t number);

/* The whole log in the order of its commits, by event cursors. The token needs runtime.audit or
 * runtime.read_all. Failed connections are warnings; the library reconnects by itself. */
struct khala_follow_log {
    const char *after; /* a cursor, exclusive; NULL: the beginning */
    bool from_head;    /* instead of the beginning: the next new event */
    const char *since; /* instead of the beginning: the first event of a time */
    void *user;
    /* The cursor, to be stored with what the application makes of the event, as after. */
    void (*event)(void *user, const char *cursor, struct khala_text event);
    /* The log has lost the cursor's event: the log begins anew. May be NULL. */
    void (*reset)(void *user, const char *reason);
    /* The server sent something, at least a heartbeat; events came before. May be NULL. */
    void (*heard)(void *user);
    /* The last call. error is NULL if the application ended it by khala_unfollow. */
    void (*ended)(void *user, const struct khala_error *error);
};

KHALA_API enum khala_result
khala_follow_log(struct khala *client, const struct khala_follow_log *follow, uint64_t *number);

/* Appends an event: a JSON object as of POST /v1/events:batch, such as {"topic":"room:1",
 * "event_type":"said","payload":{}}. It gets an event_id if it has none, so a repeated request
 * stores it once. KHALA_FULL: nothing was changed; wait for the room callback. answered may be
 * NULL, and is called once after KHALA_OK. The events of one run, worker or topic keep their order.
 * While the server refuses one of them for now, only its events wait; it gets KHALA_FULL before it
 * fills the queue of the others. Events that the outbox has are sent first by the next client with
 * this outbox; their answers have no callback. */
KHALA_API enum khala_result
khala_append(struct khala *client, struct khala_text event,
             void (*answered)(void *user, const struct khala_answer *answer), void *user);
/* Sends what is queued now, and calls back when every event that was appended before has its
 * answer. */
KHALA_API enum khala_result khala_flush(struct khala *client, void (*done)(void *user), void *user);

/* Asks the server for a token with the operator's key, for a backend that issues tokens. The
 * request is the JSON object of POST /api/sync/token, such as {"scopes":["runtime.read_all"]}. The
 * answer has a token or an error, and is given once after KHALA_OK. */
KHALA_API enum khala_result
khala_mint(struct khala *client, const char *key, struct khala_text request,
           void (*answered)(void *user, const char *token, const struct khala_error *error),
           void *user);

/* A plain HTTP request to the server, with a token of the token callback or with a key. */
struct khala_request {
    const char *method;       /* NULL: GET, or POST with a body */
    const char *path;         /* includes the query, encoded */
    const char *key;          /* instead of a token; "" is neither */
    const char *content_type; /* NULL: no body */
    struct khala_text body;
    void *user;
    /* Sets the next piece of a body of any length, which lives until the next call; NULL: body is
     * all. KHALA_LATER: nothing now; khala_next asks again. Another result ends the request. */
    enum khala_result (*more)(void *user, struct khala_text *piece, bool *is_last);
    /* A piece of the answer's body, also of a refusal. Another result than KHALA_OK ends the
     * request. May be NULL. */
    enum khala_result (*piece)(void *user, unsigned http_status, struct khala_text piece);
    /* The last call. error is NULL if the answer is complete, whatever its status. Nothing is sent
     * again: connect_failed means that the server has not seen the request. */
    void (*answered)(void *user, unsigned http_status, const struct khala_error *error);
};

/* The request gets a number that names it, for khala_next and khala_cancel; number may be NULL. It
 * may take connect_timeout_ms to connect, and stay silent for request_timeout_ms. */
KHALA_API enum khala_result khala_request(struct khala *client, const struct khala_request *request,
                                          uint64_t *number);
/* Ends a request: its answered callback gets the error cancelled. */
KHALA_API enum khala_result khala_cancel(struct khala *client, uint64_t number);

KHALA_API const char *khala_version(void);

#ifdef __cplusplus
}
#endif

#endif
