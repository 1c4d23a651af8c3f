/*
 * recv_look.c - looking into the generation side: counts, results, descriptions, invariants.
 */
#include "check.h"
#include "recv_internal.h"

const struct recv_counts *recv_session_counts(const struct recv_side *side)
{
    return &side->counts;
}

bool recv_session_lists(const struct recv_side *side, uint64_t rid, uint32_t tag,
                        const struct kvf_block_list **lists_out, uint32_t *prompt_tokens_out)
{
    const struct recv_session *session = recv_live_find(side, rid);

    if (session == NULL || session->tag != tag || !recv_live_pending(session))
        return false;
    *lists_out = session->lists;
    *prompt_tokens_out = session->prompt_tokens;
    return true;
}

enum kvf_status recv_session_result(const struct recv_side *side, uint64_t rid,
                                    struct session_result *result_out)
{
    const struct recv_session *session = recv_live_find(side, rid);

    if (session == NULL)
        return KVF_E_NOTFOUND;
    recv_live_fill_result(session, result_out);
    return KVF_OK;
}

static const char *state_name(enum recv_state state)
{
    switch (state) {
    case RECV_NEW:
        return "NEW";
    case RECV_ASKED:
        return "ASKED";
    case RECV_RECEIVING:
        return "RECEIVING";
    case RECV_OK:
        return "OK";
    case RECV_BAD_WAIT:
        return "BAD_WAIT";
    case RECV_BAD_DRAINED:
        return "BAD_DRAINED";
    case RECV_STRANDED:
        return "STRANDED";
    }
    return "?";
}

static const char *writer_name(enum recv_writer_state state)
{
    switch (state) {
    case RECV_WRITER_UNASKED:
        return "UNASKED";
    case RECV_WRITER_ASKED:
        return "ASKED";
    case RECV_WRITER_DOUBT:
        return "DOUBT";
    case RECV_WRITER_GONE_UNPROVEN:
        return "GONE_UNPROVEN";
    case RECV_WRITER_DONE:
        return "DONE";
    }
    return "?";
}

static const char *waits_for(const struct recv_session *session)
{
    if (session->scatters > 0)
        return "own scatters";
    if (recv_live_pending(session))
        return "reports";
    if (session->state == RECV_STRANDED)
        return "proof";
    return session->unmarked > 0 ? "final reports" : "the group";
}

bool recv_session_describe(const struct recv_side *side, const void **cursor,
                           struct recv_description *description_out)
{
    const struct list *node = *cursor;
    const struct recv_session *session;
    uint32_t count = 0;

    node = node == NULL ? list_first(&side->live) : list_after(&side->live, node);
    if (node == NULL)
        return false;
    *cursor = node;
    session = list_object(node, struct recv_request, node)->session;
    *description_out = (struct recv_description){
        .rid = session->request->rid,
        .tag = session->tag,
        .state = state_name(session->state),
        .waiting = waits_for(session),
        .code = session->code,
        .vote = session->vote_given,
        .scatters = session->scatters,
        .blocks = session->blocks,
        .unmarked = session->unmarked,
    };
    for (node = list_first(&session->writers); node != NULL && count < RECV_DESCRIPTION_WRITERS;
         node = list_after(&session->writers, node)) {
        const struct recv_writer *writer = list_object(node, struct recv_writer, of_session);

        if (writer->state == RECV_WRITER_DONE)
            continue;
        description_out->writer[count].rank = writer->rank;
        description_out->writer[count].state = writer_name(writer->state);
        count++;
    }
    description_out->writer_count = count;
    return true;
}

/* ---- invariants ----------------------------------------------------------------------------- */

struct sums {
    uint32_t writers, unanswered;
    uint64_t retained, stranded;
};

/* Y2, Y4, Y7; returns how many of W are unmarked. */
static uint32_t check_writers(const struct recv_side *side, const struct recv_session *session,
                              struct sums *sums)
{
    uint32_t unmarked = 0;
    uint32_t count = 0;

    for (const struct list *node = list_first(&session->writers); node != NULL;
         node = list_after(&session->writers, node), count++) {
        const struct recv_writer *writer = list_object(node, struct recv_writer, of_session);
        bool marked = writer->state == RECV_WRITER_DONE || writer->state == RECV_WRITER_UNASKED;
        bool expected = writer->group == session->expected_group;

        KVF_ASSERT(writer->session == session && writer->rank < side->params.world_size);
        unmarked += marked ? 0 : 1;
        sums->unanswered += writer->cancelled && !marked ? 1 : 0;
        KVF_ASSERT(!writer->succeeded || writer->state == RECV_WRITER_DONE);
        KVF_ASSERT(list_empty(&writer->publish.node) || writer->state == RECV_WRITER_UNASKED);
        KVF_ASSERT(list_empty(&writer->publish.node) || recv_live_pending(session));
        KVF_ASSERT(list_empty(&writer->resend) || !marked);
        if (session->state == RECV_OK && expected)
            KVF_ASSERT(writer->succeeded && writer->bytes == writer->plan_bytes);
        if (recv_live_pending(session) && expected)
            KVF_ASSERT(!writer->failed && writer->state != RECV_WRITER_DOUBT);
    }
    KVF_ASSERT(count == session->writer_count);
    sums->writers += count;
    return unmarked;
}

static void check_session(const struct recv_side *side, const struct recv_request *request,
                          struct sums *sums)
{
    const struct recv_session *session = request->session;
    uint32_t unmarked;
    bool drained;

    KVF_ASSERT(session != NULL && session->request == request && session->tag != 0);
    KVF_ASSERT(rid_map_find(side->map, request->rid) == request);
    unmarked = check_writers(side, session, sums);
    KVF_ASSERT(unmarked == session->unmarked);
    drained = unmarked == 0 && session->scatters == 0;
    KVF_ASSERT(session->state != RECV_BAD_DRAINED || drained);
    KVF_ASSERT(session->state != RECV_STRANDED || unmarked > 0);
    KVF_ASSERT(session->state != RECV_BAD_WAIT || !drained);
    KVF_ASSERT(!((session->vote_given | session->vote_wanted) & SESSION_VOTE_DRAINED) || drained);
    KVF_ASSERT(SESSION_VOTE_BASE(session->vote_wanted) >= SESSION_VOTE_BASE(session->vote_given));
    KVF_ASSERT(session->vote_wanted == session->vote_given || !list_empty(&session->vote.node));
    KVF_ASSERT((session->outcome == SESSION_PENDING) == recv_live_pending(session));
    KVF_ASSERT((session->outcome == SESSION_OK) == (session->state == RECV_OK));
    KVF_ASSERT(!recv_live_pending(session) || !session->published || !list_empty(&session->timer));
    if (recv_live_is_bad(session)) {
        KVF_ASSERT(session->code != KVF_OK && session->aux == NULL);
        sums->retained += session->blocks;
    }
    if (session->state == RECV_STRANDED)
        sums->stranded += session->blocks;
}

static uint32_t length(const struct list *head)
{
    uint32_t count = 0;

    for (const struct list *node = list_first(head); node != NULL; node = list_after(head, node))
        count++;
    return count;
}

void recv_session_check(const struct recv_side *side)
{
    struct sums sums = {0};
    uint64_t due_ns = 0;

    for (const struct list *node = list_first(&side->live); node != NULL;
         node = list_after(&side->live, node))
        check_session(side, list_object(node, struct recv_request, node), &sums);
    for (const struct list *node = list_first(&side->ended); node != NULL;
         node = list_after(&side->ended, node)) {
        const struct recv_request *request = list_object(node, struct recv_request, node);

        KVF_ASSERT(request->session == NULL && request->due_ns >= due_ns);
        KVF_ASSERT(rid_map_find(side->map, request->rid) == request);
        due_ns = request->due_ns;
    }
    KVF_ASSERT(length(&side->live) == side->counts.live);
    KVF_ASSERT(length(&side->ended) == side->counts.remembered);
    KVF_ASSERT(rid_map_count(side->map) == side->counts.live + side->counts.remembered);
    KVF_ASSERT(length(&side->free_sessions) + side->counts.live == side->params.requests_max);
    KVF_ASSERT(length(&side->free_writers) == side->free_writer_count);
    KVF_ASSERT(side->free_writer_count + sums.writers == side->params.writers_max);
    KVF_ASSERT(sums.unanswered == side->counts.unanswered_cancels);
    KVF_ASSERT(sums.retained == side->counts.retained_blocks);
    KVF_ASSERT(sums.stranded == side->counts.stranded_blocks);
    KVF_ASSERT(side->counts.live > 0 || store_used_words(side->store) == 0);
    store_check(side->store);
}
