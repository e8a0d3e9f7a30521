// Implements prun import and prun export.
#include <cstdio>

#include "base/text.hpp"
#include "cli/clean_end.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "hugging_face/hugging_face.hpp"
#include "train/checkpoint/checkpoint_folder.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- conversion options
// Reads the options that prun import and prun export share.

inline constexpr CommandOption weights_type = {"--type", "bf16|fp16|fp32",
                                               "the type of the weights; as they are otherwise"};

std::optional<DType> type_of(const Arguments& arguments) {
  const auto found = arguments.values.find("--type");
  if (found == arguments.values.end()) return {};
  if (found->second == "bf16") return DType::bf16;
  if (found->second == "fp16") return DType::f16;
  if (found->second == "fp32") return DType::f32;
  throw_error(ErrorCode::bad_input, "--type takes bf16, fp16 or fp32, not ", in_quotes(found->second));
}

Conversion conversion_of(const Arguments& arguments) {
  Conversion how;
  how.from = arguments.words[0];
  how.to = arguments.path("--out").value();
  how.type = type_of(arguments);
  how.file_bytes = arguments.bytes("--file-size", how.file_bytes);
  how.sets = arguments.sets;
  return how;
}

// ------------------------------------------------------------------- export verb
// Implements prun export: it writes a directory as Hugging Face's libraries keep them.

int export_command(const Arguments& arguments) {
  const CleanEnd clean;
  Conversion how = conversion_of(arguments);
  if (arguments.has("--average")) how.state = "average";
  PluginHost plugins(plugin_places_of_checkpoint(arguments, find_checkpoint(arguments.words[0])));
  say_without_latest(arguments.words[0]);
  const bool adapter = arguments.flags.contains("--adapter");
  std::fputs((adapter ? export_adapter(plugins, how) : export_checkpoint(plugins, how)).c_str(), stdout);
  return 0;
}

}  // namespace

std::vector<Command> export_verb() {
  return {{"export",
           "CKPT",
           "a folder of Hugging Face of a checkpoint's weights, or of a run's latest",
           {{"--out", "DIR", "where to", true},
            weights_type,
            {"--file-size", "SIZE", "of a file at most, 5GiB"},
            {"--adapter", "", "a folder of PEFT of its adapters alone, which are merged otherwise"},
            {"--average", "", "the average of its weights, which strategy average keeps"}},
           export_command}};
}

namespace {

// ------------------------------------------------------------------- import verb
// Implements prun import: it makes a checkpoint of a directory as Hugging Face's libraries keep it.

int import_command(const Arguments& arguments) {
  const CleanEnd clean;
  PluginHost plugins(plugin_places({}, arguments.sets, arguments.plugin_paths));
  const Conversion how = conversion_of(arguments);
  std::fputs(import_directory(plugins, how).c_str(), stdout);
  return 0;
}

}  // namespace

std::vector<Command> import_verb() {
  return {
      {"import",
       "DIR",
       "a checkpoint of the weights in a folder of Hugging Face; none is needed: model.init takes the folder "
       "as well",
       {{"--out", "CKPT", "where to", true}, weights_type},
       import_command}};
}

}  // namespace prun
