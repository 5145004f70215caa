#include "projector/update.h"
#include "test.h"

static const uint8_t one_hash[SHA256_BYTES] = {1};
static const uint8_t other_hash[SHA256_BYTES] = {2};

static struct store_checkpoint checkpoint_at(uint64_t seq) {
    struct store_checkpoint checkpoint = {
        .last_runtime_seq = seq,
        .projection_version = SLICE("v1"),
    };
    memcpy(checkpoint.summary_hash, one_hash, SHA256_BYTES);
    return checkpoint;
}

static struct checkpoint_incoming incoming_of(uint64_t first_seq, uint64_t last_seq) {
    return (struct checkpoint_incoming){first_seq, last_seq, SLICE("v1"), one_hash};
}

static void expect(struct checkpoint_decision decision, enum checkpoint_action action) {
    assert_int_equal(decision.action, action);
    assert_false(decision.has_drift);
}

static void expect_drift(struct checkpoint_decision decision, enum checkpoint_action action,
                         enum reason drift) {
    assert_int_equal(decision.action, action);
    assert_true(decision.has_drift);
    assert_int_equal(decision.drift, drift);
}

static void without_a_checkpoint_the_summary_is_written(void **state) {
    (void)state;
    struct checkpoint_incoming incoming = incoming_of(1, 1);
    expect(checkpoint_decide(NULL, &incoming), CHECKPOINT_WRITE);
    incoming = incoming_of(1, 9);
    expect(checkpoint_decide(NULL, &incoming), CHECKPOINT_WRITE);
}

static void without_a_checkpoint_a_later_event_is_a_gap(void **state) {
    (void)state;
    struct checkpoint_incoming incoming = incoming_of(2, 2);
    expect_drift(checkpoint_decide(NULL, &incoming), CHECKPOINT_REPAIR, REASON_SEQUENCE_GAP);
}

static void a_checkpoint_ahead_repairs(void **state) {
    (void)state;
    struct store_checkpoint checkpoint = checkpoint_at(6);
    struct checkpoint_incoming incoming = incoming_of(5, 5);
    expect_drift(checkpoint_decide(&checkpoint, &incoming), CHECKPOINT_REPAIR,
                 REASON_CHECKPOINT_AHEAD);
    incoming.projection_version = SLICE("v2");
    expect_drift(checkpoint_decide(&checkpoint, &incoming), CHECKPOINT_REPAIR,
                 REASON_CHECKPOINT_AHEAD);
}

static void the_same_summary_again_is_skipped(void **state) {
    (void)state;
    struct store_checkpoint checkpoint = checkpoint_at(5);
    struct checkpoint_incoming incoming = incoming_of(5, 5);
    expect(checkpoint_decide(&checkpoint, &incoming), CHECKPOINT_SKIP);
    incoming = incoming_of(1, 5);
    expect(checkpoint_decide(&checkpoint, &incoming), CHECKPOINT_SKIP);
}

static void the_same_sequence_with_another_hash_is_written(void **state) {
    (void)state;
    struct store_checkpoint checkpoint = checkpoint_at(5);
    struct checkpoint_incoming incoming = incoming_of(5, 5);
    incoming.summary_hash = other_hash;
    expect_drift(checkpoint_decide(&checkpoint, &incoming), CHECKPOINT_WRITE,
                 REASON_SUMMARY_HASH_MISMATCH);
}

static void the_same_sequence_of_another_version_is_written(void **state) {
    (void)state;
    struct store_checkpoint checkpoint = checkpoint_at(5);
    struct checkpoint_incoming incoming = incoming_of(5, 5);
    incoming.projection_version = SLICE("v2");
    expect_drift(checkpoint_decide(&checkpoint, &incoming), CHECKPOINT_WRITE,
                 REASON_PROJECTION_VERSION_CHANGED);
    incoming.summary_hash = other_hash;
    expect_drift(checkpoint_decide(&checkpoint, &incoming), CHECKPOINT_WRITE,
                 REASON_PROJECTION_VERSION_CHANGED);
}

static void a_checkpoint_of_another_version_repairs(void **state) {
    (void)state;
    struct store_checkpoint checkpoint = checkpoint_at(5);
    struct checkpoint_incoming incoming = incoming_of(6, 6);
    incoming.projection_version = SLICE("v2");
    expect_drift(checkpoint_decide(&checkpoint, &incoming), CHECKPOINT_REPAIR,
                 REASON_PROJECTION_VERSION_CHANGED);
}

static void a_gap_after_the_checkpoint_repairs(void **state) {
    (void)state;
    struct store_checkpoint checkpoint = checkpoint_at(5);
    struct checkpoint_incoming incoming = incoming_of(7, 8);
    expect_drift(checkpoint_decide(&checkpoint, &incoming), CHECKPOINT_REPAIR, REASON_SEQUENCE_GAP);
}

static void a_summary_that_continues_the_checkpoint_is_written(void **state) {
    (void)state;
    struct store_checkpoint checkpoint = checkpoint_at(5);
    struct checkpoint_incoming incoming = incoming_of(6, 6);
    incoming.summary_hash = other_hash;
    expect(checkpoint_decide(&checkpoint, &incoming), CHECKPOINT_WRITE);
    incoming = incoming_of(6, 10);
    expect(checkpoint_decide(&checkpoint, &incoming), CHECKPOINT_WRITE);
    incoming = incoming_of(3, 10);
    expect(checkpoint_decide(&checkpoint, &incoming), CHECKPOINT_WRITE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_checkpoint_the_summary_is_written),
        cmocka_unit_test(without_a_checkpoint_a_later_event_is_a_gap),
        cmocka_unit_test(a_checkpoint_ahead_repairs),
        cmocka_unit_test(the_same_summary_again_is_skipped),
        cmocka_unit_test(the_same_sequence_with_another_hash_is_written),
        cmocka_unit_test(the_same_sequence_of_another_version_is_written),
        cmocka_unit_test(a_checkpoint_of_another_version_repairs),
        cmocka_unit_test(a_gap_after_the_checkpoint_repairs),
        cmocka_unit_test(a_summary_that_continues_the_checkpoint_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
