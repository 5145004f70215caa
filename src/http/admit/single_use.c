#include "http/admit/single_use.h"

#include <assert.h>

#include "auth/token.h"

static void run_back(struct loop_task *task) {
    struct single_use *use =
        (struct single_use *)((char *)task - offsetof(struct single_use, back));
    use->done(use);
}

static void run_job(struct writer_job *job, struct store_session *session) {
    struct single_use *use = (struct single_use *)((char *)job - offsetof(struct single_use, job));
    enum status status = store_use_once(session, use->kind, (struct slice){use->id, use->id_size},
                                        use->expires_at_ms, use->forget_ms);
    use->status = status == STATUS_ALREADY_EXISTS ? STATUS_TOKEN_REPLAYED : status;
    status = io_loop_post(use->loop, &use->back);
    assert(status == STATUS_OK);
    (void)status;
}

enum status single_use_post(struct single_use *use, struct writer *writer, struct io_loop *loop,
                            struct slice id) {
    if (id.size == 0 || id.size > sizeof(use->id))
        return STATUS_INVALID_TOKEN;
    memcpy(use->id, id.data, id.size);
    use->id_size = id.size;
    use->loop = loop;
    use->forget_ms = io_loop_forget_ms(loop);
    use->job.run = run_job;
    use->back.run = run_back;
    return writer_post_job(writer, &use->job);
}

uint64_t single_use_token_until_ms(const struct principal *principal) {
    return principal->expires_at_ms + UINT64_C(2000) * TOKEN_SKEW_S;
}
