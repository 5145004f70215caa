#include "api/exposition.h"

#include <assert.h>
#include <inttypes.h>

#define NS_PER_SECOND UINT64_C(1000000000)

/* Remembers the first failure, so that the functions below need no checks. */
struct page {
    struct buffer *out;
    enum status status;
};

static void put(struct page *page, struct slice text) {
    if (page->status == STATUS_OK)
        page->status = buffer_append_slice(page->out, text);
}

static void put_text(struct page *page, const char *text) {
    put(page, slice_of(text));
}

/* A gauge may be negative for a moment: threads may subtract before others add. */
static void put_number(struct page *page, const struct metric_row *row, uint64_t number) {
    if (page->status != STATUS_OK)
        return;
    if (row->in_seconds)
        page->status = buffer_printf(page->out, "%" PRIu64 ".%09" PRIu64 "\n",
                                     number / NS_PER_SECOND, number % NS_PER_SECOND);
    else if (row->kind == METRIC_KIND_GAUGE)
        page->status = buffer_printf(page->out, "%" PRId64 "\n", (int64_t)number);
    else
        page->status = buffer_printf(page->out, "%" PRIu64 "\n", number);
}

static void put_label(struct page *page, bool *has_label, const char *name, const char *value) {
    put_text(page, *has_label ? "," : "{");
    put_text(page, name);
    put_text(page, "=\"");
    put_text(page, value);
    put_text(page, "\"");
    *has_label = true;
}

/* Values come from the table of metrics, or are the version. They need no escapes. */
static void put_labels(struct page *page, const struct metric_row *row, size_t series,
                       const char *bucket) {
    size_t indexes[METRIC_POSITIONS_MAX];
    bool has_label = false;
    for (size_t i = METRIC_POSITIONS_MAX; i-- > 0; series /= row->sizes[i])
        indexes[i] = series % row->sizes[i];
    for (size_t i = 0; i < row->label_count; i++) {
        const struct metric_label *label = &row->labels[i];
        put_label(page, &has_label, label->name,
                  label->values ? label->values[indexes[label->position]] : KHALA_VERSION);
    }
    if (bucket)
        put_label(page, &has_label, "le", bucket);
    put_text(page, has_label ? "} " : " ");
}

static void put_sample(struct page *page, const struct metric_row *row, size_t series,
                       const char *suffix, const char *bucket) {
    put_text(page, row->name);
    put_text(page, suffix);
    put_labels(page, row, series, bucket);
}

static void put_count(struct page *page, uint64_t count) {
    if (page->status == STATUS_OK)
        page->status = buffer_printf(page->out, "%" PRIu64 "\n", count);
}

static void put_histogram(struct page *page, const struct metric_row *row, size_t series,
                          const uint64_t *numbers) {
    const struct metric_buckets *buckets = row->buckets;
    uint64_t count = 0;
    assert(buckets);
    for (size_t i = 0; i <= buckets->count; i++) {
        count += numbers[i];
        put_sample(page, row, series, "_bucket", i < buckets->count ? buckets->texts[i] : "+Inf");
        put_count(page, count);
    }
    put_sample(page, row, series, "_sum", NULL);
    put_number(page, row, numbers[buckets->count + 1]);
    put_sample(page, row, series, "_count", NULL);
    put_count(page, count);
}

static bool is_nonzero(const struct metric_row *row, const uint64_t *numbers) {
    for (size_t i = 0; i < row->series_slots; i++)
        if (numbers[i] != 0)
            return true;
    return false;
}

static void put_family(struct page *page, const struct metric_row *row, const uint64_t *numbers) {
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    put_text(page, "# HELP ");
    put_text(page, row->name);
    put_text(page, " ");
    put_text(page, row->help);
    put_text(page, "\n# TYPE ");
    put_text(page, row->name);
    put_text(page, " ");
    put_text(page, kinds[row->kind]);
    put_text(page, "\n");
    bool shows_all =
        row->series_count == 1 || (row->series_count <= METRIC_SERIES_SHOWN_MAX && !row->buckets);
    for (size_t i = 0; i < row->series_count; i++) {
        const uint64_t *of_series = numbers + i * row->series_slots;
        if (!shows_all && !is_nonzero(row, of_series))
            continue;
        if (row->kind == METRIC_KIND_HISTOGRAM) {
            put_histogram(page, row, i, of_series);
        } else {
            put_sample(page, row, i, "", NULL);
            put_number(page, row, *of_series);
        }
    }
}

enum status exposition_write(struct buffer *out, const uint64_t numbers[METRIC_SLOT_COUNT]) {
    struct page page = {out, STATUS_OK};
    for (unsigned i = 0; i < METRIC_COUNT; i++) {
        const struct metric_row *row = metric_row((enum metric)i);
        put_family(&page, row, numbers + row->first_slot);
    }
    return page.status;
}
