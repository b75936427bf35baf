#include <string.h>

#include "text/tok.h"

// clang-format off
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UP "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOW "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(suffix) \
    "[^\\r\\n\\p{L}\\p{N}]?" UP "*" LOW "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UP "+" LOW "*" suffix

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define QWEN2 CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define QWEN35 CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES
#define GPT4O CASED(CONTRACTION "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define TEKKEN CASED("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define DEFAULT1 "[\\p{P}\\$\\+<=>\\^~\\|]+"

// name, ignore_merges, add_bos, nfc, digits_apart, patterns. The patterns and flags are those of the
// models' own tokenizer.json, NFC included; the names are GGUF's.
static const struct qn_tok_pre table[] = {
    {"default", false, false, false, false, {DEFAULT1, GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"llama-bpe", true, true, false, false, {LLAMA3}},
    {"llama3", true, true, false, false, {LLAMA3}},
    {"llama-v3", true, true, false, false, {LLAMA3}},
    {"pixtral", true, true, false, false, {LLAMA3}},
    {"qwen2", false, false, true, false, {QWEN2}},
    {"deepseek-r1-qwen", false, false, true, false, {QWEN2}},
    {"qwen35", false, false, true, false, {QWEN35}},
    {"smollm", false, false, false, true, {GPT2}},
    {"starcoder", false, false, false, true, {GPT2}},
    {"refact", false, false, false, true, {GPT2}},
    {"command-r", false, false, true, true, {GPT2}},
    {"gpt-2", false, false, false, false, {GPT2}},
    {"olmo", false, false, true, false, {GPT2}},
    {"gpt-4o", true, false, false, false, {GPT4O}},
    {"llama4", true, false, false, false, {GPT4O}},
    {"tekken", true, true, false, false, {TEKKEN}},
};
// clang-format on

const struct qn_tok_pre *qn_tok_pre_find(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].name, name) == 0) {
            return &table[i];
        }
    }
    return NULL;
}
