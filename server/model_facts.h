/* Facts about a loaded model that /v1/models reports. */
#ifndef SERVER_MODEL_FACTS_H
#define SERVER_MODEL_FACTS_H

#include "pl.h"

struct model_facts {
    int vocab_type;  /* llama.cpp's number of the tokenizer's kind; 0 if the
                        file has no tokenizer */
    int64_t n_param; /* number of values of all tensors */
    int64_t n_byte;  /* size of all tensors in bytes */
};

/* Reads the facts from the description of an open model. NO_MEMORY is the only
 * error. */
pl_status model_facts_read(struct model_facts *out, const pl_model *m,
                           pl_err *err);

#endif
