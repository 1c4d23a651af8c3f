/* session.c - what the two session machines share. */
#include "session.h"

void session_lists_moved(struct kvf_block_list *lists, uint32_t count, const uint32_t *run)
{
    for (uint32_t i = 0; i < count; i++) {
        lists[i].slots = run;
        run += lists[i].count;
    }
}

const char *session_vote_name(unsigned vote)
{
    static const char *const names[2][8] = {
        {"NONE", "ASKED", "WITHDRAWN", "DONE", "DOOMED_FAILED", "DOOMED_PEER", "DOOMED_USER",
         "ABSENT"},
        {"NONE+DRAINED", "ASKED+DRAINED", "WITHDRAWN+DRAINED", "DONE+DRAINED",
         "DOOMED_FAILED+DRAINED", "DOOMED_PEER+DRAINED", "DOOMED_USER+DRAINED", "ABSENT+DRAINED"},
    };

    return names[(vote & SESSION_VOTE_DRAINED) != 0][SESSION_VOTE_BASE(vote)];
}

const char *session_outcome_name(enum session_outcome outcome)
{
    switch (outcome) {
    case SESSION_PENDING:
        return "PENDING";
    case SESSION_OK:
        return "OK";
    case SESSION_FAILED:
        return "FAILED";
    case SESSION_CANCELLED:
        return "CANCELLED";
    }
    return "?";
}
