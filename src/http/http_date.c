#include "http/http_date.h"

#include <stdio.h>
#include <time.h>

/* Not strftime's names: those follow the locale. */
static const char days[] = "SunMonTueWedThuFriSat";
static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

struct slice http_date_at(struct http_date *date, uint64_t wall_ms) {
    uint64_t second = wall_ms / 1000;
    time_t time = (time_t)second;
    struct tm parts;
    if (date->second_after != second + 1 && gmtime_r(&time, &parts)) {
        snprintf(date->text, sizeof(date->text), "%.3s, %02u %.3s %04u %02u:%02u:%02u GMT",
                 days + (size_t)(parts.tm_wday % 7) * 3, (unsigned)parts.tm_mday % 100,
                 months + (size_t)(parts.tm_mon % 12) * 3, (unsigned)(parts.tm_year + 1900) % 10000,
                 (unsigned)parts.tm_hour % 100, (unsigned)parts.tm_min % 100,
                 (unsigned)parts.tm_sec % 100);
        date->second_after = second + 1;
    }
    return (struct slice){date->text, HTTP_DATE_SIZE};
}
