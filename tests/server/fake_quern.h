#ifndef QN_TESTS_FAKE_QUERN_H
#define QN_TESTS_FAKE_QUERN_H

#include <stdbool.h>
#include <stddef.h>

/// A stand-in for the library behind quern.h, without weights, so that the server can be tested
/// alone. Its tokens are bytes (ids 0 to 255), EOS 256, BOS 257, "hello" 259 and fillers up to 299.
///
/// What it "samples" is in the prompt: "[[97 98 256]]" gives those ids and then EOS, "[[97 98]]*"
/// repeats them for ever, "[[97 nan]]" fails after them as non-finite logits do. Without such a
/// mark it gives letters that depend on the prompt, and with a temperature on seed and choice, for
/// ever. One step takes step_us; sequences beyond max_num_seqs wait.
struct fake_config {
    unsigned load_ms, step_us;
    size_t context; ///< max_model_len, default 4096
    bool bos;       ///< the tokenizer adds BOS
    bool no_template;
    bool fail_load;
};
extern struct fake_config fake_config;

#endif
