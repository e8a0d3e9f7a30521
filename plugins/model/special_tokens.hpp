// Holds which tokens begin, end and pad a text, as a config.json has them. Exports write them again. Where
// transformers looks tokens up with padding_idx, the padding token's row gets no gradient by that.
#pragma once

#include <cstdint>
#include <vector>

#include "prun/foreign.hpp"

// Declares the options, with the defaults of two of them.
#define PRUN_SPECIAL_TOKENS_OPTIONS(ends, padding)                                                           \
  "bos_token | int | -1 | -1..2147483647 | Beginning-of-text token, for exports; -1: none\n"                 \
  "eos_tokens | ints | " ends                                                                                \
  " | 0..2147483647 | End-of-text tokens, for exports\n"                                                     \
  "pad_token | int | " padding                                                                               \
  " | -1..2147483647 | Padding token, for exports; in bert, modernbert and llama its embedding row gets no " \
  "gradient, as in transformers; -1: none\n"

namespace prun {

struct SpecialTokens {
  std::int64_t begin = -1, padding = -1;  // -1: none
  std::vector<std::int64_t> ends;

  explicit SpecialTokens(const Options& options)
      : begin(options.integer("bos_token")), padding(options.integer("pad_token")) {
    for (const double end : options.numbers("eos_tokens")) ends.push_back(static_cast<std::int64_t>(end));
  }

  // A negative padding token counts from the end of the vocabulary, as torch has it.
  static void read_config(const Options& config, ConfigWriter& options) {
    if (config.has("bos_token_id") && config.integer("bos_token_id") >= 0)
      options.set("bos_token", config.integer("bos_token_id"));
    if (const std::vector<std::int64_t> ends = one_or_more(config, "eos_token_id"); !ends.empty())
      options.set("eos_tokens", ends);
    if (!config.has("pad_token_id")) return;
    const std::int64_t padding = config.integer("pad_token_id");
    options.set("pad_token", padding < 0 ? padding + config.integer("vocab_size") : padding);
  }

  // Writes nulls where there are none: classes of transformers have defaults.
  void write_config(ConfigWriter& config) const {
    const auto write = [&](const char* key, std::int64_t token) {
      token < 0 ? config.set_null(key) : config.set(key, token);
    };
    write("bos_token_id", begin);
    if (ends.size() > 1)
      config.set("eos_token_id", ends);
    else
      write("eos_token_id", ends.empty() ? -1 : ends.front());
    write("pad_token_id", padding);
  }

 private:
  static std::vector<std::int64_t> one_or_more(const Options& config, const char* key) {
    std::vector<std::int64_t> all;
    if (!config.has(key)) return all;
    try {
      all.push_back(config.integer(key));
    } catch (const Error&) {
      for (const double one : config.numbers(key)) {
        if (!(one >= -1 && one < 2147483648.0))
          throw_error(ErrorCode::bad_input, "'", key, "' lists ", one, ", which is no token");
        all.push_back(static_cast<std::int64_t>(one));
      }
    }
    std::erase_if(all, [](std::int64_t token) { return token < 0; });
    return all;
  }
};

}  // namespace prun
