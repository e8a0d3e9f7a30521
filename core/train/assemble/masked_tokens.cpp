#include "train/assemble/masked_tokens.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.hpp"
#include "plugin/traits.hpp"
#include "recipe/diagnostics.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- masked tokens

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

// ------------------------------------------------------------------- corrupted spans

SpanSizes span_sizes(std::int64_t text, double share, double length) {
  const auto rounded = [](double x) { return static_cast<std::int64_t>(std::llround(x)); };
  SpanSizes sizes{text, 0, 0};
  sizes.cut = std::clamp<std::int64_t>(rounded(share * static_cast<double>(text)), 1, text - 1);
  sizes.spans = std::clamp<std::int64_t>(rounded(static_cast<double>(sizes.cut) / length), 1,
                                         std::min(sizes.cut, text - sizes.cut));
  return sizes;
}

namespace {

// Returns the sizes of the longest text that makes no more than a sample.
SpanSizes sizes_of(const Recipe& recipe) {
  const std::int64_t seq = recipe.integer("model.seq");
  SpanSizes sizes;
  for (std::int64_t text = 2; text < seq; ++text) {
    const SpanSizes of = span_sizes(text, recipe.number("data.spans"), recipe.number("data.span_length"));
    if (of.inputs() + of.outputs() > seq) break;
    sizes = of;
  }
  return sizes;
}

}  // namespace

std::optional<CorruptedSpans> CorruptedSpans::of(const Recipe& recipe, std::int64_t vocab) {
  if (recipe.number("data.spans") == 0) return {};
  const SpanSizes sizes = sizes_of(recipe);
  const auto token = [&](const char* key) {
    const std::int64_t number = recipe.integer(key);
    if (number >= vocab)
      throw_error(ErrorCode::bad_input, key, " = ", number, " is outside of model.vocab = ", vocab,
                  "; name a token of the model's");
    return static_cast<std::int32_t>(number);
  };
  const Tokens tokens{token("data.span_token"), token("data.span_end"), token("data.span_start")};
  if (tokens.first_span < sizes.spans - 1)
    throw_error(ErrorCode::bad_input, "cannot mark ", sizes.spans,
                " spans of a sample by tokens from data.span_token = ", tokens.first_span,
                " down; name a higher one, or let spans be longer or rarer");
  return CorruptedSpans(sizes, tokens, static_cast<std::uint64_t>(recipe.integer("run.seed")));
}

std::vector<std::int64_t> CorruptedSpans::ends(std::uint64_t stream, std::size_t word,
                                               std::int64_t items) const {
  std::vector<std::pair<std::uint32_t, std::int64_t>> places;
  for (std::int64_t i = 1; i < items; ++i)
    places.emplace_back(philox_block(seed_, stream, static_cast<std::uint64_t>(i))[word], i);
  const auto cuts = static_cast<std::ptrdiff_t>(sizes_.spans - 1);
  std::partial_sort(places.begin(), places.begin() + cuts, places.end());
  std::vector<std::int64_t> ends;
  for (std::ptrdiff_t i = 0; i < cuts; ++i) ends.push_back(places[static_cast<std::size_t>(i)].second);
  std::sort(ends.begin(), ends.end());
  ends.push_back(items);
  return ends;
}

void CorruptedSpans::apply(std::int64_t number, std::span<const std::int32_t> text,
                           std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
  const std::uint64_t stream = stream_id("data.spans", static_cast<std::uint64_t>(number));
  const std::vector<std::int64_t> cut = ends(stream, 0, sizes_.cut),
                                  left = ends(stream, 1, sizes_.text - sizes_.cut);
  const auto inputs = static_cast<std::size_t>(sizes_.inputs());
  std::fill(targets.begin(), targets.end(), -1);
  auto in = tokens.begin(), from_in = in;
  auto out = targets.begin() + sizes_.inputs();
  auto from = text.begin();
  for (std::size_t span = 0; span < cut.size(); ++span) {
    const std::int64_t kept = left[span] - (span > 0 ? left[span - 1] : 0),
                       gone = cut[span] - (span > 0 ? cut[span - 1] : 0);
    const std::int32_t stands_for = tokens_.first_span - static_cast<std::int32_t>(span);
    in = std::copy_n(from, kept, in);
    from += kept;
    *in++ = *out++ = stands_for;
    out = std::copy_n(from, gone, out);
    from += gone;
  }
  *in++ = *out = tokens_.end;
  PRUN_CHECK(static_cast<std::size_t>(in - from_in) == inputs, "the encoder's part is of another length");
  *in++ = tokens_.start;
  std::copy(targets.begin() + sizes_.inputs(), targets.end() - 1, in);
}

std::int64_t text_of_sample(const Recipe& recipe) {
  return recipe.number("data.spans") > 0 ? sizes_of(recipe).text : recipe.integer("model.seq");
}

namespace {

// Checks the sizes: the model must cut each sample where the data does.
void check_sizes(const Recipe& recipe, std::string_view option, Diagnostics& problems) {
  const SpanSizes sizes = sizes_of(recipe);
  const std::int64_t seq = recipe.integer("model.seq"), whole = sizes.inputs() + sizes.outputs();
  if (sizes.text == 0 || whole != seq) {
    problems.add(recipe.problem(
        "model.seq",
        detail::concat("with data.spans = ", recipe.number("data.spans"), " no text comes to samples of ",
                       seq, " tokens, encoder and decoder together; ",
                       sizes.text == 0 ? detail::concat("take more")
                                       : detail::concat("the next shorter ones have ", whole))));
    return;
  }
  const RecipeSection model = recipe.section("model");
  if (!option.empty() && model.integer(option) != sizes.inputs())
    problems.add(
        recipe.problem("model." + std::string(option),
                       detail::concat("of samples of ", seq, " tokens the first ", sizes.inputs(),
                                      " are the encoder's, by data.spans and data.span_length; set model.",
                                      option, " = ", sizes.inputs())));
}

}  // namespace

void check_spans(const Recipe& recipe, PluginHost& plugins, Diagnostics& problems) {
  const bool cuts = recipe.number("data.spans") > 0;
  const std::string& model = recipe.section("model").plugin();
  const PluginNote& note = plugins.note("model", model);
  const bool wants = trait_of(note, "predicts") == "spans";
  const auto wrong = [&](const char* key, std::string text) {
    problems.add(recipe.problem(key, std::move(text)));
  };
  if (wants && !cuts)
    wrong("model.plugin",
          detail::concat(
              "model '", model,
              "' has an encoder that sees a text and a decoder that writes what is cut out of it; set "
              "data.spans to the share that is, such as 0.15, and data.span_token"));
  if (cuts && !wants)
    wrong("data.spans",
          detail::concat("model '", model, "' has no encoder and decoder; leave data.spans out"));
  if (!cuts || !wants) return;
  if (!recipe.has("data.span_token"))
    wrong("data.spans",
          "a token stands for each span that is cut out; set data.span_token to the first one's "
          "number, such as 32099 for T5's, where the next are those below it");
  if (recipe.flag("run.loss_by_role"))
    wrong("run.loss_by_role",
          "run.loss_by_role tells the loss of answers apart, and data.spans has spans of a text predicted; "
          "leave "
          "one of the two out");
  check_sizes(recipe, trait_of(note, "inputs"), problems);
}

}  // namespace prun
