/* Hyper-parameters: the keys of a GGUF file that shape the network. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include "model/model.h"

/* Fills all of `m` but file, family (both set) and what is unused. */
pl_status model_params_read(struct model *m, pl_err *err);

#endif
