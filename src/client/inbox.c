#include "client/inbox.h"

#include <stdlib.h>

enum status inbox_make(struct inbox **inbox) {
    struct inbox *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    if (uv_mutex_init(&made->lock) != 0) {
        free(made);
        return STATUS_SYSTEM_ERROR;
    }
    list_init(&made->commands);
    made->references = 1;
    *inbox = made;
    return STATUS_OK;
}

void inbox_hold(struct inbox *inbox) {
    uv_mutex_lock(&inbox->lock);
    inbox->references++;
    uv_mutex_unlock(&inbox->lock);
}

void inbox_let_go(struct inbox *inbox) {
    uv_mutex_lock(&inbox->lock);
    unsigned left = --inbox->references;
    uv_mutex_unlock(&inbox->lock);
    if (left > 0)
        return;
    uv_mutex_destroy(&inbox->lock);
    free(inbox);
}

void inbox_open(struct inbox *inbox, uv_async_t *wake) {
    uv_mutex_lock(&inbox->lock);
    inbox->wake = wake;
    uv_mutex_unlock(&inbox->lock);
}

struct command *inbox_take(struct inbox *inbox) {
    uv_mutex_lock(&inbox->lock);
    struct list_node *node = list_pop_front(&inbox->commands);
    uv_mutex_unlock(&inbox->lock);
    return node ? container_of(node, struct command, node) : NULL;
}

void inbox_close(struct inbox *inbox) {
    inbox_open(inbox, NULL);
}

/* Under the lock: the handle is not closed before the inbox is. */
static void push(struct inbox *inbox, struct command *command) {
    list_push_back(&inbox->commands, &command->node);
    uv_async_send(inbox->wake);
}

bool inbox_post(struct inbox *inbox, struct command *command) {
    uv_mutex_lock(&inbox->lock);
    bool begins_something = command->kind == COMMAND_APPEND || command->kind == COMMAND_FLUSH ||
                            command->kind == COMMAND_FOLLOW || command->kind == COMMAND_FOLLOW_LOG;
    bool is_accepted = inbox->wake && !(inbox->is_draining && begins_something);
    if (is_accepted)
        push(inbox, command);
    uv_mutex_unlock(&inbox->lock);
    if (!is_accepted)
        command->free(command);
    return is_accepted;
}

void inbox_drain(struct inbox *inbox, struct command *command) {
    uv_mutex_lock(&inbox->lock);
    inbox->is_draining = true;
    push(inbox, command);
    uv_mutex_unlock(&inbox->lock);
}
