// Implements prun eval: it computes the loss of a checkpoint on the validation data.
#include <chrono>
#include <cstdio>

#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "estimate/number_text.hpp"
#include "generate/checkpoint_use.hpp"

namespace prun {
namespace {

int eval_command(const Arguments& arguments) {
  const std::string& where = arguments.words[0];
  const Opened opened = open_checkpoint(arguments, where, asked_rank());
  const Recipe& recipe = *opened.recipe;
  if (opened.lacks_length())
    throw_error(ErrorCode::bad_input, where,
                " was imported, so nothing says how long sequences are: give --set model.seq=N");
  const LossQuestion question{where, arguments.number("--batches", recipe.integer("eval.batches")),
                              arguments.has("--average") ? "average" : ""};
  if (is_asked()) return answer_loss(recipe, opened.plugins->places(), question);
  const auto begin = std::chrono::steady_clock::now();
  const CheckpointLoss loss = loss_of_checkpoint(recipe, *opened.plugins, question, arguments.all);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (arguments.has("--json"))
    std::printf("{\"eval_loss\":%.17g,\"targets\":%lld}\n", loss.evaluated.loss,
                static_cast<long long>(loss.evaluated.targets));
  else
    std::printf("%s: eval loss %.4f over %lld targets, in %s\n", loss.checkpoint.c_str(), loss.evaluated.loss,
                static_cast<long long>(loss.evaluated.targets), time_text(seconds).c_str());
  return 0;
}

}  // namespace

std::vector<Command> eval_verb() {
  return {
      {"eval",
       "CKPT",
       "its loss on the validation data, without training: a checkpoint, or the latest in a run's folder, in "
       "the layout of "
       "its recipe or in any other that --set gives it",
       {{"--batches", "N", "batches to take, eval.batches of the recipe"},
        {"--average", "", "of the average of its weights, which strategy average keeps"},
        json_option},
       eval_command}};
}

}  // namespace prun
