#include "data/shown_sample.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cli/output.hpp"
#include "plugin/traits.hpp"
#include "prun/error.hpp"
#include "prun/visible.hpp"
#include "train/assemble/corrupted_spans.hpp"
#include "train/assemble/masked_tokens.hpp"
#include "train/assemble/model_program.hpp"
#include "train/loop/samples.hpp"

namespace prun {
namespace {

constexpr const char *learned_colour = "\x1b[1;32m", *end_colour = "\x1b[0m", *open_mark = "\xE2\x9F\xA6",
                     *close_mark = "\xE2\x9F\xA7";

bool shows_colour() {
  const char* const terminal = std::getenv("TERM");  // NOLINT(concurrency-mt-unsafe): before any other thread
  return ::isatty(STDOUT_FILENO) == 1 && terminal && std::string_view(terminal) != "dumb" &&
         !std::getenv("NO_COLOR");
}

}  // namespace

ShownSample::ShownSample(const Recipe& recipe, PluginHost& plugins, std::int64_t index)
    : index_(index), colour_(shows_colour()) {
  const RecipeSection section = recipe.section("data");
  const PluginNote& note = plugins.note("data", section.plugin());
  const auto data = plugins.create<DataInterface>("data", section);
  const std::int64_t seq = text_of_sample(recipe);
  recipe::in_section(section, [&] { raise(data->open(seq, &info_)); });
  if (index < 0 || index >= info_.samples)
    throw_error(ErrorCode::bad_input, "there is no sample ", index, ": the data have ", info_.samples, " of ",
                seq, " tokens, counted from 0");
  tokens_.resize(static_cast<std::size_t>(seq));
  targets_.resize(tokens_.size());
  raise(data->read(index, tokens_.data(), targets_.data()));
  in_place_ = trait_of(note, "predicts") == "masked";
  if (recipe.number("data.mask") > 0 || recipe.number("data.spans") > 0) hide(recipe, plugins);
  bytes_ = trait_of(note, "tokens") == "bytes";
  const std::string tokenizer(trait_of(note, "tokenizer"));
  if (!tokenizer.empty()) tokenizer_.emplace(Tokenizer::load(section.text(tokenizer)));
}

void ShownSample::hide(const Recipe& recipe, PluginHost& plugins) {
  const ModelProgram model = write_model(recipe, plugins);
  const std::int64_t vocab = vocabulary(*model.program);
  if (const auto masked = MaskedTokens::of(recipe, vocab)) masked->apply(index_, tokens_, targets_);
  if (const auto spans = CorruptedSpans::of(recipe, vocab)) {
    const std::vector<std::int32_t> text = tokens_;
    tokens_.resize(static_cast<std::size_t>(recipe.integer("model.seq")));
    targets_.resize(tokens_.size());
    spans->apply(index_, text, tokens_, targets_);
  }
  in_place_ = true;
}

std::string ShownSample::text_of(std::int32_t token) const {
  if (tokenizer_) return std::string(tokenizer_->bytes(token));
  if (bytes_ && token < 256) return {static_cast<char>(token)};
  return " " + std::to_string(token);
}

std::int32_t ShownSample::learned_at(std::size_t position) const {
  if (in_place_) return position < targets_.size() ? targets_[position] : -1;
  return position > 0 ? targets_[position - 1] : -1;
}

// Learned tokens are a sample's targets. Of next tokens the last one is no token of the sample; no text shows
// what is seen in the place of the others.
void ShownSample::print_text() const {
  std::string text;
  bool learned = false;
  const auto set = [&](bool now) {
    if (now == learned) return;
    learned = now;
    text += colour_ ? (now ? learned_colour : end_colour) : (now ? open_mark : close_mark);
  };
  std::string piece;
  const auto write = [&] {
    text += visible_lines(piece);
    piece.clear();
  };
  for (std::size_t i = 0; i <= tokens_.size(); ++i) {
    const std::int32_t target = learned_at(i);
    const bool now = target >= 0;
    if (i == tokens_.size() && !now) break;
    if (now != learned) write();
    set(now);
    piece += text_of(now && (in_place_ || i == tokens_.size()) ? target : tokens_[i]);
  }
  write();
  set(false);
  print_as_it_is(text + "\n", stdout);
}

void ShownSample::print_tokens() const {
  std::printf("%8s %8s %8s  text\n", "position", "token", "learned");
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::int32_t target = learned_at(i);
    const bool learned = target >= 0;
    char line[64];
    std::snprintf(line, sizeof line, "%8zu %8d %8s  ", i, tokens_[i],
                  !learned    ? ""
                  : in_place_ ? std::to_string(target).c_str()
                              : "yes");
    std::string row = line + visible(text_of(tokens_[i]));
    if (learned && in_place_) row += " -> " + visible(text_of(target));
    print_as_it_is(colour_ && learned ? learned_colour + row + end_colour + "\n" : row + "\n", stdout);
  }
}

void ShownSample::print(bool tokens) const {
  const auto learned =
      std::count_if(targets_.begin(), targets_.end(), [](std::int32_t target) { return target >= 0; });
  std::printf("sample %lld of %lld: %zu tokens, %lld of them learned\n", static_cast<long long>(index_),
              static_cast<long long>(info_.samples), tokens_.size(), static_cast<long long>(learned));
  std::fflush(stdout);
  print_text();
  if (tokens) print_tokens();
}

}  // namespace prun
