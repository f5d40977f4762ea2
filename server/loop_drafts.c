/* Drafts of the engine loop: tokens that a drafter proposes to follow the text
 * of a decoding task (pl_draft.h). The step computes them together with the
 * task's last token. They do not belong to the task's text. Those that the
 * sampler chooses, too, are appended to it one by one, as all tokens are. */
#include "loop_inner.h"

#include <string.h>

/* Returns the number of rows of logits that are left for drafts in the step. */
static int64_t rows_left(const struct loop *l)
{
    int64_t left = l->max_rows < PL_DRAFT_MAX ? l->max_rows : PL_DRAFT_MAX;

    for (int i = 0; i < l->n_run; i++)
        if (l->run[i]->params.prompt_logits)
            left -= l->plan[i].n_now;
    return left;
}

/* Returns how many tokens of the task can be verified: one less than it may
 * still generate. */
static int64_t most_useful(const struct loop *l, const struct task *w)
{
    int64_t most = l->n_ctx - w->n_text;

    if (w->params.max_tokens >= 0 && w->params.max_tokens - w->n_written < most)
        most = w->params.max_tokens - w->n_written;
    return most - 1;
}

void loop_drafts_begin(struct loop *l, const struct task *w)
{
    if (w->n_done > 0)
        pl_draft_begin(l->o.drafter, w->seq, w->text, w->n_text, w->n_done);
}

void loop_drafts_propose(struct loop *l)
{
    int64_t rows = 0;
    int n = 0;
    pl_status s;
    pl_err err;

    if (!l->o.drafter)
        return;
    for (int i = 0; i < l->n_run; i++) {
        struct task *w = l->run[i];

        w->n_draft = 0; /* of a step that ended before it used the drafts */
        rows += l->rows[i] ? 0 : l->plan[i].n_now;
        if (w->at != TASK_DECODING || l->plan[i].n_now == 0)
            continue;
        l->drafted[n] = w;
        l->draft[n] = (pl_draft){.seq = w->seq,
                                 .text = w->text,
                                 .n_text = w->n_text,
                                 .n_most = most_useful(l, w),
                                 .n_again = l->plan[i].n_now - 1,
                                 .token = w->draft};
        if (w->params.has_drafts)
            l->draft[n].limits = &w->params.drafts;
        n++;
    }
    l->n_drafted = n;
    if (n == 0)
        return;
    s = pl_draft_propose(l->o.drafter, l->draft, n, rows, rows_left(l), &err);
    if (s != PL_OK && s != PL_NO_MEMORY)
        server_log(l->o.log, l->o.log_user, PL_LOG_WARN,
                   "the draft model failed and is not used again: %s",
                   err.message);
    for (int i = 0; i < n; i++)
        l->drafted[i]->n_draft = l->draft[i].n;
}

/* Makes the task's sequence the computed part of its text again. It may become
 * shorter: the rest is then computed once more. */
static void trim(struct loop *l, struct task *w)
{
    int64_t kept;

    if (pl_seq_length(l->e, w->seq) <= w->n_done)
        return;
    if (pl_seq_trim(l->e, w->seq, w->n_done, &kept, NULL) != PL_OK) {
        pl_seq_trim(l->e, w->seq, 0, NULL, NULL);
        kept = 0;
    }
    w->n_done = kept;
}

void loop_drafts_settle(struct loop *l, struct task *w)
{
    if (w->n_draft == 0)
        return;
    pl_draft_record(l->o.drafter, w->seq, w->n_accepted);
    w->n_drafted += w->n_draft;
    w->n_taken += w->n_accepted;
    pthread_mutex_lock(&l->lock);
    schedule_charge(&l->schedule, w->params.client, w->n_accepted);
    pthread_mutex_unlock(&l->lock);
    w->n_draft = w->n_accepted = 0;
    trim(l, w);
    /* A long part is computed in chunks, as a prompt is. */
    if (w->n_text - w->n_done > PL_DRAFT_MAX)
        loop_set_state(l, w, TASK_PREFILL);
}

bool loop_drafts_drop(struct loop *l)
{
    bool any = false;

    for (int i = 0; i < l->n_run; i++) {
        struct task *w = l->run[i];

        if (w->n_draft == 0)
            continue;
        any = true;
        w->n_draft = 0;
        trim(l, w);
        l->plan[i].n_now = w->n_text - w->n_done;
    }
    l->n_drafted = any ? 0 : l->n_drafted;
    return any;
}

void loop_drafts_measure(struct loop *l)
{
    if (l->o.drafter && l->n_drafted > 0)
        pl_draft_measure(l->o.drafter, (int64_t)(l->last_step_s * 1e9));
    l->n_drafted = 0;
}
