/* Writes a trace for chrome://tracing, Perfetto and similar tools. In the trace
 * each device is a process, each queue a thread, and each instruction a
 * complete event ("ph": "X"). Times are in microseconds since the executor was
 * created. The events of a step are written after the step and not kept in
 * memory, so the length of a trace is not limited.
 *
 * A copy between groups is hidden while a device of the receiving group
 * computes at the same time. exec_trace_sums returns the total time of copies
 * and the hidden part of it. A CPU device copies with its computing threads, so
 * its copies can be hidden only by computations of other devices of its group.
 *
 * The format is the Trace Event Format of the Catapult project. */
#include "exec/exec_trace.h"

#include "base/err.h"
#include "base/numeral.h"
#include "device/device_ops.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct exec_trace {
    const struct compiled *p; /* borrowed plan, which has the names of
                                 instructions */
    pl_write_fn *write;
    void *user;
    struct trace_span *busy; /* owned: buffer for the time spans of all kernels
                                of a step */
    struct trace_span *copy; /* owned: buffer for the time spans of all copies
                                between groups of a step */
    /* times in seconds, on the clock of device_now, at which the trace and the
     * present step began */
    double first_s, start_s;
    bool any;    /* true once an event has been written, so that the next one
                    needs a comma before it */
    pid_t owner; /* process that created the trace; a forked child does not
                    write its end */
    pl_traced sum;
};

static void say(struct exec_trace *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void say(struct exec_trace *t, const char *fmt, ...)
{
    char buf[512];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = numeral_vprint(buf, sizeof buf, fmt, ap);
    va_end(ap);
    if (n > 0 && (size_t)n < sizeof buf)
        t->write(t->user, buf, (size_t)n);
}

/* Writes a JSON string. Names come from a caller or a file and may be invalid
 * UTF-8, so all bytes that are not printable ASCII are written as '?'. */
static void say_string(struct exec_trace *t, const char *s)
{
    say(t, "\"");
    for (size_t n; *s; s += n) {
        for (n = 0; s[n] >= ' ' && s[n] <= '~' && s[n] != '"' && s[n] != '\\';)
            n++;
        t->write(t->user, s, n);
        if (n == 0 && (*s == '"' || *s == '\\'))
            say(t, "\\%c", *s);
        else if (n == 0)
            say(t, "?");
        n += n == 0;
    }
    say(t, "\"");
}

/* ---- creating and freeing a trace --------------------------------------- */

static bool one_queue(const struct compiled *p, int dev)
{
    return p->list.dev[dev].one_queue;
}

static void say_track(struct exec_trace *t, const char *what, int dev,
                      int queue, const char *name)
{
    say(t, "%s{\"name\": \"%s\", \"ph\": \"M\", \"pid\": %d, \"tid\": %d, ",
        t->any ? ",\n" : "", what, dev, queue);
    say(t, "\"args\": {\"name\": ");
    say_string(t, name);
    say(t, "}}");
    t->any = true;
}

pl_status exec_trace_create(struct exec_trace **out, const struct compiled *p,
                            pl_write_fn *write, void *user, pl_err *err)
{
    struct exec_trace *t = calloc(1, sizeof *t);
    size_t room = 1;

    *out = t;
    if (!t)
        return err_no_memory(err, "a trace");
    for (int d = 0; d < p->list.n; d++) {
        int most = 0;

        for (int k = 0; k < p->low->prog[d].n_variant; k++)
            if (p->low->prog[d].variant[k].n_insn > most)
                most = p->low->prog[d].variant[k].n_insn;
        room += (size_t)most;
    }
    t->p = p;
    t->write = write;
    t->user = user;
    t->owner = getpid();
    t->busy = malloc(room * sizeof *t->busy);
    t->copy = malloc(room * sizeof *t->copy);
    if (!t->busy || !t->copy) {
        /* Without the function `write`, exec_trace_free does not write the end
         * of the file. */
        t->write = NULL;
        exec_trace_free(t);
        *out = NULL;
        return err_no_memory(err, "a trace");
    }
    t->first_s = device_now();
    say(t, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    for (int d = 0; d < p->list.n; d++) {
        say_track(t, "process_name", d, 0, p->list.dev[d].name);
        say_track(t, "thread_name", d, QUEUE_COMPUTE, "compute");
        if (!one_queue(p, d))
            say_track(t, "thread_name", d, QUEUE_COPY, "copies");
    }
    return PL_OK;
}

void exec_trace_free(struct exec_trace *t)
{
    if (!t)
        return;
    if (t->write && t->owner == getpid()) /* A forked child does not write the
                                             end, because its parent does. */
        say(t, "\n]}\n");
    free(t->busy);
    free(t->copy);
    free(t);
}

/* ---- writing the events of a step --------------------------------------- */

void exec_trace_start(struct exec_trace *t)
{
    t->start_s = device_now();
}

static const struct insn *insn_of(const struct exec_trace *t, int variant,
                                  const struct device_timing *e)
{
    return &t->p->low->prog[e->dev].variant[variant].insn[e->step];
}

/* Returns the event name of instruction s, and sets *category to the category
 * of the event. */
static const char *action(const struct exec_trace *t, const struct insn *s,
                          const char **category)
{
    *category = "op";
    switch (s->kind) {
    case INSN_KERNEL:
        return s->node >= 0 && s->kernel.kernel == KERNEL_custom
                   ? graph_op_name(&t->p->g->node[s->node])
                   : kernel_name(s->kernel.kernel);
    case INSN_MERGE:
        *category = insn_is_collective(s) ? "message" : "op";
        return insn_is_collective(s) ? "merge" : "gather";
    case INSN_PULL:
    case INSN_PUSH:
    case INSN_PAGES:
        *category = insn_is_group_copy(s) ? "copy" : "message";
        return s->kind == INSN_PAGES   ? "copy pages"
               : insn_is_group_copy(s) ? "copy"
               : s->kind == INSN_PULL  ? "pull"
                                       : "push";
    case INSN_POST:
    case INSN_WAIT:
        break;
    }
    return "";
}

/* Returns the graph node whose name the trace shows for the instruction that
 * computes node `node`: the first weight among its operands, else the node
 * itself. */
static const struct graph_node *tensor_of(const struct exec_trace *t, int node)
{
    const struct graph_node *n = &t->p->g->node[node];

    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] >= 0 && t->p->g->node[n->in[k]].op == OP_weight)
            return &t->p->g->node[n->in[k]];
    return n;
}

static void say_event(struct exec_trace *t, const struct insn *s,
                      const struct device_timing *e)
{
    int queue = one_queue(t->p, e->dev) ? QUEUE_COMPUTE : (int)s->queue;
    const char *category, *name = action(t, s, &category);

    say(t, "%s{\"name\": ", t->any ? ",\n" : "");
    say_string(t, name);
    say(t,
        ", \"cat\": \"%s\", \"ph\": \"X\", \"pid\": %d, \"tid\": %d, "
        "\"ts\": %.3f, \"dur\": %.3f, \"args\": {",
        category, e->dev, queue, 1e6 * (t->start_s - t->first_s + e->begin_s),
        1e6 * (e->end_s - e->begin_s));
    if (s->node >= 0) {
        say(t, "\"tensor\": ");
        say_string(t, insn_is_transfer(s) ? t->p->g->node[s->node].name
                                          : tensor_of(t, s->node)->name);
        say(t, ", \"layer\": %d, ", t->p->g->node[s->node].layer);
    }
    say(t, "\"micro_batch\": %d}}", s->micro);
    t->any = true;
}

/* ---- time of copies hidden by computation ------------------------------- */

static int by_begin(const void *a, const void *b)
{
    double x = ((const struct trace_span *)a)->begin_s;
    double y = ((const struct trace_span *)b)->begin_s;

    return (x > y) - (x < y);
}

double exec_trace_hidden(struct trace_span *busy, int n_busy,
                         const struct trace_span *copy, int n_copy)
{
    double sum = 0;
    int n = 0;

    qsort(busy, (size_t)n_busy, sizeof *busy, by_begin);
    for (int i = 0; i < n_busy; i++) /* Merges spans that overlap, so that the
                                        remaining ones are disjoint. */
        if (n > 0 && busy[i].begin_s <= busy[n - 1].end_s) {
            if (busy[i].end_s > busy[n - 1].end_s)
                busy[n - 1].end_s = busy[i].end_s;
        } else {
            busy[n++] = busy[i];
        }
    for (int k = 0; k < n_copy; k++) {
        /* Finds, by binary search, the first span that ends after the copy
         * begins. */
        int lo = 0, hi = n;

        while (lo < hi) {
            int mid = lo + (hi - lo) / 2;

            if (busy[mid].end_s <= copy[k].begin_s)
                lo = mid + 1;
            else
                hi = mid;
        }
        for (; lo < n && busy[lo].begin_s < copy[k].end_s; lo++) {
            double from = busy[lo].begin_s > copy[k].begin_s ? busy[lo].begin_s
                                                             : copy[k].begin_s;
            double to =
                busy[lo].end_s < copy[k].end_s ? busy[lo].end_s : copy[k].end_s;

            sum += to - from;
        }
    }
    return sum;
}

/* Returns true if devices a and b are equal or members of the same group. */
static bool peers(const struct compiled *p, int a, int b)
{
    const struct placement *y = &p->place;

    for (int i = 0; i < y->n_group && a != b; i++) {
        bool has_a = false, has_b = false;

        for (int k = 0; k < y->group[i].n; k++) {
            has_a |= y->member[y->group[i].first + k].dev == a;
            has_b |= y->member[y->group[i].first + k].dev == b;
        }
        if (has_a && has_b)
            return true;
    }
    return a == b;
}

/* Adds the time of the step's copies between groups, and the hidden part of it,
 * to the sums. */
static void add_copies(struct exec_trace *t, int variant,
                       const struct device_timing *event, int n)
{
    for (int d = 0; d < t->p->list.n; d++) {
        int n_copy = 0, n_busy = 0;

        for (int i = 0; i < n; i++) {
            const struct insn *s = insn_of(t, variant, &event[i]);

            if (event[i].dev == d && insn_is_group_copy(s)) {
                t->copy[n_copy++] =
                    (struct trace_span){event[i].begin_s, event[i].end_s};
                t->sum.copy_s += event[i].end_s - event[i].begin_s;
            }
        }
        for (int i = 0; n_copy > 0 && i < n; i++)
            if (!insn_is_transfer(insn_of(t, variant, &event[i])) &&
                peers(t->p, event[i].dev, d))
                t->busy[n_busy++] =
                    (struct trace_span){event[i].begin_s, event[i].end_s};
        t->sum.hidden_s += exec_trace_hidden(t->busy, n_busy, t->copy, n_copy);
    }
}

void exec_trace_run(struct exec_trace *t, int variant,
                    const struct device_timing *event, int n)
{
    double end = 0;

    for (int i = 0; i < n; i++) {
        say_event(t, insn_of(t, variant, &event[i]), &event[i]);
        end = event[i].end_s > end ? event[i].end_s : end;
    }
    add_copies(t, variant, event, n);
    t->sum.runs++;
    t->sum.seconds += end;
}

void exec_trace_sums(const struct exec_trace *t, pl_traced *out)
{
    *out = t ? t->sum : (pl_traced){0};
}
