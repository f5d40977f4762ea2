/* Functions that all benchmarks share: the clock, the median of rounds, fatal
 * errors. */
#ifndef BENCH_TIMING_H
#define BENCH_TIMING_H

enum { BENCH_MAX_ROUND = 64 };

/* Returns the seconds since some fixed moment, by the monotonic clock. */
double bench_now(void);
/* Returns the median of v[n], n <= BENCH_MAX_ROUND. */
double bench_median(const double *v, int n);
_Noreturn void bench_die(const char *what, const char *why);

#endif
