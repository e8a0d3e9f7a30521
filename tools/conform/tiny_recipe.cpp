#include "conform/tiny_recipe.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/random.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

void write_text(const fs::path& path) {
  const RandomStream draw(1, stream_id("text"));
  std::ofstream out(path);
  for (std::uint64_t i = 0; i < 4096; ++i) out << static_cast<char>('a' + draw.bits32(i) % 26);
}

}  // namespace

TrialFolder::TrialFolder() {
  std::string pattern = (fs::temp_directory_path() / "prun-trial-XXXXXX").string();
  if (!::mkdtemp(pattern.data()))
    throw_error(ErrorCode::storage, "cannot make a folder ", pattern, ": ", std::strerror(errno));
  path_ = pattern;
}

TrialFolder::~TrialFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Recipe tiny_recipe(const BaseModel& model, const std::string& more, const fs::path& folder,
                   PluginHost& plugins) {
  const fs::path text = folder / "text.txt";
  if (!fs::exists(text)) write_text(text);
  const std::string sections = "[model]\nplugin = \"" + std::string(model.plugin) +
                               "\"\nlayers = 2\nhidden = 16\nheads = 4\nvocab = 256\nseq = 16\n" +
                               model.options + "[data]\nplugin = \"" + bytes_data + "\"\npath = \"" +
                               text.string() + "\"\n";
  return Recipe::parse(around_a_trial + sections + more, "the recipe of a trial", {}, plugins.catalog());
}

CpuKernels::CpuKernels(const std::vector<SearchPlace>& places) {
  const std::vector<std::string> devices = plugin_names(places, "device");
  if (std::find(devices.begin(), devices.end(), host_device) == devices.end()) return;
  PluginHost plugins(places);
  const DefaultSection defaults(
      parse_schema(plugins.note("device", host_device).options, "the device of a trial"));
  device_ = plugins.create<DeviceInterface>("device", host_device, options_of(defaults));
}

KernelsOf CpuKernels::kernels() const {
  if (!device_) return [](std::string_view) { return nullptr; };
  return kernels_of(*device_);
}

}  // namespace prun
