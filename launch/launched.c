/* launched.c - see launched.h. */
#include "launched.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "say.h"

#define LAUNCHED_MEET_S 120u /* hundreds of ranks on a slow file system start within it */
#define LAUNCHED_END_S 30u
#define LAUNCHED_YIELDS 1000u
#define LAUNCHED_SLEEP_NS 100000
#define LAUNCHED_NODE_BYTES 192

/* Who a rank is: two with the same node can see each other's process. */
struct launched_card {
    char node[LAUNCHED_NODE_BYTES];
    int64_t pid;
};

/* The world of this process; there is one. */
static struct {
    struct launched at;
    bool *near;         /* [size] ranks of this node */
    int *ranks;         /* [watched] */
    struct pollfd *fds; /* [watched], events of a process descriptor */
    int watched;
    int gone;            /* a rank that had ended before it could be watched, or -1 */
    const char *waiting; /* what the alarm says */
} world = {.gone = -1};

/* ---- bounds of what MPI does by itself ------------------------------------------------------- */

static void launched_on_alarm(int number)
{
    (void)number;
    if (write(STDERR_FILENO, world.waiting, strlen(world.waiting)) < 0) {
        /* nobody listens */
    }
    _exit(EXIT_DAMAGED);
}

static void launched_alarm(unsigned seconds, const char *text)
{
    const struct sigaction action = {.sa_handler = launched_on_alarm};

    world.waiting = text;
    sigaction(SIGALRM, &action, NULL);
    alarm(seconds);
}

/* ---- the other ranks ------------------------------------------------------------------------- */

static void launched_card_make(struct launched_card *card)
{
    char boot[64] = "?", pids[64] = "?";
    struct utsname name;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    ssize_t len = readlink("/proc/self/ns/pid", pids, sizeof(pids) - 1);

    memset(card, 0, sizeof(*card));
    if (file != NULL) {
        if (fgets(boot, sizeof(boot), file) == NULL) {
            boot[0] = '\0';
        }
        fclose(file);
    }
    pids[len > 0 ? len : 0] = '\0';
    if (uname(&name) != 0) {
        name.nodename[0] = '\0';
    }
    snprintf(card->node, sizeof(card->node), "%.60s %.60s %.60s", name.nodename, boot, pids);
    card->pid = getpid();
}

/* Notes which ranks can be watched, and the place on this node. */
static void launched_watch(const struct launched_card *cards)
{
    const struct launched_card *own = &cards[world.at.rank];

    for (int r = 0; r < world.at.size; r++) {
        int fd;

        if (memcmp(cards[r].node, own->node, sizeof(own->node)) != 0) {
            continue;
        }
        world.near[r] = true;
        world.at.node_rank += r < world.at.rank;
        world.at.node_size++;
        if (r == world.at.rank) {
            continue;
        }
        fd = (int)syscall(SYS_pidfd_open, (pid_t)cards[r].pid, 0);
        if (fd >= 0) {
            world.ranks[world.watched] = r;
            world.fds[world.watched++] = (struct pollfd){.fd = fd, .events = POLLIN};
        } else if (errno == ESRCH) {
            world.gone = r;
        }
    }
}

bool launched_lost(void)
{
    return world.gone >= 0 || (world.watched > 0 && poll(world.fds, (nfds_t)world.watched, 0) > 0);
}

void launched_leave(const char *when)
{
    char names[256] = "";
    size_t len = 0;
    int count = 0;

    for (int r = 0; r < world.at.size && len + 16 < sizeof(names); r++) {
        bool gone = r == world.gone;

        for (int i = 0; i < world.watched; i++) {
            gone = gone || (world.ranks[i] == r && (world.fds[i].revents & POLLIN) != 0);
        }
        if (gone) {
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%d",
                                    count++ == 0 ? "" : ", ", r);
        }
    }
    say("rank %d: rank%s %s %s gone, %s", world.at.rank, count == 1 ? "" : "s", names,
        count == 1 ? "is" : "are", when);
    fflush(NULL);
    _exit(EXIT_DAMAGED);
}

/* ---- what all do together -------------------------------------------------------------------- */

void launched_wait(MPI_Request *request)
{
    static const struct timespec nap = {0, LAUNCHED_SLEEP_NS};
    int done = 0;

    for (uint32_t turn = 0;; turn++) {
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (done) {
            return;
        }
        if (turn < LAUNCHED_YIELDS) {
            continue;
        }
        nanosleep(&nap, NULL);
        if (launched_lost()) {
            launched_leave("and the ranks cannot agree without it");
        }
    }
}

int launched_agree(int code, const char *text)
{
    struct {
        int code, rank;
    } mine = {code, world.at.rank}, worst;
    MPI_Request request;

    /* Of ranks with the same value, MPI takes the lowest. */
    MPI_Iallreduce(&mine, &worst, 1, MPI_2INT, MPI_MAXLOC, MPI_COMM_WORLD, &request);
    launched_wait(&request);
    if (worst.code != EXIT_RIGHT && worst.rank == world.at.rank && text != NULL &&
        text[0] != '\0') {
        say("%s", text);
    }
    return worst.code;
}

bool launched_all(bool fine)
{
    return launched_agree(fine ? EXIT_RIGHT : EXIT_WRONG, NULL) == EXIT_RIGHT;
}

uint64_t launched_node_sum(uint64_t value)
{
    uint64_t *all = calloc((size_t)world.at.size, sizeof(*all));
    MPI_Request request;
    uint64_t sum = 0;

    if (launched_agree(all != NULL ? EXIT_RIGHT : EXIT_USAGE, "no memory") != EXIT_RIGHT) {
        free(all);
        return value;
    }
    MPI_Iallgather(&value, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, MPI_COMM_WORLD, &request);
    launched_wait(&request);
    for (int r = 0; r < world.at.size; r++) {
        sum += world.near[r] ? all[r] : 0;
    }
    free(all);
    return sum;
}

/* ---- start and end --------------------------------------------------------------------------- */

/* The cards of all ranks; false: no memory. */
static bool launched_meet(void)
{
    size_t size = (size_t)world.at.size;
    struct launched_card own, *cards = calloc(size, sizeof(*cards));
    MPI_Request request;
    bool fine;

    world.ranks = calloc(size, sizeof(*world.ranks));
    world.fds = calloc(size, sizeof(*world.fds));
    world.near = calloc(size, sizeof(*world.near));
    fine = cards != NULL && world.ranks != NULL && world.fds != NULL && world.near != NULL;
    if (launched_agree(fine ? EXIT_RIGHT : EXIT_USAGE, "no memory") == EXIT_RIGHT) {
        launched_card_make(&own);
        MPI_Iallgather(&own, sizeof(own), MPI_BYTE, cards, sizeof(own), MPI_BYTE, MPI_COMM_WORLD,
                       &request);
        launched_wait(&request);
        launched_watch(cards);
    } else {
        fine = false;
    }
    free(cards);
    return fine;
}

bool launched_start(struct launched *launched_out)
{
    int level;

    launched_alarm(LAUNCHED_MEET_S, "kvferry: the ranks of this world did not all start in 120 s; "
                                    "the launcher knows which\n");
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS) {
        say("MPI cannot be started");
        return false;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &world.at.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.at.size);
    if (!launched_meet()) {
        MPI_Finalize();
        return false;
    }
    alarm(0);
    *launched_out = world.at;
    return true;
}

bool launched_start_pair(const char *name, bool parsed, const char *text, int *rank_out,
                         int *code_out)
{
    struct launched launched;
    char line[256];

    *code_out = EXIT_USAGE;
    if (launched_rank() < 0) {
        if (parsed) {
            say("%s needs 2 ranks: mpirun -n 2 kvferry %s", name, name);
        } else {
            say("%s", text);
        }
        return false;
    }
    if (!launched_start(&launched)) {
        return false;
    }
    snprintf(line, sizeof(line), "%s needs 2 ranks, this world has %d: mpirun -n 2 kvferry %s",
             name, launched.size, name);
    *code_out = launched_agree(parsed && launched.size == 2 ? EXIT_RIGHT : EXIT_USAGE,
                               parsed ? line : text);
    if (*code_out != EXIT_RIGHT) {
        *code_out = launched_end(*code_out);
        return false;
    }
    *rank_out = launched.rank;
    return true;
}

int launched_end(int code)
{
    code = launched_agree(code, NULL);
    launched_alarm(LAUNCHED_END_S, "kvferry: MPI did not end in 30 s: a rank was lost\n");
    MPI_Finalize();
    alarm(0);
    for (int i = 0; i < world.watched; i++) {
        close(world.fds[i].fd);
    }
    free(world.ranks);
    free(world.fds);
    free(world.near);
    return code;
}

int launched_refuse(int code, const char *text)
{
    struct launched launched;

    if (launched_rank() < 0) {
        say("%s", text);
        return code;
    }
    return launched_start(&launched) ? launched_end(launched_agree(code, text)) : code;
}
