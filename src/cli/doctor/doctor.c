#include "cli/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/settings.h"
#include "wire/json.h"

#define TEXT_BYTES_MAX 4096
#define JSON_BYTES_MAX 32768

static const char *finding_name(enum finding finding) {
    static const char *const names[] = {"ok", "warning", "wrong"};
    return names[finding];
}

/* As a JSON string, also for a path that is not UTF-8. */
static enum status write_text(struct buffer *out, const char *text) {
    char shown[TEXT_BYTES_MAX];
    if (utf8_valid(slice_of(text)))
        return json_write_string(out, slice_of(text));
    snprintf(shown, sizeof(shown), "%s", text);
    for (char *c = shown; *c; c++)
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    return json_write_string(out, slice_of(shown));
}

static void print_json(struct doctor *doctor, enum finding finding, const char *text,
                       const char *advice) {
    struct buffer out;
    buffer_init(&out, JSON_BYTES_MAX);
    enum status status = write_text(&out, text);
    if (status == STATUS_OK)
        status = buffer_append_slice(&out, SLICE(",\"advice\":"));
    if (status == STATUS_OK)
        status = advice ? write_text(&out, advice) : buffer_append_slice(&out, SLICE("null"));
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

static const struct {
    const char *name;
    void (*run)(struct doctor *doctor);
} checks[] = {
    {"settings", doctor_check_settings},
    {"tls", doctor_check_tls},
    {"keys", doctor_check_keys},
    {"folder", doctor_check_folder},
    {"server", doctor_check_server},
    {"files", doctor_check_files},
    {"descriptors", doctor_check_descriptors},
    {"limits", doctor_check_limits},
    {"disk", doctor_check_disk},
    {"store", doctor_check_store},
};

int cli_doctor(int argc, char **argv) {
    static struct doctor doctor = {.remote.is_client = true};
    const struct cli_option verb_options[] = {
        {"--json", &doctor.json, NULL},
        {"--url", NULL, &doctor.remote.url},
        {"--ca", NULL, &doctor.remote.ca_file},
    };
    int code = cli_settings(&argc, argv, verb_options,
                            sizeof(verb_options) / sizeof(verb_options[0]), &doctor.config);
    if (code != EXIT_CODE_DONE)
        return code;
    if (argc != 0)
        return cli_usage("doctor", "'%s' is not expected", argv[0]);
    /* The findings say what the checked modules would log. */
    log_configure(LOG_OFF, LOG_TEXT, STDERR_FILENO);
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
