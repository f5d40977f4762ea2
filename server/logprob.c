/* Computes the logarithm of the softmax in double precision. The likeliest
 * tokens are inserted into a sorted list. For most tokens one comparison with
 * the last item of the list shows that they are not among the likeliest. */
#include "logprob.h"

#include <math.h>

int logprob_read(const float *logits, int64_t n_vocab, struct logprob *of,
                 struct logprob *top, int n_top)
{
    double most = -INFINITY, sum = 0, all;
    int n = 0;

    for (int64_t i = 0; i < n_vocab; i++)
        most = fmax(most, (double)logits[i]);
    for (int64_t i = 0; i < n_vocab; i++)
        sum += exp((double)logits[i] - most);
    all = most + log(sum);
    of->p = (double)logits[of->id] - all;
    for (int64_t i = 0; i < n_vocab && n_top > 0; i++) {
        double p = (double)logits[i] - all;
        int at;

        if (n == n_top && !(p > top[n - 1].p))
            continue;
        n += n < n_top;
        for (at = n - 1; at > 0 && p > top[at - 1].p; at--)
            top[at] = top[at - 1];
        top[at] = (struct logprob){(int32_t)i, p};
    }
    return n;
}
