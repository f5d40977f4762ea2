/* A model for tests of placement: attention with a cache, RoPE frequencies that
 * layers share, experts chosen by a router, and an output matrix. Also a struct
 * that holds all that placing a model needs. */
#ifndef TEST_PLACE_MODEL_H
#define TEST_PLACE_MODEL_H

#include "plan/place.h"

/* Builds a model with d_model 128, 4 heads of 16, 8 experts of width 96 and 256
 * words. Results have the layer in their name: ffn_norm.0, ids.0, moe_out.0,
 * l_out.0. */
pl_graph *place_model(int n_layer);

struct place_scene {
    pl_graph *g; /* the graph to place, owned */
    struct arena a;
    struct notes notes;
    struct plan_config in; /* the plan's options, owned */
    struct device_list l;
    struct placement p;
    int *home; /* [n_node] group of each leaf, written by place_leaves */
    /* [n_node] requested layout of each leaf, written by place_leaves; NULL
     * before */
    const pl_layout **want;
    /* the numeric plan that a test creates for place_ops, owned; NULL at
     * first */
    struct numeric *num;
    /* [num->n] group of each node, written by place_ops; NULL at first */
    int *at;
    char warned[2048]; /* all warnings of planning, one per line */
    pl_err err;
};

/* Opens the paper devices of opt.device_spec and forms their groups; s->err
 * describes an error. The caller closes the scene in either case, and does not
 * move the struct before. */
pl_status place_scene_open(struct place_scene *s, pl_graph *g, pl_options opt);
/* Calls place_leaves, which writes s->home and s->want. */
pl_status place_scene_leaves(struct place_scene *s);
void place_scene_close(struct place_scene *s);

#endif
