/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target over every file of the folders given, so that each seed and each past crash is an
 * ordinary test. A missing folder is fine (a new target has no corpus yet); the target then runs on the
 * empty input and on a few fixed ones. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return -1;
    static uint8_t buf[1 << 20];
    size_t n = fread(buf, 1, sizeof buf, f);
    fclose(f);
    uint8_t *exact = malloc(n ? n : 1); /* exact size: an over-read is seen by the sanitizer */
    if (!exact)
        abort();
    memcpy(exact, buf, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return 0;
}

int main(int argc, char **argv)
{
    size_t count = 0;
    static const char *const fixed[] = { "", "\n", "GET / HTTP/1.1\r\n\r\n", "{}", "\xff\xff\xff\xff" };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++, count++)
        LLVMFuzzerTestOneInput((const uint8_t *)fixed[i], strlen(fixed[i]));
    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        if (!d)
            continue;
        for (struct dirent *e; (e = readdir(d));) {
            if (e->d_name[0] == '.')
                continue;
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            if (!run_file(path))
                count++;
        }
        closedir(d);
    }
    printf("%zu inputs\n", count);
    return 0;
}
