/* testing.c - see testing.h. */
#include "testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

uint64_t test_seed(void)
{
    static uint64_t seed;
    static bool known;
    const char *text = getenv("TEST_SEED");

    if (!known) {
        seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)time(NULL) ^ (uint64_t)getpid();
        known = true;
        print_message("seed %llu (repeat with TEST_SEED=%llu)\n", (unsigned long long)seed,
                      (unsigned long long)seed);
    }
    return seed;
}

struct test_random test_random_make(uint64_t seed)
{
    return (struct test_random){seed};
}

uint64_t test_random_next(struct test_random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t test_random_below(struct test_random *random, uint64_t limit)
{
    return test_random_next(random) % limit;
}

void test_random_fill(struct test_random *random, void *bytes, size_t len_bytes)
{
    for (size_t i = 0; i < len_bytes; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)test_random_next(random);
}

bool test_aborts(void (*call)(void *argument), void *argument)
{
    int wait_status;
    pid_t child;

    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);

        (void)signal(SIGABRT, SIG_DFL);
        if (null >= 0)
            (void)dup2(null, STDERR_FILENO);
        call(argument);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    return WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGABRT;
}
