/* ranks.c - see ranks.h. */
#include "ranks.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "clock.h"

#define RANKS_SECONDS 40

static const int ranks_signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS};

void ranks_complain(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
}

static void ranks_close_others(int sockets[RANKS_MAX][RANKS_MAX], uint32_t count, uint32_t keep)
{
    for (uint32_t a = 0; a < count; ++a) {
        for (uint32_t b = 0; b < count; ++b) {
            if (a != b && a != keep) {
                close(sockets[a][b]);
            }
        }
    }
}

static int ranks_wait(pid_t pid, uint64_t deadline_ns)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    uint64_t now_ns = clock_now_ns();
    struct pollfd wait_for = {.fd = fd, .events = POLLIN};
    int left_ms = now_ns < deadline_ns ? (int)((deadline_ns - now_ns) / CLOCK_NS_PER_MS) : 0;
    bool late = poll(&wait_for, 1, left_ms) != 1;
    int status;

    if (late) {
        kill(pid, SIGKILL);
    }
    close(fd);
    waitpid(pid, &status, 0);
    if (late) {
        return RANKS_LATE;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void ranks_run(uint32_t count, ranks_fn function, const void *argument, uint32_t seconds,
               int *results_out)
{
    int sockets[RANKS_MAX][RANKS_MAX];
    pid_t pids[RANKS_MAX];
    uint64_t deadline_ns;

    memset(sockets, -1, sizeof(sockets));
    for (uint32_t a = 0; a < count; ++a) {
        for (uint32_t b = a + 1; b < count; ++b) {
            int pair[2];
            assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
            sockets[a][b] = pair[0];
            sockets[b][a] = pair[1];
        }
    }
    fflush(NULL);
    deadline_ns = clock_now_ns() + seconds * CLOCK_NS_PER_S;
    for (uint32_t r = 0; r < count; ++r) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            struct ranks ranks = {.rank = r, .count = count, .argument = argument};
            memcpy(ranks.sockets, sockets[r], sizeof(ranks.sockets));
            ranks_close_others(sockets, count, r);
            for (size_t i = 0; i < sizeof(ranks_signals) / sizeof(ranks_signals[0]); ++i) {
                signal(ranks_signals[i], SIG_DFL); /* else CMocka goes on with the next test here */
            }
            exit(function(&ranks));
        }
    }
    ranks_close_others(sockets, count, UINT32_MAX);
    for (uint32_t r = 0; r < count; ++r) {
        results_out[r] = ranks_wait(pids[r], deadline_ns);
    }
}

void ranks_pass(uint32_t count, ranks_fn function, const void *argument)
{
    int results[RANKS_MAX];

    ranks_run(count, function, argument, RANKS_SECONDS, results);
    for (uint32_t r = 0; r < count; ++r) {
        assert_int_equal(results[r], RANKS_ENDED);
    }
}

void ranks_give(struct ranks *ranks, uint32_t to, const void *bytes, size_t len)
{
    if (send(ranks->sockets[to], bytes, len, MSG_NOSIGNAL) != (ssize_t)len) {
        fprintf(stderr, "rank %u cannot reach rank %u: %s\n", ranks->rank, to, strerror(errno));
    }
}

long ranks_take(struct ranks *ranks, uint32_t from, void *bytes_out, size_t cap)
{
    struct pollfd wait_for = {.fd = ranks->sockets[from], .events = POLLIN};

    if (poll(&wait_for, 1, RANKS_SECONDS * 1000) != 1) {
        return -1;
    }
    long len = recv(ranks->sockets[from], bytes_out, cap, 0);
    return len > 0 ? len : -1;
}

void ranks_barrier(struct ranks *ranks)
{
    for (uint32_t r = 0; r < ranks->count; ++r) {
        if (r != ranks->rank) {
            ranks_give(ranks, r, "b", 1);
        }
    }
    for (uint32_t r = 0; r < ranks->count; ++r) {
        char byte;
        if (r != ranks->rank) {
            (void)ranks_take(ranks, r, &byte, 1);
        }
    }
}
