#include "conform/tiny_recipe.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/random.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

constexpr const char* run_text = R"(
[run]
name = "trial"
steps = 2
[batch]
global = 8
micro = 2
[optimizer]
plugin = "adamw"
lr = 1e-2
clip = 1.0
[precision]
compute = "fp64"
state = "fp64"
[device]
plugin = "cpu"
threads = 1
pin = false
)";

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

Recipe tiny_recipe(const std::string& model, const std::string& more, const fs::path& folder,
                   PluginHost& plugins) {
  const fs::path text = folder / "text.txt";
  if (!fs::exists(text)) write_text(text);
  const std::string sections = "[model]\nplugin = \"" + model +
                               "\"\nlayers = 2\nhidden = 16\nheads = 4\nvocab = 256\nseq = 16\n" +
                               (model == "llama" ? "kv_heads = 2\nffn = 32\n" : "") +
                               "[data]\nplugin = \"text\"\npath = \"" + text.string() + "\"\n";
  return Recipe::parse(run_text + sections + more, "the recipe of a trial", {}, plugins.catalog());
}

CpuKernels::CpuKernels(const std::vector<SearchPlace>& places) {
  const std::vector<std::string> devices = plugin_names(places, "device");
  if (std::find(devices.begin(), devices.end(), "cpu") == devices.end()) return;
  PluginHost plugins(places);
  const DefaultSection defaults(parse_schema(plugins.note("device", "cpu").options, "device plugin 'cpu'"));
  device_ = plugins.create<DeviceInterface>("device", "cpu", options_of(defaults));
}

KernelsOf CpuKernels::kernels() const {
  if (!device_) return [](std::string_view) { return nullptr; };
  return kernels_of(*device_);
}

}  // namespace prun
