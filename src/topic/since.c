#include "topic/since.h"

#include "base/decimal.h"

#define MS_PER_SECOND 1000
#define MS_PER_MINUTE (60 * MS_PER_SECOND)
#define MS_PER_HOUR   (60 * MS_PER_MINUTE)
#define MS_PER_DAY    (24 * MS_PER_HOUR)

/* ---- durations ---- */

static bool read_duration(struct slice text, struct since *since) {
    static const struct {
        struct slice name;
        uint64_t ms;
    } units[] = {
        /* "ms" stands before "s", which ends it too. */
        {SLICE("ms"), 1},          {SLICE("s"), MS_PER_SECOND}, {SLICE("m"), MS_PER_MINUTE},
        {SLICE("h"), MS_PER_HOUR}, {SLICE("d"), MS_PER_DAY},
    };
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        uint64_t count;
        if (!slice_ends(text, units[i].name))
            continue;
        text.size -= units[i].name.size;
        if (!decimal_parse_u64(text, &count))
            return false;
        bool fits = count <= UINT64_MAX / units[i].ms;
        *since = (struct since){true, fits ? count * units[i].ms : UINT64_MAX};
        return true;
    }
    return false;
}

/* ---- times ---- */

/* Takes that many digits. */
static bool take_digits(struct slice *text, size_t count, int64_t *number) {
    int64_t value = 0;
    if (text->size < count)
        return false;
    for (size_t i = 0; i < count; i++) {
        char digit = text->data[i];
        if (digit < '0' || digit > '9')
            return false;
        value = value * 10 + (digit - '0');
    }
    *text = slice_from(*text, count);
    *number = value;
    return true;
}

static bool take_one_of(struct slice *text, const char *allowed, char *taken) {
    if (text->size == 0 || text->data[0] == '\0' || !strchr(allowed, text->data[0]))
        return false;
    *taken = text->data[0];
    *text = slice_from(*text, 1);
    return true;
}

/* Days of a date since the first day of year 0. */
static bool day_number(int64_t year, int64_t month, int64_t day, int64_t *number) {
    static const int64_t before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
    if (month < 1 || month > 12)
        return false;
    int64_t leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    int64_t days = before[month] - before[month - 1] + (month == 2 ? leap : 0);
    if (day < 1 || day > days)
        return false;
    /* The leap days of the years before this one. Year 0 is one of them. */
    int64_t leaps = year == 0 ? 0 : (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400 + 1;
    *number = year * 365 + leaps + before[month - 1] + (month > 2 ? leap : 0) + day - 1;
    return true;
}

static bool take_hour_and_minute(struct slice *text, int64_t *ms) {
    int64_t hour, minute;
    char colon;
    if (!take_digits(text, 2, &hour) || !take_one_of(text, ":", &colon) ||
        !take_digits(text, 2, &minute) || hour > 23 || minute > 59)
        return false;
    *ms = hour * MS_PER_HOUR + minute * MS_PER_MINUTE;
    return true;
}

/* A date, a time and an offset (RFC 3339). */
static bool read_time(struct slice text, struct since *since) {
    int64_t year, month, day, days, first_day = 0, time, second, digit, offset = 0;
    char dash, separator, colon, point, sign;
    if (!take_digits(&text, 4, &year) || !take_one_of(&text, "-", &dash) ||
        !take_digits(&text, 2, &month) || !take_one_of(&text, "-", &dash) ||
        !take_digits(&text, 2, &day) || !day_number(year, month, day, &days) ||
        !day_number(1970, 1, 1, &first_day))
        return false;
    /* Second 60 is a leap second. It counts as the first second after it. */
    if (!take_one_of(&text, "Tt ", &separator) || !take_hour_and_minute(&text, &time) ||
        !take_one_of(&text, ":", &colon) || !take_digits(&text, 2, &second) || second > 60)
        return false;
    time += second * MS_PER_SECOND;
    /* The fraction is optional. Digits after the third are read and dropped. */
    if (take_one_of(&text, ".", &point)) {
        int64_t worth = MS_PER_SECOND / 10;
        if (!take_digits(&text, 1, &digit))
            return false;
        do {
            time += digit * worth;
            worth /= 10;
        } while (take_digits(&text, 1, &digit));
    }
    if (!take_one_of(&text, "Zz+-", &sign))
        return false;
    if ((sign == '+' || sign == '-') && !take_hour_and_minute(&text, &offset))
        return false;
    if (text.size > 0)
        return false;
    int64_t ms = (days - first_day) * MS_PER_DAY + time + (sign == '-' ? offset : -offset);
    *since = (struct since){false, ms > 0 ? (uint64_t)ms : 0};
    return true;
}

enum status since_read(struct slice text, struct since *since) {
    bool is_read =
        text.size <= SINCE_BYTES_MAX && (read_duration(text, since) || read_time(text, since));
    return is_read ? STATUS_OK : STATUS_INVALID_REQUEST;
}

uint64_t since_time_ms(const struct since *since, uint64_t now_ms) {
    if (!since->is_duration)
        return since->ms;
    return since->ms < now_ms ? now_ms - since->ms : 0;
}
