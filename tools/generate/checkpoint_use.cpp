#include "generate/checkpoint_use.hpp"

#include <algorithm>
#include <sstream>

#include "base/text.hpp"
#include "generate/forward_rank.hpp"
#include "generate/generator.hpp"
#include "plugin/traits.hpp"
#include "train/assemble/batch_arithmetic.hpp"

namespace prun {
namespace {

std::string loss_of(const Recipe& recipe, const Member& member, const LossQuestion& question) {
  const ForwardRank rank(recipe, member.plugins, member.membership, member.rank, Purpose::evaluation);
  Evaluator evaluator(rank.parts(), open_data(rank.assembly(), member.plugins, DataPart::validation));
  const LoadedCheckpoint loaded = rank.load(evaluator.memory(), question.checkpoint, question.state);
  rank.check_alike(loaded, evaluator.samples());
  const Evaluated evaluated = evaluator.run(question.batches);
  return format("%.17g %lld ", evaluated.loss, static_cast<long long>(evaluated.targets)) +
         loaded.folder.string();
}

CheckpointLoss read_loss(const std::string& text) {
  std::istringstream words(text);
  CheckpointLoss loss;
  words >> loss.evaluated.loss >> loss.evaluated.targets;
  std::getline(words >> std::ws, loss.checkpoint);
  PRUN_CHECK(words, "a rank's loss: '", text, "'");
  return loss;
}

void check_tokens(std::span<const std::int32_t> tokens, std::int64_t vocab) {
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= vocab)
      throw_error(ErrorCode::bad_input, "the text holds token ", token, ", outside of the model's ", vocab,
                  " tokens; was it made with another tokenizer?");
}

// A text that grows beyond a sequence is read through a window, which begins elsewhere each time. The last
// token of all is not read.
Purpose purpose_of(const Recipe& recipe, const TextQuestion& question) {
  const std::int64_t read = static_cast<std::int64_t>(question.tokens.size()) + question.most - 1;
  return read <= recipe.integer("model.seq") ? Purpose::generation : Purpose::windows;
}

// The ranks that have the head choose, all alike.
std::string text_of(const Recipe& recipe, const Member& member, const TextQuestion& question) {
  const ForwardRank rank(recipe, member.plugins, member.membership, member.rank,
                         purpose_of(recipe, question));
  check_tokens(question.tokens, vocabulary(rank.assembly().program()));
  Generator generator(rank.parts());
  rank.load(generator.memory(), question.checkpoint, question.state);
  std::vector<std::int32_t> tokens = question.tokens;
  std::string text;
  for (std::int64_t i = 0; i < question.most; ++i) {
    const std::vector<double> logits = generator.logits(tokens);
    const auto position = static_cast<std::int64_t>(tokens.size());
    const std::string mine =
        logits.empty() ? "" : std::to_string(choose_token(logits, question.sampling, position));
    const std::vector<std::string> all = rank.exchange("token", mine);
    const auto chosen =
        std::find_if(all.begin(), all.end(), [](const std::string& said) { return !said.empty(); });
    PRUN_CHECK(chosen != all.end(), "no rank has the head");
    tokens.push_back(std::stoi(*chosen));
    if (tokens.back() == question.end) break;
    text += *chosen + " ";
  }
  return text;
}

// Returns the answer of the first rank; several ranks are a process each.
template <class Body>
std::string ask(const Recipe& recipe, PluginHost& plugins, const std::vector<std::string>& command,
                Purpose purpose, Body&& body) {
  if (mesh_of(recipe).world() > 1) return ask_processes(recipe, plugins, command, purpose).front();
  const Membership alone;
  return body(Member{plugins, alone, 0, {}});
}

}  // namespace

CheckpointLoss loss_of_checkpoint(const Recipe& recipe, PluginHost& plugins, const LossQuestion& question,
                                  const std::vector<std::string>& command) {
  return read_loss(ask(recipe, plugins, command, Purpose::evaluation,
                       [&](const Member& member) { return loss_of(recipe, member, question); }));
}

int answer_loss(const Recipe& recipe, const std::vector<SearchPlace>& places, const LossQuestion& question) {
  return answer_as_member(recipe, places,
                          [&](const Member& member) { return loss_of(recipe, member, question); });
}

std::vector<std::int32_t> text_of_checkpoint(const Recipe& recipe, PluginHost& plugins,
                                             const TextQuestion& question,
                                             const std::vector<std::string>& command) {
  std::istringstream words(ask(recipe, plugins, command, purpose_of(recipe, question),
                               [&](const Member& member) { return text_of(recipe, member, question); }));
  std::vector<std::int32_t> tokens;
  for (std::int32_t token; words >> token;) tokens.push_back(token);
  return tokens;
}

int answer_text(const Recipe& recipe, const std::vector<SearchPlace>& places, const TextQuestion& question) {
  return answer_as_member(recipe, places,
                          [&](const Member& member) { return text_of(recipe, member, question); });
}

namespace {

// Says whether a strategy's schedule takes one microbatch a step, each of which is an update in training.
bool updates_each_microbatch(const RecipeSection& strategy, PluginHost& plugins) {
  return strategy.has("schedule") &&
         trait_of(plugins.note("schedule", strategy.text("schedule")), "delay") == "stages";
}

}  // namespace

// Takes one sequence a rank and microbatch. Schedules may want as many microbatches as their axis has ranks.
Recipe one_text(const Recipe& recipe, PluginHost& plugins) {
  Recipe one =
      without_ramp(recipe).with("batch.micro", "1").with("batch.pad", "true").with("batch.global", "1");
  std::int64_t microbatches = 1;
  const Mesh mesh = mesh_of(one);
  for (const RecipeSection& strategy : one.strategies())
    if (works_in(Phase::partition, plugins.note("strategy", strategy.plugin())) && strategy.has("axis") &&
        !updates_each_microbatch(strategy, plugins))
      if (const AxisId axis = mesh.find(strategy.text("axis")); axis != no_axis)
        microbatches = mesh.extent(axis);
  const std::int64_t ranks = BatchArithmetic::of(one, plugins).ranks;
  return one.with("batch.global", std::to_string((microbatches - 1) * ranks + 1));
}

}  // namespace prun
