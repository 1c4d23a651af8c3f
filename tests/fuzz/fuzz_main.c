/*
 * fuzz_main.c - runs a fuzz program without libFuzzer.
 *
 *   fuzz_x [--runs N | --seconds S] [--seed S] [--write-corpus DIR] [FILE|DIR]...
 *
 * First the files, then N inputs, or as many as S seconds hold, made from the samples: bytes
 * changed, cut, joined, repeated.
 */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "testing.h"

#define INPUT_BYTES_MAX 65536u
#define SAMPLES_MAX 64u
#define PATH_BYTES 4096

static uint8_t input[INPUT_BYTES_MAX];
static uint8_t samples[SAMPLES_MAX][1024];
static size_t sample_lens[SAMPLES_MAX];
static unsigned sample_count;

/* From memory of exactly this length, so that a sanitizer sees every read past the end. */
static void run_input(const uint8_t *bytes, size_t len)
{
    uint8_t *copy = malloc(len == 0 ? 1 : len);

    if (copy == NULL)
        abort();
    memcpy(copy, bytes, len);
    (void)LLVMFuzzerTestOneInput(copy, len);
    free(copy);
}

static unsigned run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t len;

    if (file == NULL) {
        fprintf(stderr, "fuzz: %s cannot be read\n", path);
        exit(2);
    }
    len = fread(input, 1, sizeof(input), file);
    (void)fclose(file);
    run_input(input, len);
    return 1;
}

static unsigned run_path(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    unsigned count = 0;

    if (folder == NULL)
        return run_file(path);
    while ((entry = readdir(folder)) != NULL) {
        char name[PATH_BYTES];

        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        count += run_file(name);
    }
    (void)closedir(folder);
    return count;
}

static void write_corpus(const char *path)
{
    for (unsigned i = 0; i < sample_count; i++) {
        char name[PATH_BYTES];
        FILE *file;

        (void)snprintf(name, sizeof(name), "%s/sample-%02u", path, i);
        file = fopen(name, "wb");
        if (file == NULL || fwrite(samples[i], 1, sample_lens[i], file) != sample_lens[i]) {
            fprintf(stderr, "fuzz: %s cannot be written\n", name);
            exit(2);
        }
        (void)fclose(file);
    }
}

static size_t append_sample(struct test_random *random, size_t len)
{
    unsigned index = (unsigned)test_random_below(random, sample_count);

    if (len + sample_lens[index] > sizeof(input))
        return len;
    memcpy(input + len, samples[index], sample_lens[index]);
    return len + sample_lens[index];
}

static size_t make_input(struct test_random *random)
{
    static const uint8_t favourites[] = {0, 1, 2, 0x7f, 0x80, 0xfe, 0xff};
    size_t len = 0;

    for (uint64_t n = test_random_below(random, 4) + 1; n > 0; n--)
        len = append_sample(random, len);
    for (uint64_t n = test_random_below(random, 8); n > 0 && len > 0; n--) {
        size_t at = test_random_below(random, len);

        input[at] = test_random_below(random, 2) == 0
                        ? (uint8_t)test_random_next(random)
                        : favourites[test_random_below(random, sizeof(favourites))];
    }
    if (test_random_below(random, 3) == 0)
        len = test_random_below(random, len + 1);
    return len;
}

static void make_samples(void)
{
    while (sample_count < SAMPLES_MAX) {
        size_t len = fuzz_sample(sample_count, samples[sample_count], sizeof(samples[0]));

        if (len == 0)
            break;
        sample_lens[sample_count++] = len;
    }
}

static time_t now_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* `seconds` 0: `runs` inputs. Returns how many. */
static unsigned long run_made(struct test_random *random, unsigned long runs, time_t seconds)
{
    time_t end = now_s() + seconds;
    unsigned long done = 0;

    while (seconds > 0 ? now_s() < end : done < runs) {
        run_input(input, make_input(random));
        done++;
    }
    return done;
}

int main(int argc, char **argv)
{
    unsigned long runs = 20000;
    time_t seconds = 0;
    unsigned files = 0;
    struct test_random random;

    make_samples();
    random = test_random_make(test_seed());
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc) {
            runs = strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
            seconds = strtol(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            random = test_random_make(strtoull(argv[++i], NULL, 0));
        } else if (strcmp(argv[i], "--write-corpus") == 0 && i + 1 < argc) {
            write_corpus(argv[++i]);
            return 0;
        } else {
            files += run_path(argv[i]);
        }
    }
    runs = run_made(&random, runs, seconds);
    printf("fuzz: %u files, %lu generated inputs\n", files, runs);
    return 0;
}
