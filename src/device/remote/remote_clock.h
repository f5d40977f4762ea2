/* The difference between the clocks of two machines, for traces.
 *
 * A message that left at one time by the sender's clock and was received at
 * another by the receiver's has taken some time. So messages in both directions
 * bound the difference from both sides (Cristian, Probabilistic Clock
 * Synchronization, 1989). The bounds of earlier messages stay, widened by what
 * two clocks drift apart meanwhile, because a message may be late. */
#ifndef DEVICE_REMOTE_CLOCK_H
#define DEVICE_REMOTE_CLOCK_H

#include <stdbool.h>

struct remote_clock {
    bool known;
    /* bounds of the difference: this machine's clock minus the other one's, in
     * seconds */
    double least_s, most_s;
    double seen_s; /* when they were updated, by this machine's clock */
};

/* Times of a message to the other machine and of its reply, in seconds: those
 * of this machine's clock are sent_s and came_s, those of the other one's
 * took_s and replied_s. */
struct remote_round {
    double sent_s, took_s, replied_s, came_s;
};

/* Updates the bounds. If they contradict the earlier ones, because a clock was
 * set or a machine slept, the earlier ones are dropped. */
void remote_clock_update(struct remote_clock *c, const struct remote_round *r);
/* Returns the middle of the bounds. */
double remote_clock_difference(const struct remote_clock *c);

#endif
