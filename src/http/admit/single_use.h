/* A single use: whether a token or nonce is used for the first time, decided by the store.
 * Posted and answered on one loop; decided on the writer's thread.
 * The memory is the poster's, who keeps it, and its loop, until done was called.
 * done's status: STATUS_OK once the use is durable, STATUS_TOKEN_REPLAYED for a second one; what
 * the store answers otherwise, and then it may or may not count as used.
 * A use that was taken stays taken across restarts, until it expires. */
#ifndef HTTP_ADMIT_SINGLE_USE_H
#define HTTP_ADMIT_SINGLE_USE_H

#include "authority/writer.h"
#include "io/loop.h"

#define SINGLE_USE_ID_BYTES_MAX 640

struct single_use {
    struct writer_job job;
    struct loop_task back;
    struct io_loop *loop;
    enum single_use_kind kind;
    char id[SINGLE_USE_ID_BYTES_MAX];
    size_t id_size;
    uint64_t expires_at_ms;
    uint64_t forget_ms;
    enum status status;
    void (*done)(struct single_use *use);
};

/* kind, expires_at_ms and done are set. STATUS_INVALID_TOKEN for an id that is empty or too long,
 * or what the writer's mailbox answers: done is then not called. */
MUST_CHECK enum status single_use_post(struct single_use *use, struct writer *writer,
                                       struct io_loop *loop, struct slice id);

/* Until when a token's use is worth remembering: it is refused afterwards, whoever's clock it is.
 */
uint64_t single_use_token_until_ms(const struct principal *principal);

#endif
