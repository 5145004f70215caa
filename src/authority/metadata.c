/* Both sides are sorted by name, so one walk over the two side by side merges them. */
#include "authority/metadata.h"

#include "base/limits.h"
#include "wire/json.h"

/* The member a side stands at. */
struct side {
    struct json_iterator iterator;
    struct json_value name;
    struct json_value value;
    struct slice key; /* the decoded name */
    struct buffer decoded;
    bool is_at_member;
};

static enum status side_next(struct side *side) {
    side->is_at_member = json_next_member(&side->iterator, &side->name, &side->value);
    if (!side->is_at_member || json_string_slice(side->name, &side->key))
        return STATUS_OK;
    buffer_clear(&side->decoded);
    enum status status = json_string_decode(side->name, &side->decoded);
    side->key = buffer_slice(&side->decoded);
    return status;
}

static enum status side_init(struct side *side, struct json_value object) {
    *side = (struct side){0};
    buffer_init(&side->decoded, METADATA_NAME_BYTES_MAX);
    side->iterator = json_iterate(object);
    return side_next(side);
}

static const struct json_value nothing = {JSON_KIND_OBJECT, {"{}", 2}};

/* is_deep: objects inside members are merged too. */
static enum status merge(struct json_value base, struct json_value patch, bool is_deep,
                         struct buffer *out) {
    struct side sides[2];
    struct side *old = &sides[0], *new = &sides[1];
    size_t begin = out->size;
    enum status status = side_init(old, base);
    enum status patch_status = side_init(new, patch);
    if (status == STATUS_OK)
        status = patch_status;
    buffer_append_byte(out, '{');
    while (status == STATUS_OK && (old->is_at_member || new->is_at_member)) {
        /* Below zero if the next member comes from the old side, 0 if both have the same name. */
        int order = old->is_at_member ? -1 : 1;
        if (old->is_at_member && new->is_at_member)
            order = slice_compare(old->key, new->key);
        const struct side *from = order < 0 ? old : new;
        if (order < 0 || new->value.kind != JSON_KIND_NULL) {
            bool is_merged = is_deep && order >= 0 && new->value.kind == JSON_KIND_OBJECT;
            bool has_base = order == 0 && old->value.kind == JSON_KIND_OBJECT;
            if (out->size > begin + 1)
                buffer_append_byte(out, ',');
            buffer_append_slice(out, from->name.raw);
            buffer_append_byte(out, ':');
            if (is_merged)
                buffer_note(out, merge(has_base ? old->value : nothing, new->value, true, out));
            else
                buffer_append_slice(out, from->value.raw);
            status = buffer_status(out);
        }
        if (status == STATUS_OK && order >= 0)
            status = side_next(new);
        if (status == STATUS_OK && order <= 0)
            status = side_next(old);
    }
    buffer_append_byte(out, '}');
    buffer_note(out, status);
    buffer_release(&old->decoded);
    buffer_release(&new->decoded);
    return buffer_end(out, begin);
}

static enum status merge_texts(struct slice base, struct slice patch, bool is_deep,
                               struct buffer *out) {
    const struct json_limits limits = {METADATA_NAME_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_value old = nothing, new;
    if ((base.data && json_parse(base, &limits, &old) != STATUS_OK) ||
        json_parse(patch, &limits, &new) != STATUS_OK || old.kind != JSON_KIND_OBJECT ||
        new.kind != JSON_KIND_OBJECT)
        return STATUS_INTERNAL_ERROR;
    return merge(old, new, is_deep, out);
}

enum status metadata_merge(struct slice base, struct slice patch, struct buffer *out) {
    return merge_texts(base, patch, false, out);
}

enum status metadata_patch(struct slice base, struct slice patch, struct buffer *out) {
    return merge_texts(base, patch, true, out);
}
