// Compares a note's epoch, ABI tag and layout hash with the core's.
#include "plugin/compatibility.hpp"

#include "prun/plugin.hpp"

namespace prun {
namespace {

template <class Side>
std::string mismatch(std::string_view what, const Side& theirs, std::string_view sdk, const Side& ours) {
  return detail::concat("it was built for ", what, " ", theirs, " (SDK ", sdk, "), this prun has ", ours,
                        " (SDK ", sdk_version, "); rebuild it against this prun's SDK");
}

}  // namespace

std::string incompatibility(const PluginNote& note) {
  const std::string layout(detail::layout_text.data(), detail::layout_text.size());
  if (note.epoch != plugin_epoch) return mismatch("epoch", note.epoch, note.sdk, plugin_epoch);
  if (note.abi != abi_tag) return mismatch("ABI", std::string_view(note.abi), note.sdk, abi_tag);
  if (note.layout != layout) return mismatch("interface layout", note.layout, note.sdk, layout);
  return "";
}

}  // namespace prun
