/* Draws tokens near a probability; see adaptive.h. The logit of a candidate
 * becomes PEAK - SHARPNESS d^2 / (1 + d), where d is the distance between its
 * probability and the adapted target, in units of WIDTH: quadratic near the
 * target, linear far from it. The constants are those of llama.cpp. */
#include "sampling/adaptive.h"

static const double PEAK = 5, SHARPNESS = 10, WIDTH = 0.3;

void adaptive_reset(struct adaptive *a, const struct sampling_options *o)
{
    a->weight = 1 / (1 - (double)o->adaptive_decay);
    a->sum = (double)o->adaptive_target * a->weight;
    a->id = -1;
}

int32_t adaptive_draw(struct adaptive *a, struct candidates *c,
                      const struct sampling_options *o, double u)
{
    const double sum = candidates_weigh(c);
    double target = 2 * (double)o->adaptive_target - a->sum / a->weight;

    target = target < 0 ? 0 : target > 1 ? 1 : target;
    for (int32_t i = 0; i < c->n; i++) {
        const double p = c->c[i].p / sum;
        const double d = (p > target ? p - target : target - p) / WIDTH;

        c->c[i].key = p;
        c->c[i].logit = (float)(PEAK - SHARPNESS * d * d / (1 + d));
    }
    c->heat = 1;
    c->sorted = false;
    a->id = candidates_draw(c, u, NULL);
    for (int32_t i = 0; i < c->n; i++)
        if (c->c[i].id == a->id)
            a->p = c->c[i].key;
    return a->id;
}

void adaptive_accept(struct adaptive *a, const struct sampling_options *o,
                     int32_t id)
{
    if (a->id == id) {
        a->sum = a->p + (double)o->adaptive_decay * a->sum;
        a->weight = 1 + (double)o->adaptive_decay * a->weight;
    }
    a->id = -1;
}
