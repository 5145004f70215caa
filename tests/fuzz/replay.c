/* Runs a fuzz target over every file of the folders named on the command line, in presets
 * without libFuzzer: seeds and kept crashes stay regression tests everywhere. */
#include <dirent.h>
#include <stdio.h>

#include "fuzz.h"

#define INPUT_BYTES_MAX (1 << 20)

static int replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return -1;
    uint8_t *scratch = malloc(INPUT_BYTES_MAX);
    size_t size = scratch ? fread(scratch, 1, INPUT_BYTES_MAX, file) : 0;
    fclose(file);
    /* An exact allocation, so that AddressSanitizer sees a read one past the end. */
    uint8_t *exact = malloc(size ? size : 1);
    if (!scratch || !exact)
        abort();
    for (size_t i = 0; i < size; i++)
        exact[i] = scratch[i];
    free(scratch);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return 0;
}

int main(int argc, char **argv) {
    int count = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (!folder)
            continue;
        for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
            char path[4096];
            if (entry->d_type != DT_REG)
                continue;
            snprintf(path, sizeof(path), "%s/%s", argv[i], entry->d_name);
            if (replay_file(path) != 0) {
                fprintf(stderr, "cannot read %s\n", path);
                return 1;
            }
            count++;
        }
        closedir(folder);
    }
    printf("%d inputs\n", count);
    return count > 0 ? 0 : 1;
}
