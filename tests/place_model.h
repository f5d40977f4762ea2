/* A model for tests of placement: attention with a cache and shared rope
 * frequencies, experts behind a router, an output of its own. */
#ifndef TEST_PLACE_MODEL_H
#define TEST_PLACE_MODEL_H

#include "pl.h"

/* d_model 128, 4 heads of 16, 8 experts 96 wide, 256 words. Results bear the
 * names of their layer: ffn_norm.0, ids.0, moe_out.0, l_out.0. */
pl_graph *place_model(int n_layer);

#endif
