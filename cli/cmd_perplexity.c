/* plait perplexity: measures how well a model predicts a text, by the method of
 * llama.cpp's llama-perplexity. The text is cut into windows of -c tokens that
 * do not overlap. Each starts from an empty cache, and the predictions in its
 * second half are scored. If the tokenizer requires a BOS, it replaces the
 * first token of each window. The error shown is the standard error of the
 * mean over all scored tokens. */
#include "cmd.h"
#include "input.h"
#include "receipt_file.h"
#include "session.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    WINDOW = 512, /* default length of a window, in tokens */
    /* Most rows of logits that one call of the engine computes; this limits the
     * memory for them. */
    ROWS = 64,
};

struct measure {
    const struct options *o;
    struct session s;
    int32_t *ids; /* [n_id] tokens of the text, owned */
    int64_t n_id;
    /* token that replaces the first token of each window; -1 if the tokenizer
     * requires no BOS */
    int32_t bos;
    int64_t window, n_window;
    float *logits; /* [ROWS, n_vocab] logits of one call, owned */
    /* sum of -log p, and of its square, over the n_scored tokens */
    double sum, sum2;
    int64_t n_scored;
    struct whole_file receipts; /* file of --receipt */
    struct jws_key *sign_key;   /* of --sign-key; owned; NULL if none */
    pl_receipt *receipt;        /* of the window; owned; NULL if none */
};

/* Returns -log p of token `id`, where p = softmax(logits)[id]. */
static double token_nll(const float *logits, int64_t n_vocab, int32_t id)
{
    double top = logits[0];
    double sum = 0.0;

    for (int64_t i = 1; i < n_vocab; i++)
        top = logits[i] > top ? logits[i] : top;
    for (int64_t i = 0; i < n_vocab; i++)
        sum += exp(logits[i] - top);
    return log(sum) + top - logits[id];
}

/* Scores a token by its logits. */
static pl_status score(struct measure *m, const float *logits, int32_t id,
                       pl_err *err)
{
    pl_status s = PL_OK;
    double v;

    if (m->receipt != NULL)
        s = pl_receipt_score(m->receipt, logits, id, &v, err);
    else
        v = token_nll(logits, m->s.n_vocab, id);
    if (s != PL_OK)
        return s;
    m->sum += v;
    m->sum2 += v * v;
    m->n_scored++;
    return PL_OK;
}

static pl_status measure_window(struct measure *m, int64_t index, pl_err *err)
{
    const int64_t first = m->window / 2;
    int32_t *ids = m->ids + index * m->window;
    pl_status r = pl_seq_trim(m->s.engine, 0, 0, NULL, err);

    if (m->bos >= 0)
        ids[0] = m->bos;
    if (r == PL_OK && m->o->receipt != NULL)
        r = pl_receipt_begin(&m->receipt, m->s.engine, ids, first + 1, err);
    if (r == PL_OK)
        r = session_feed(&m->s, ids, first, NULL, NULL, &term_interrupts, err);
    /* The window's last position predicts a token of the next window, so it is
     * not scored. */
    for (int64_t i = first; i < m->window - 1 && r == PL_OK; i += ROWS) {
        int64_t n = m->window - 1 - i < ROWS ? m->window - 1 - i : ROWS;
        pl_batch b = {
            .size = sizeof b, .n = n, .token = ids + i, .logits = m->logits};

        r = pl_engine_decode(m->s.engine, &b, &term_interrupts, err);
        for (int64_t k = 0; k < n && r == PL_OK; k++)
            r = score(m, m->logits + k * m->s.n_vocab, ids[i + k + 1], err);
    }
    if (r == PL_OK && m->receipt != NULL)
        r = receipt_line(&m->receipts, m->receipt, PL_RECEIPT_FULL, m->sign_key,
                         err);
    pl_receipt_free(m->receipt);
    m->receipt = NULL;
    return r;
}

static double perplexity(const struct measure *m, double *error)
{
    double n = (double)m->n_scored;
    double mean = m->sum / n;
    double variance = m->sum2 / n - mean * mean;

    *error = n > 1.0 && variance > 0.0 ? sqrt(variance / (n - 1.0)) * exp(mean)
                                       : 0.0;
    return exp(mean);
}

/* Prints the perplexity of the windows measured so far, if all windows together
 * will take more than a second. */
static void show(struct measure *m, int64_t done, double seconds)
{
    double error;
    double value = perplexity(m, &error);

    if (seconds * (double)m->n_window > (double)done)
        term_status(&m->s.progress,
                    "%" PRId64 "/%" PRId64 " windows  %.4f +/- %.4f  %.0f s",
                    done, m->n_window, value, error, seconds);
}

static enum exit_code prepare(struct measure *m)
{
    const struct options *o = m->o;
    struct input in = {0};
    pl_err err;
    pl_status r;
    enum exit_code c =
        o->model != NULL ? input_prompt(&in, o) : report_no_model(o, "");

    if (c == EXIT_DONE)
        c = receipt_read_key(&m->sign_key, o);
    if (c == EXIT_DONE)
        c = session_open(&m->s, o);
    if (c == EXIT_DONE)
        c = session_require_tokenizer(&m->s, o);
    if (c != EXIT_DONE)
        goto done;
    r = pl_tokenize(m->s.words, in.s, in.len, PL_ADD_SPECIAL, &m->ids, &m->n_id,
                    &err);
    if (r != PL_OK) {
        c = report(o, r, &err);
        goto done;
    }
    m->bos =
        pl_tokenizer_adds_bos(m->s.words) ? pl_tokenizer_bos(m->s.words) : -1;
    m->window = o->pl.n_ctx > 0 ? o->pl.n_ctx : WINDOW;
    m->n_window = m->n_id / m->window;
    if (m->window < 4) {
        c = cli_error(o->command, EXIT_USAGE,
                      "-c %" PRId64 ": a window needs at least 4 tokens",
                      m->window);
        goto done;
    }
    if (m->n_window == 0) {
        c = cli_error(o->command, EXIT_FAILED,
                      "the text has %" PRId64
                      " tokens, but a window needs %" PRId64
                      "; give a longer text or a smaller -c",
                      m->n_id, m->window);
        goto done;
    }
    if (o->n_chunks == 0) {
        c = cli_error(
            o->command, EXIT_USAGE,
            "--chunks 0 measures nothing; use 1 or more, or -1 for all");
        goto done;
    }
    if (o->n_chunks > 0 && o->n_chunks < m->n_window)
        m->n_window = o->n_chunks;
    m->s.pl.n_ctx = m->window;
    m->s.pl.n_out = ROWS;
    m->logits = malloc(ROWS * (size_t)m->s.n_vocab * sizeof(*m->logits));
    c = m->logits != NULL ? session_load(&m->s, o)
                          : cli_error(o->command, EXIT_FAILED,
                                      "no memory for %d rows of logits", ROWS);
    if (c == EXIT_DONE && o->receipt != NULL)
        c = atomic_file_open(&m->receipts, o, "--receipt", o->receipt);
done:
    input_free(&in);
    return c;
}

enum exit_code cmd_perplexity(const struct options *o)
{
    struct measure m = {.o = o};
    enum exit_code c = prepare(&m);
    int64_t done = 0;
    double value = 0.0;
    double error = 0.0;
    double start = term_seconds();
    pl_err err;

    if (c == EXIT_DONE)
        term_interrupts_count(1);
    while (c == EXIT_DONE && done < m.n_window) {
        pl_status r = measure_window(&m, done, &err);

        if (r != PL_OK) {
            term_progress_end(&m.s.progress);
            c = report(o, r, &err);
            break;
        }
        done++;
        show(&m, done, term_seconds() - start);
    }
    term_progress_end(&m.s.progress);
    if (done > 0)
        value = perplexity(&m, &error);
    if (done > 0 && !(isfinite(value) && isfinite(error))) {
        c = cli_error(o->command, EXIT_FAILED,
                      "the perplexity is %g +/- %g: the model gives almost no "
                      "probability to the text's tokens; it is damaged, or has "
                      "another vocabulary",
                      value, error);
    } else if (done > 0) {
        printf("perplexity: %.4f +/- %.4f (%" PRId64 " windows of %" PRId64
               ")\n",
               value, error, done, m.window);
        fprintf(stderr, "%.1f t/s\n",
                (double)(done * m.window) / (term_seconds() - start));
        if (c == EXIT_DONE)
            c = finish_out(o);
    }
    c = atomic_file_close(&m.receipts, o, done > 0, c);
    c = session_close(&m.s, c);
    jws_key_free(m.sign_key);
    free(m.logits);
    free(m.ids);
    return c;
}
