// prun import, prun export: directories as Hugging Face's libraries keep them.
#include <cstdio>

#include "base/text.hpp"
#include "cli/clean_end.hpp"
#include "cli/commands.hpp"
#include "cli/open_recipe.hpp"
#include "hugging_face/hugging_face.hpp"

namespace prun {
namespace {

std::optional<DType> type_of(const Arguments& arguments) {
  const auto found = arguments.values.find("--type");
  if (found == arguments.values.end()) return {};
  if (found->second == "bf16") return DType::bf16;
  if (found->second == "fp32") return DType::f32;
  throw_error(ErrorCode::bad_input, "--type takes bf16 or fp32, not ", in_quotes(found->second));
}

Conversion conversion(const Arguments& arguments) {
  Conversion how;
  how.from = arguments.words[0];
  how.to = arguments.path("--out").value();
  how.type = type_of(arguments);
  how.file_bytes = arguments.bytes("--file-size", how.file_bytes);
  how.sets = arguments.sets;
  return how;
}

}  // namespace

int import_command(const Arguments& arguments) {
  const CleanEnd clean;
  PluginHost plugins(plugin_places({}, arguments.sets, arguments.plugin_paths));
  const Conversion how = conversion(arguments);
  std::fputs(import_directory(plugins, how).c_str(), stdout);
  return 0;
}

int export_command(const Arguments& arguments) {
  const CleanEnd clean;
  PluginHost plugins(plugin_places({}, arguments.sets, arguments.plugin_paths));
  const Conversion how = conversion(arguments);
  say_without_latest(arguments.words[0]);
  std::fputs(export_checkpoint(plugins, how).c_str(), stdout);
  return 0;
}

}  // namespace prun
