/* A model for tests of placement: attention with a cache and shared rope
 * frequencies, experts after a router, and an output of its own. Also the scene
 * in which any model is placed. */
#ifndef TEST_PLACE_MODEL_H
#define TEST_PLACE_MODEL_H

#include "plan/place.h"

/* The model has d_model 128, 4 heads of 16, 8 experts 96 wide and 256 words.
 * Results are named by layer: ffn_norm.0, ids.0, moe_out.0, l_out.0. */
pl_graph *place_model(int n_layer);

struct place_scene {
    pl_graph *g; /* owned */
    struct arena a;
    struct notes notes;
    struct plan_config in; /* owned */
    struct device_list l;
    struct placement p;
    int *home;              /* [n_node] for place_leaves */
    const pl_layout **want; /* [n_node] likewise, all NULL */
    struct numeric *num;    /* output of place_ops; owned; NULL at first */
    int *at;                /* [num->n] for place_ops; NULL at first */
    char warned[2048];      /* all warnings, a line each */
    pl_err err;
};

/* Opens the paper devices of opt.device_spec and their groups; s->err describes
 * an error in them. Close it in either case; do not move it before. */
pl_status place_scene_open(struct place_scene *s, pl_graph *g, pl_options opt);
/* Runs place_leaves into home and want. */
pl_status place_scene_leaves(struct place_scene *s);
void place_scene_close(struct place_scene *s);

#endif
