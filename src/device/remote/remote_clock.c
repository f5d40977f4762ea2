/* Implements remote_clock.h. */
#include "device/remote/remote_clock.h"

#include <math.h>

/* Seconds by which two clocks drift apart in a second: quartz clocks differ by
 * at most 50 parts per million from the time each. */
static const double drift = 100e-6;

void remote_clock_update(struct remote_clock *c, const struct remote_round *r)
{
    double least = r->sent_s - r->took_s, most = r->came_s - r->replied_s;
    double wider = drift * (r->came_s - c->seen_s);

    if (c->known && c->least_s - wider <= most && c->most_s + wider >= least) {
        least = fmax(least, c->least_s - wider);
        most = fmin(most, c->most_s + wider);
    }
    *c = (struct remote_clock){true, least, most, r->came_s};
}

double remote_clock_difference(const struct remote_clock *c)
{
    return (c->least_s + c->most_s) / 2;
}
