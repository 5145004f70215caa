/* Commands of any thread to the loop of a client.
 * Thread: any for inbox_post; the loop's for inbox_take.
 * Memory: counted: the client and each unanswered question for a token hold it. A posted command
 * belongs to the inbox until it is taken; a closed inbox frees it at once.
 * Errors: none for want of memory, because the command's owner allocated it.
 * Invariant: commands arrive in the order in which they were posted. A draining inbox accepts only
 * commands that end what was begun. */
#ifndef CLIENT_INBOX_H
#define CLIENT_INBOX_H

#include <uv.h>

#include "base/list.h"
#include "spec/codes.h"

enum command_kind {
    COMMAND_FOLLOW,
    COMMAND_FOLLOW_LOG,
    COMMAND_UNFOLLOW,
    COMMAND_NEXT,
    COMMAND_TOKEN,
    COMMAND_WAKE,
    COMMAND_CLOSE,
    COMMAND_APPEND,
    COMMAND_FLUSH,
    COMMAND_REQUEST,
    COMMAND_CANCEL,
};

struct command {
    struct list_node node;
    enum command_kind kind;
    void (*free)(struct command *command);
};

struct inbox {
    uv_mutex_t lock;
    uv_async_t *wake; /* NULL: closed */
    bool is_draining;
    struct list commands;
    unsigned references;
};

MUST_CHECK enum status inbox_make(struct inbox **inbox);
void inbox_hold(struct inbox *inbox);
void inbox_let_go(struct inbox *inbox);
/* Commands that were posted before are found by the first wake-up. */
void inbox_open(struct inbox *inbox, uv_async_t *wake);
/* Posts the command, the last one that begins something. */
void inbox_drain(struct inbox *inbox, struct command *command);
/* Takes no more commands. Those that wait can still be taken. */
void inbox_close(struct inbox *inbox);
/* False: the inbox does not take the command any more, and freed it. */
bool inbox_post(struct inbox *inbox, struct command *command);
/* The next command, which the caller frees, or NULL. */
struct command *inbox_take(struct inbox *inbox);

#endif
