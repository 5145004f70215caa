#include "cli/doctor.h"

#include <stdarg.h>
#include <stdio.h>

#include "cli/settings.h"
#include "wire/json.h"

#define TEXT_BYTES_MAX 4096
#define JSON_BYTES_MAX 32768

static const char *finding_name(enum finding finding) {
    static const char *const names[] = {"ok", "warning", "wrong"};
    return names[finding];
}

static void print_json(struct doctor *doctor, enum finding finding, const char *text,
                       const char *advice) {
    struct buffer out;
    buffer_init(&out, JSON_BYTES_MAX);
    enum status status = json_write_string(&out, slice_of(text));
    if (status == STATUS_OK)
        status = buffer_append_slice(&out, SLICE(",\"advice\":"));
    if (status == STATUS_OK)
        status = advice ? json_write_string(&out, slice_of(advice))
                        : buffer_append_slice(&out, SLICE("null"));
    if (status == STATUS_OK)
        printf("%s\n{\"check\":\"%s\",\"finding\":\"%s\",\"message\":%.*s}",
               doctor->finding_count ? "," : "", doctor->check, finding_name(finding),
               (int)out.size, out.data);
    buffer_release(&out);
}

void doctor_say(struct doctor *doctor, enum finding finding, const char *advice, const char *format,
                ...) {
    char text[TEXT_BYTES_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (doctor->json)
        print_json(doctor, finding, text, advice);
    else
        printf("%-8s %-12s %s\n%s%s%s", finding_name(finding), doctor->check, text,
               advice ? "                      -> " : "", advice ? advice : "", advice ? "\n" : "");
    fflush(stdout);
    doctor->finding_count++;
    doctor->wrong_count += finding == FINDING_WRONG;
}

static void check_settings(struct doctor *doctor) {
    const struct config *config = &doctor->config;
    if (config->poll_default_limit > config->poll_max_limit)
        doctor_say(doctor, FINDING_WARNING, "raise RUNTIME_KHALA_POLL_MAX_LIMIT or lower the other",
                   "RUNTIME_KHALA_POLL_DEFAULT_LIMIT is above RUNTIME_KHALA_POLL_MAX_LIMIT, which "
                   "caps it");
    else
        doctor_say(doctor, FINDING_OK, NULL, "every value is one its key takes");
}

static const struct {
    const char *name;
    void (*run)(struct doctor *doctor);
} checks[] = {
    {"settings", check_settings},    {"tls", doctor_check_tls},
    {"folder", doctor_check_folder}, {"server", doctor_check_server},
    {"files", doctor_check_files},   {"descriptors", doctor_check_descriptors},
    {"disk", doctor_check_disk},     {"store", doctor_check_store},
};

int cli_doctor(int argc, char **argv) {
    static struct doctor doctor;
    const struct cli_option own[] = {
        {"--json", &doctor.json, NULL},
        {"--url", NULL, &doctor.remote.url},
        {"--ca", NULL, &doctor.remote.ca_file},
    };
    int code = cli_settings(&argc, argv, own, sizeof(own) / sizeof(own[0]), &doctor.config);
    if (code != EXIT_CODE_DONE)
        return code;
    if (argc != 0)
        return cli_usage("doctor");
    if (doctor.json)
        printf("{\"checks\":[");
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        doctor.check = checks[i].name;
        checks[i].run(&doctor);
    }
    if (doctor.json)
        printf("],\n\"ok\":%s}\n", doctor.wrong_count == 0 ? "true" : "false");
    return doctor.wrong_count == 0 ? EXIT_CODE_DONE : EXIT_CODE_NO;
}
