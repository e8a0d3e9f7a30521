#include "train/assemble/masked_tokens.hpp"

#include <algorithm>

#include "base/random.hpp"
#include "plugin/traits.hpp"
#include "recipe/diagnostics.hpp"

namespace prun {
namespace {

// Returns what a model or data plugin states that it predicts.
std::string_view predicted(PluginHost& plugins, const char* kind, const std::string& plugin) {
  return trait_of(plugins.note(kind, plugin), "predicts");
}

void check_vocabulary(const char* key, std::int64_t token, std::int64_t vocab) {
  if (token >= vocab)
    throw_error(ErrorCode::bad_input, key, " = ", token, " is outside of model.vocab = ", vocab,
                "; name a token of the model's");
}

}  // namespace

std::optional<MaskedTokens> MaskedTokens::of(const Recipe& recipe, std::int64_t vocab) {
  const double share = recipe.number("data.mask");
  if (share == 0) return {};
  const std::int64_t mask = recipe.integer("data.mask_token");
  const std::vector<std::int64_t>& never = recipe.integers("data.mask_never");
  check_vocabulary("data.mask_token", mask, vocab);
  for (const std::int64_t token : never) check_vocabulary("data.mask_never", token, vocab);
  return MaskedTokens(share, static_cast<std::int32_t>(mask), never, vocab,
                      static_cast<std::uint64_t>(recipe.integer("run.seed")));
}

void MaskedTokens::apply(std::int64_t number, std::span<std::int32_t> tokens,
                         std::span<std::int32_t> targets) const {
  const std::uint64_t stream = stream_id("data.mask", static_cast<std::uint64_t>(number));
  bool counts = true;  // whether the target of the position before, which is this token, counts
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::int32_t token = tokens[i];
    const bool may = counts && !is_never(token);
    counts = targets[i] >= 0;
    const PhiloxCounter drawn = philox_block(seed_, stream, i);
    const bool chosen = may && unit_double(std::uint64_t{drawn[1]} << 32 | drawn[0]) < share_;
    targets[i] = chosen ? token : -1;
    if (chosen) tokens[i] = seen(drawn[2], drawn[3], token);
  }
}

std::int32_t MaskedTokens::seen(std::uint32_t which, std::uint32_t any, std::int32_t token) const {
  const float unit = unit_float(which);
  if (unit < 0.8f) return mask_;
  if (unit >= 0.9f) return token;
  const auto other = static_cast<std::int32_t>(std::uint64_t{any} * static_cast<std::uint64_t>(vocab_) >> 32);
  return is_never(other) ? mask_ : other;
}

bool MaskedTokens::is_never(std::int32_t token) const {
  return std::find(never_.begin(), never_.end(), token) != never_.end();
}

void check_masks(const Recipe& recipe, PluginHost& plugins, Diagnostics& problems) {
  const bool masks = recipe.number("data.mask") > 0;
  const auto wrong = [&](const char* key, std::string text) {
    problems.add(recipe.problem(key, std::move(text)));
  };
  if (masks && !recipe.has("data.mask_token"))
    wrong("data.mask",
          "data.mask hides tokens behind one that says so; set data.mask_token to its number, "
          "such as 103 for [MASK] of bert-base");
  if (masks && recipe.flag("run.loss_by_role"))
    wrong(
        "run.loss_by_role",
        "run.loss_by_role tells the loss of answers apart, and data.mask has tokens predicted from those on "
        "both sides; leave one of the two out");
  const std::string& model = recipe.section("model").plugin();
  const bool wants = predicted(plugins, "model", model) == "masked";
  const bool given = predicted(plugins, "data", recipe.section("data").plugin()) == "masked";
  if (wants && !masks && !given)
    wrong(
        "model.plugin",
        detail::concat("model '", model,
                       "' sees the tokens on both sides, the next one among them, so it learns from masked "
                       "ones alone; set data.mask to the share of them, such as 0.15, and data.mask_token"));
  if (masks && (!wants || given))
    wrong("data.mask", wants ? "these data mask tokens by themselves; leave data.mask out"
                             : detail::concat("model '", model,
                                              "' predicts the next token from those before it, and data.mask "
                                              "has tokens predicted in place; leave it out"));
}

}  // namespace prun
