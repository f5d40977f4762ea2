/* What the benches share: the clock, the middle of many rounds, giving up. */
#ifndef BENCH_TIMING_H
#define BENCH_TIMING_H

enum { BENCH_MAX_ROUND = 64 };

/* Seconds since some moment, of a clock that never jumps. */
double bench_now(void);
/* The median of v[n], n <= BENCH_MAX_ROUND. */
double bench_median(const double *v, int n);
_Noreturn void bench_die(const char *what, const char *why);

#endif
