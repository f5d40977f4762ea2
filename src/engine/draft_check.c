/* Compares the vocabularies of a model and of a draft model. */
#include "pl_draft.h"

#include "base/err.h"
#include "engine/engine.h"

#include <inttypes.h>

pl_status pl_draft_check_model(const pl_model *m, const pl_model *draft,
                               pl_err *err)
{
    const pl_tokenizer *t, *of_draft;

    PL_NEED(m, err);
    PL_NEED(draft, err);
    t = pl_model_tokenizer(m);
    of_draft = pl_model_tokenizer(draft);
    if (t && of_draft)
        return tokenizer_compare(engine_words(t), engine_words(of_draft), err);
    if (!t && !of_draft && pl_model_n_vocab(m) == pl_model_n_vocab(draft))
        return PL_OK;
    return err_set(err, PL_UNSUPPORTED,
                   "the draft model has %" PRId64
                   " tokens and %s tokenizer, the model %" PRId64
                   " and %s; use a draft model with the model's vocabulary",
                   pl_model_n_vocab(draft), of_draft ? "a" : "no",
                   pl_model_n_vocab(m), t ? "a" : "no");
}
